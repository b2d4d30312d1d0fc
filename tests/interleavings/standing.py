"""Where a coroutine stands: everything its future depends on, as a value that can be compared.

Two histories that leave a coroutine at the same instruction with the same variables and the same temporaries have the
same future; the explorer then follows them as one. What a frame holds is read through the garbage collector's own view
of it, which misses nothing, hidden iterators included. Whatever cannot be compared for certain is refused
(`CannotCompare`), and then histories stay apart: that costs time and loses nothing.
"""

from __future__ import annotations

import gc
import types
from collections.abc import Hashable
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from engine.store.base import Record
from engine.workflows.definition import Definition

_PLAIN = (type(None), bool, int, float, str, bytes, datetime, timedelta, Record, range)
_BY_IDENTITY = (type, types.BuiltinFunctionType, types.CodeType, types.ModuleType, types.MethodDescriptorType)
_SUSPENDED = (types.CoroutineType, types.GeneratorType, types.AsyncGeneratorType)
_PREFIXES = {types.CoroutineType: "cr", types.GeneratorType: "gi", types.AsyncGeneratorType: "ag"}
_ITERATORS = (*{type(iter(each)) for each in ([], (), "", range(1), {}, {}.items(), {}.values(), set())}, enumerate, zip)
_WRAPPERS = ("coroutine_wrapper", "async_generator_asend", "async_generator_athrow", "lru_cache_wrapper")


class CannotCompare(Exception):
    """A value whose standing cannot be told for certain."""


class _Reader:
    """Reads one object and all that it holds; what is met twice is written once, so that sharing shows."""

    def __init__(self, special: dict[type, Any]) -> None:
        self._special = special
        self._met: dict[int, int] = {}
        self._kept: list[Any] = []

    def read(self, value: Any) -> Hashable:
        if isinstance(value, _PLAIN):
            return value
        if isinstance(value, msgspec.Struct):
            return type(value), msgspec.json.encode(value)
        if isinstance(value, msgspec.Raw):
            return bytes(value)
        if isinstance(value, Definition):
            return value.source
        if isinstance(value, _BY_IDENTITY):
            return id(value)
        if id(value) in self._met:
            return "met", self._met[id(value)]
        self._met[id(value)] = len(self._met)
        self._kept.append(value)
        return type(value), self._inside(value)

    def _inside(self, value: Any) -> Hashable:
        if (of := self._special.get(type(value))) is not None:
            return tuple(self.read(each) for each in of(value))
        if isinstance(value, tuple | list):
            return tuple(self.read(each) for each in value)
        if isinstance(value, dict):
            return tuple((self.read(name), self.read(each)) for name, each in value.items())
        if isinstance(value, set | frozenset):
            return frozenset(self.read(each) for each in value)
        if isinstance(value, _SUSPENDED):
            return self._suspended(value)
        if isinstance(value, types.FunctionType):
            return id(value.__code__), self.read(value.__closure__), self.read(value.__defaults__)
        if isinstance(value, types.MethodType):
            return self.read(value.__func__), self.read(value.__self__)
        if isinstance(value, types.CellType):
            return self.read(_contents(value))
        return self._object(value)

    def _object(self, value: Any) -> Hashable:
        if isinstance(value, _ITERATORS):
            return tuple(self.read(each) for each in value.__reduce__()[1:])
        if isinstance(value, BaseException):
            return self.read(value.args)
        if type(value).__name__ in _WRAPPERS:
            return tuple(self.read(each) for each in gc.get_referents(value))
        if is_dataclass(value):
            return tuple(self.read(getattr(value, each.name, None)) for each in fields(value))
        held = getattr(value, "__dict__", None)
        if held is not None:
            return self.read(dict(held))
        raise CannotCompare(type(value).__name__)

    def _suspended(self, value: Any) -> Hashable:
        prefix = _PREFIXES[type(value)]
        frame = getattr(value, f"{prefix}_frame")
        if frame is None:
            return None
        names = tuple(frame.f_locals)
        shown = frame.f_locals
        held = [
            self.read(each)
            for each in gc.get_referents(value)
            if each is not shown and not isinstance(each, types.FrameType | types.FunctionType | types.CodeType)
        ]
        functions = [self.read(each) for each in shown.values() if isinstance(each, types.FunctionType)]
        return id(frame.f_code), frame.f_lasti, names, tuple(held), tuple(functions)


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def standing(value: Any, special: dict[type, Any]) -> Hashable:
    """Give where `value` (a suspended coroutine) stands. `special` says what of a type's values counts."""
    return _Reader(special).read(value)
