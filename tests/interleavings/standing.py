"""Where a coroutine stands: everything its future depends on, as a value that can be compared.

Two histories that leave a coroutine at the same instruction with the same variables and the same temporaries have the
same future; the explorer then follows them as one. What a frame holds is read through the garbage collector's own view
of it, which misses nothing, hidden iterators included. Whatever cannot be compared for certain is refused
(`CannotCompare`), and then histories stay apart: that costs time and loses nothing.
"""

from __future__ import annotations

import gc
import types
from collections.abc import Callable, Hashable, Iterable
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from engine.store.base import Record
from engine.workflows.definition import Definition

_PLAIN = frozenset({type(None), bool, int, float, str, bytes, datetime, timedelta, Record, range})
_BY_IDENTITY = (type, types.BuiltinFunctionType, types.CodeType, types.ModuleType, types.MethodDescriptorType)
_SUSPENDED = (types.CoroutineType, types.GeneratorType, types.AsyncGeneratorType)
_PREFIXES = {types.CoroutineType: "cr", types.GeneratorType: "gi", types.AsyncGeneratorType: "ag"}
_ITERABLES: tuple[Iterable[object], ...] = ([], (), "", range(1), {}, {}.items(), {}.values(), set())
_ITERATORS: tuple[type, ...] = (*{type(iter(each)) for each in _ITERABLES}, enumerate, zip)
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
        kind = type(value)
        if kind in _PLAIN:
            return value  # type: ignore[no-any-return]
        way = _WAYS.get(kind) or _WAYS.setdefault(kind, _way_of(value))
        if way is _Reader.by_value:
            return way(self, value)
        if id(value) in self._met:
            return "met", self._met[id(value)]
        self._met[id(value)] = len(self._met)
        self._kept.append(value)
        if kind in self._special:
            return kind, tuple(self.read(each) for each in self._special[kind](value))
        return kind, way(self, value)

    # -- the ways of reading, one for each type ----------------------------------------------------------------

    def by_value(self, value: Any) -> Hashable:
        if isinstance(value, msgspec.Struct):
            return type(value), msgspec.json.encode(value)
        if isinstance(value, Definition):
            return value.source
        return bytes(value) if isinstance(value, msgspec.Raw) else id(value)

    def sequence(self, value: Any) -> Hashable:
        return tuple([self.read(each) for each in value])

    def mapping(self, value: Any) -> Hashable:
        return tuple([(self.read(name), self.read(each)) for name, each in value.items()])

    def collection(self, value: Any) -> Hashable:
        return frozenset([self.read(each) for each in value])

    def function(self, value: Any) -> Hashable:
        return id(value.__code__), self.read(value.__closure__), self.read(value.__defaults__)

    def method(self, value: Any) -> Hashable:
        return self.read(value.__func__), self.read(value.__self__)

    def cell(self, value: Any) -> Hashable:
        return self.read(_contents(value))

    def iterator(self, value: Any) -> Hashable:
        return tuple([self.read(each) for each in value.__reduce__()[1:]])

    def fault(self, value: Any) -> Hashable:
        return self.read(value.args)

    def referents(self, value: Any) -> Hashable:
        return tuple([self.read(each) for each in gc.get_referents(value)])

    def fields(self, value: Any) -> Hashable:
        return tuple([self.read(getattr(value, name, None)) for name in _FIELDS[type(value)]])

    def attributes(self, value: Any) -> Hashable:
        return self.mapping(value.__dict__)

    def refuse(self, value: Any) -> Hashable:
        raise CannotCompare(type(value).__name__)

    def suspended(self, value: Any) -> Hashable:
        frame = getattr(value, f"{_PREFIXES[type(value)]}_frame")
        if frame is None:
            return None
        shown = frame.f_locals
        names = tuple(shown)
        held = [
            self.read(each)
            for each in gc.get_referents(value)
            if each is not shown and type(each) not in (types.FrameType, types.FunctionType, types.CodeType)
        ]
        functions = [self.read(each) for each in shown.values() if isinstance(each, types.FunctionType)]
        return id(frame.f_code), frame.f_lasti, names, tuple(held), tuple(functions)


_Way = Callable[[_Reader, Any], Hashable]
_WAYS: dict[type, _Way] = {}
_FIELDS: dict[type, tuple[str, ...]] = {}
_BY_KIND: tuple[tuple[Any, _Way], ...] = (
    ((msgspec.Struct, msgspec.Raw, Definition, *_BY_IDENTITY), _Reader.by_value),
    ((tuple, list), _Reader.sequence),
    (dict, _Reader.mapping),
    ((set, frozenset), _Reader.collection),
    (_SUSPENDED, _Reader.suspended),
    (types.FunctionType, _Reader.function),
    (types.MethodType, _Reader.method),
    (types.CellType, _Reader.cell),
    (_ITERATORS, _Reader.iterator),
    (BaseException, _Reader.fault),
)


def _way_of(value: Any) -> _Way:
    """Choose how values of this one's type are read."""
    for kinds, way in _BY_KIND:
        if isinstance(value, kinds):
            return way
    if type(value).__name__ in _WRAPPERS:
        return _Reader.referents
    if is_dataclass(value):
        _FIELDS[type(value)] = tuple(each.name for each in fields(value))
        return _Reader.fields
    return _Reader.attributes if hasattr(value, "__dict__") else _Reader.refuse


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def standing(value: Any, special: dict[type, Any]) -> Hashable:
    """Give where `value` (a suspended coroutine) stands. `special` says what of a type's values counts."""
    return _Reader(special).read(value)
