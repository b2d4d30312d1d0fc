"""Check payloads against JSON Schemas: jsonschema-rs where its wheel exists, jsonschema elsewhere, with one answer.

A problem says where and which rule, never a value; a name that the schema does not declare is shown as `*`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Protocol

import msgspec

from engine.errors import BadInput
from engine.limits import MAX_SCHEMA_PROBLEMS
from engine.workflows.document import child
from engine.workflows.patterns import portable
from engine.workflows.schema_rules import LISTED, NAMED, check, subschemas_of

# A payload of 16 KiB can break a rule thousands of times; a sender needs the first few.
_MAX_RAW_PROBLEMS: Final = 200
CACHED_SCHEMAS: Final = 256
_CONTAINS: Final = frozenset({"minContains", "maxContains"})


@dataclass(frozen=True, slots=True, order=True)
class SchemaProblem:
    """One rule that a payload breaks, by the JSON pointer of the value (or of the member that is missing)."""

    pointer: str
    rule: str  # the schema's keyword


@dataclass(frozen=True, slots=True)
class RawProblem:
    """What a validator reports: where in the value, where in the schema, and which required members are missing."""

    at: tuple[str | int, ...]
    rule_path: tuple[str | int, ...]
    missing: tuple[str, ...] = ()


class Validator(Protocol):
    """One of the two libraries, compiled for one schema."""

    def is_valid(self, value: object) -> bool: ...

    def problems(self, value: object) -> Iterable[RawProblem]: ...


class Schema:
    """A compiled schema. Checking a valid payload takes microseconds with jsonschema-rs."""

    __slots__ = ("_declared", "_validator", "fast")

    def __init__(self, validator: Validator, declared: frozenset[str], *, fast: bool) -> None:
        self._validator = validator
        self._declared = declared
        self.fast = fast
        """Whether a payload at the cap takes well under a millisecond; if not, large ones belong off the loop."""

    def problems(self, payload_text: bytes) -> tuple[SchemaProblem, ...]:
        """Check a payload's JSON text; empty means valid. At most MAX_SCHEMA_PROBLEMS, sorted by pointer."""
        return self.problems_of(msgspec.json.decode(payload_text))

    def problems_of(self, value: object) -> tuple[SchemaProblem, ...]:
        """Check a decoded JSON value in the same way."""
        if self._validator.is_valid(value):
            return ()
        raw = itertools.islice(self._validator.problems(value), _MAX_RAW_PROBLEMS)
        found = sorted({problem for each in raw for problem in self._tell(each)})
        assert found, "an invalid value has a problem"
        return tuple(found[:MAX_SCHEMA_PROBLEMS])

    def _tell(self, raw: RawProblem) -> list[SchemaProblem]:
        pointer = ""
        for step in raw.at:
            if step == "":
                continue  # jsonschema-rs leaves a member with an empty name out of its paths
            pointer = child(pointer, step if isinstance(step, int) or step in self._declared else "*")
        rule = _rule(raw.rule_path)
        if rule in {"additionalProperties", "propertyNames"}:
            return [SchemaProblem(child(pointer, "*"), rule)]
        if raw.missing:
            return [SchemaProblem(child(pointer, name), rule) for name in raw.missing]
        return [SchemaProblem(pointer, rule)]


def check_schema(schema: object, *, template: bool = False) -> list[tuple[str, str]]:
    """List the problems of a schema as it is written: pointer within it, and message. See `schema_rules`.

    In a `template`, a value that is an expression is left unchecked until it has been filled in.
    """
    return check(schema, template=template).problems


@lru_cache(maxsize=CACHED_SCHEMAS)
def compile_schema(schema: bytes) -> Schema:
    """Compile a schema from its JSON text; the same text costs nothing the next time. Raise BadInput for a bad one."""
    try:
        from engine.workflows.schema_fast import FastValidator as Chosen  # noqa: PLC0415 - 60 ms, when first needed
    except ImportError:
        return compile_with_fallback(schema)
    prepared, declared = _prepare(schema)
    return Schema(Chosen(prepared), declared, fast=True)


def compile_with_fallback(schema: bytes) -> Schema:
    """Compile a schema with jsonschema, whether or not jsonschema-rs is there. Not cached."""
    from engine.workflows.schema_slow import SlowValidator  # noqa: PLC0415 - 170 ms, when first needed

    prepared, declared = _prepare(schema)
    return Schema(SlowValidator(prepared), declared, fast=False)


def _prepare(schema: bytes) -> tuple[object, frozenset[str]]:
    try:
        value: object = msgspec.json.decode(schema)
    except (msgspec.DecodeError, RecursionError):
        raise BadInput("a schema that is not JSON") from None
    problems = check_schema(value)
    if problems:
        raise BadInput("a schema that is not accepted", problems=tuple(f"{at}: {what}" for at, what in problems))
    declared: set[str] = set()
    return _rewrite(value, declared), frozenset(declared)


def _rewrite(schema: object, declared: set[str]) -> object:
    """Copy a schema with portable patterns, and with `false` written so that both libraries say where it failed."""
    if isinstance(schema, bool):
        return True if schema else {"not": {}}
    assert isinstance(schema, dict)
    declared.update(schema.get("required", ()), schema.get("properties", ()))
    for name, names in schema.get("dependentRequired", {}).items():
        declared.update((name, *names))
    declared.update(schema.get("dependentSchemas", ()))
    copy: dict[str, object] = dict(schema)
    for keyword, _, value in subschemas_of(schema):
        if keyword not in NAMED and keyword not in LISTED:
            keep = keyword == "additionalProperties" and value is False
            copy[keyword] = value if keep else _rewrite(value, declared)
    for keyword in NAMED & copy.keys():
        write = portable if keyword == "patternProperties" else str
        copy[keyword] = {write(name): _rewrite(value, declared) for name, value in schema[keyword].items()}
    for keyword in LISTED & copy.keys():
        copy[keyword] = [_rewrite(value, declared) for value in schema[keyword]]
    if "pattern" in copy:
        copy["pattern"] = portable(schema["pattern"])
    return copy


def _rule(path: tuple[str | int, ...]) -> str:
    """Find the keyword that a path through a schema ends at; names and indexes below a keyword are stepped over."""
    rule = "false"
    steps = iter(path)
    for step in steps:
        rule = str(step)
        if rule == "propertyNames":
            return rule
        if rule in NAMED or rule in LISTED:
            next(steps, None)
    return "contains" if rule in _CONTAINS else rule
