"""Which JSON Schemas are accepted: 2020-12 with the keywords that are enforced, all of them alike by both validators.

Refused by name: a keyword that would not be enforced (`format`, `default`, `contentEncoding`, …), one that the two
validators read differently (`unevaluatedProperties`, a `multipleOf` with a fraction), a reference that leaves the
schema, a reference that comes back to itself, and a schema whose cost could grow with every level of a payload.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from engine.limits import MAX_PAYLOAD_DEPTH, MAX_SCHEMA_PATTERN_ATOMS, MAX_SCHEMA_WORK, MAX_SUBSCHEMAS
from engine.workflows.document import child
from engine.workflows.patterns import BadPattern, atoms_of, portable

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

ANNOTATIONS: Final = frozenset({"title", "description", "$comment", "examples", "deprecated"})
NAMED: Final = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs"})
LISTED: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
SINGLE: Final = frozenset(
    {"not", "if", "then", "else", "items", "contains", "additionalProperties", "propertyNames"},
)
_IN_PLACE: Final = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"})
_PARTNERS: Final = {"then": "if", "else": "if", "minContains": "contains", "maxContains": "contains"}
_TYPES: Final = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})

_REFERENCE: Final = re.compile(r"#(?:/[A-Za-z0-9_.$~-]+)*")

_WHY_NOT: Final = {
    "format": "it would not be enforced; say it with pattern, minLength or enum",
    "default": "defaults are never applied; remove it",
    "unevaluatedProperties": "not supported; use additionalProperties",
    "unevaluatedItems": "not supported; use items after prefixItems",
    "$id": "not supported; references point into the schema itself, as #/$defs/name",
    "$anchor": "not supported; refer to #/$defs/name",
    "$dynamicRef": "not supported; use $ref",
    "$dynamicAnchor": "not supported; refer to #/$defs/name",
    "definitions": "not a keyword of 2020-12; it is $defs now",
    "dependencies": "not a keyword of 2020-12; it is dependentRequired and dependentSchemas now",
    "additionalItems": "not a keyword of 2020-12; it is items after prefixItems now",
}

Schema = dict[str, object] | bool
Wrong = tuple[str, str]


@dataclass(slots=True)
class Checked:
    """What one walk over a schema found: its problems, and its subschemas by pointer."""

    problems: list[Wrong] = field(default_factory=list)
    subschemas: dict[str, Schema] = field(default_factory=dict)

    def refuse(self, pointer: str, message: str) -> None:
        self.problems.append((pointer, message))


def check(schema: object, *, template: bool = False) -> Checked:
    """Check a schema; pointers are relative to it. In a `template`, values that are expressions are left for later."""
    checked = Checked()
    _walk(schema, "", checked, template=template)
    if not checked.problems:
        _check_references(checked)
    if not checked.problems:
        _check_work(checked)
        _check_patterns(checked, template=template)
    return checked


def is_expression(value: object) -> bool:
    """Tell whether a value holds an expression itself (not somewhere inside a list or an object)."""
    return isinstance(value, str) and "${{" in value


def subschemas_of(schema: dict[str, object]) -> Iterator[tuple[str, str, object]]:
    """List the keyword, the relative pointer and the value of each subschema directly in `schema`."""
    for keyword, value in schema.items():
        pointer = child("", keyword)
        if keyword in SINGLE:
            yield keyword, pointer, value
        elif keyword in NAMED and isinstance(value, dict):
            for name, inner in value.items():
                yield keyword, child(pointer, name), inner
        elif keyword in LISTED and isinstance(value, list):
            for index, inner in enumerate(value):
                yield keyword, child(pointer, index), inner


def _walk(root: object, at: str, checked: Checked, *, template: bool) -> None:
    waiting: list[tuple[object, str]] = [(root, at)]
    while waiting:
        schema, pointer = waiting.pop()
        if isinstance(schema, bool):
            checked.subschemas[pointer] = schema
            continue
        if not isinstance(schema, dict):
            checked.refuse(pointer, "a schema is an object, true or false")
            continue
        checked.subschemas[pointer] = schema
        if len(checked.subschemas) > MAX_SUBSCHEMAS:
            checked.refuse(pointer, f"more than {MAX_SUBSCHEMAS} schemas in one")
            return
        for keyword, value in schema.items():
            _check_keyword(schema, keyword, value, child(pointer, keyword), checked, template=template)
        inner = [(value, pointer + below) for _, below, value in subschemas_of(schema)]
        waiting.extend(reversed(inner))


def _check_keyword(
    schema: dict[str, object], keyword: str, value: object, pointer: str, checked: Checked, *, template: bool
) -> None:
    if keyword in ANNOTATIONS or keyword in SINGLE:
        pass
    elif keyword in NAMED or keyword in LISTED:
        _check_applicator(keyword, value, pointer, checked)
    elif keyword == "$schema":
        if value != DIALECT or pointer != "/$schema":
            checked.refuse(pointer, f"$schema stands at the top and is {DIALECT}")
    elif keyword == "$ref":
        # Patterns are written anew for the validators, so nothing may be found by them.
        if not isinstance(value, str) or _REFERENCE.fullmatch(value) is None or "/patternProperties/" in value:
            checked.refuse(pointer, "$ref must point into this schema, as #/$defs/name with a plain name")
    elif keyword in _VALUES:
        if not (template and is_expression(value)) and (message := _VALUES[keyword](value)):
            checked.refuse(pointer, f"{keyword} {message}")
    else:
        checked.refuse(pointer, _unknown(keyword))
    if keyword in _PARTNERS and _PARTNERS[keyword] not in schema:
        checked.refuse(pointer, f"{keyword} without {_PARTNERS[keyword]} would not be enforced")


def _unknown(keyword: str) -> str:
    if keyword in _WHY_NOT:
        return f"the keyword {keyword}: {_WHY_NOT[keyword]}"
    near = difflib.get_close_matches(keyword, [*_VALUES, *SINGLE, *NAMED, *LISTED, "$ref"], n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"the keyword {keyword} would not be enforced{hint}"


def _check_applicator(keyword: str, value: object, pointer: str, checked: Checked) -> None:
    if keyword in LISTED:
        if not isinstance(value, list) or not value:
            checked.refuse(pointer, f"{keyword} is a list of schemas, at least one")
    elif not isinstance(value, dict):
        checked.refuse(pointer, f"{keyword} is an object of schemas")
    elif "" in value:
        checked.refuse(pointer, f"an empty name in {keyword} is not supported")
    elif keyword == "patternProperties":
        for name in value:
            if message := _pattern(name):
                checked.refuse(child(pointer, name), f"the pattern {message}")
            elif sum(not _pattern(other) and portable(other) == portable(name) for other in value) > 1:
                checked.refuse(child(pointer, name), "two patterns that say the same")


def _check_references(checked: Checked) -> None:
    for pointer, schema in checked.subschemas.items():
        target = _target(schema)
        if target is not None and target not in checked.subschemas:
            checked.refuse(f"{pointer}/$ref", f"$ref #{target} points to no schema in this one")


def _target(schema: Schema) -> str | None:
    reference = schema.get("$ref") if isinstance(schema, dict) else None
    return reference[1:] if isinstance(reference, str) else None


def _check_work(checked: Checked) -> None:
    """Bound the evaluations that one value can cause, by schema and depth; a reference in place must not come back."""
    order = _in_place_order(checked)
    if order is None:
        return
    below: dict[str, int] = dict.fromkeys(checked.subschemas, 0)
    for _ in range(MAX_PAYLOAD_DEPTH + 1):
        here: dict[str, int] = {}
        for pointer in order:
            here[pointer] = (
                1
                + sum(here[other] for other in _in_place(checked, pointer))
                + _descent(checked.subschemas[pointer], pointer, below)
            )
        below = here
    if below[""] > MAX_SCHEMA_WORK:
        checked.refuse("", f"references multiply: one value could be checked against {below['']:.0e} schemas")


def _check_patterns(checked: Checked, *, template: bool) -> None:
    """Bound what compiling all patterns of a schema takes."""
    atoms = 0
    for schema in checked.subschemas.values():
        if isinstance(schema, bool):
            continue
        named = schema.get("patternProperties", {})
        patterns = [*named] if isinstance(named, dict) else []
        own = schema.get("pattern")
        if isinstance(own, str) and not (template and is_expression(own)):
            patterns.append(own)
        atoms += sum(atoms_of(pattern) for pattern in patterns)
    if atoms > MAX_SCHEMA_PATTERN_ATOMS:
        checked.refuse("", f"its patterns have more than {MAX_SCHEMA_PATTERN_ATOMS} characters and classes in all")


def _in_place(checked: Checked, pointer: str) -> list[str]:
    """List the subschemas that look at the same value as the one at `pointer`."""
    schema = checked.subschemas[pointer]
    if isinstance(schema, bool):
        return []
    found = [pointer + below for keyword, below, _ in subschemas_of(schema) if keyword in _IN_PLACE]
    target = _target(schema)
    return found if target is None else [*found, target]


def _in_place_order(checked: Checked) -> list[str] | None:
    """Sort the subschemas so that each comes after those it applies in place; refuse a circle."""
    users: dict[str, list[str]] = {pointer: [] for pointer in checked.subschemas}
    waits_for: dict[str, int] = {}
    for pointer in checked.subschemas:
        used = _in_place(checked, pointer)
        waits_for[pointer] = len(used)
        for other in used:
            users[other].append(pointer)
    order = [pointer for pointer, count in waits_for.items() if count == 0]
    for pointer in order:
        for user in users[pointer]:
            waits_for[user] -= 1
            if waits_for[user] == 0:
                order.append(user)
    if len(order) == len(waits_for):
        return order
    circle = next(p for p, count in waits_for.items() if count and _target(checked.subschemas[p]) is not None)
    checked.refuse(f"{circle}/$ref", "$ref comes back to itself without entering the value")
    return None


def _descent(schema: Schema, pointer: str, below: dict[str, int]) -> int:
    """Count the evaluations on one child of a value: of an object's member or of an array's element."""
    if isinstance(schema, bool):
        return 0
    cost: dict[str, list[int]] = {}
    for keyword, relative, _ in subschemas_of(schema):
        cost.setdefault(keyword, []).append(below[pointer + relative])
    named = max([0, *cost.get("properties", []), *cost.get("additionalProperties", [])])
    member = named + sum(cost.get("patternProperties", [])) + sum(cost.get("propertyNames", []))
    element = max([0, *cost.get("prefixItems", []), *cost.get("items", [])]) + sum(cost.get("contains", []))
    return max(member, element)


def _number(value: object) -> str:
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return "" if good else "is a number"


def _count(value: object) -> str:
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 2**31
    return "" if good else "is a whole number, 0 or more"


def _divisor(value: object) -> str:
    # Fractions are not exact in binary, and validators differ about 0.3 being three times 0.1.
    good = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 2**53
    return "" if good else "is a whole number above 0; fractions cannot be checked exactly"


def _flag(value: object) -> str:
    return "" if isinstance(value, bool) else "is true or false"


def _names(value: object) -> str:
    good = isinstance(value, list) and all(isinstance(name, str) for name in value) and len(set(value)) == len(value)
    return "" if good else "is a list of names, each once"


def _named_names(value: object) -> str:
    good = isinstance(value, dict) and not any(_names(names) for names in value.values())
    return "" if good else "is an object of lists of names, each once"


def _type(value: object) -> str:
    names = value if isinstance(value, list) else [value]
    good = bool(names) and all(isinstance(name, str) and name in _TYPES for name in names)
    if good and len(set(names)) == len(names):
        return ""
    return f"is one of {', '.join(sorted(_TYPES))}, or a list of them, each once"


def _choices(value: object) -> str:
    return "" if isinstance(value, list) and value else "is a list of values, at least one"


def _any(_: object) -> str:
    return ""


def _pattern(value: object) -> str:
    if not isinstance(value, str):
        return "is a regular expression"
    try:
        portable(value)
    except BadPattern as error:
        return f"cannot be matched in linear time and alike everywhere: {error}"
    return ""


_VALUES: Final[dict[str, Callable[[object], str]]] = {
    "type": _type,
    "enum": _choices,
    "const": _any,
    "multipleOf": _divisor,
    "minimum": _number,
    "maximum": _number,
    "exclusiveMinimum": _number,
    "exclusiveMaximum": _number,
    "minLength": _count,
    "maxLength": _count,
    "pattern": _pattern,
    "minItems": _count,
    "maxItems": _count,
    "uniqueItems": _flag,
    "minContains": _count,
    "maxContains": _count,
    "minProperties": _count,
    "maxProperties": _count,
    "required": _names,
    "dependentRequired": _named_names,
}
KEYWORDS: Final = frozenset(_VALUES) | SINGLE | NAMED | LISTED | {"$ref"}
