"""The validator on jsonschema, where jsonschema-rs has no wheel. A payload at the cap may take tens of milliseconds.

Patterns are matched by RE2, which the expression runtime brings: `re` could be made to run for minutes. Equality of
elements is by a key, since comparing each with each would let one payload hold the process for seconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import jsonschema
from cel_expr_python import cel
from jsonschema.exceptions import ValidationError
from referencing import Registry

from engine.workflows.schema import RawProblem

_ENVIRONMENT: Any = cel.NewEnv(variables={"subject": cel.Type.STRING})


class SlowValidator:
    """A schema compiled by jsonschema; nothing is ever fetched."""

    def __init__(self, schema: object) -> None:
        self._validator = _Validator(schema, registry=Registry())

    def is_valid(self, value: object) -> bool:
        return bool(self._validator.is_valid(value))

    def problems(self, value: object) -> Iterator[RawProblem]:
        for error in self._validator.iter_errors(value):
            yield RawProblem(tuple(error.absolute_path), tuple(error.absolute_schema_path), _missing(error))


def _missing(error: Any) -> tuple[str, ...]:  # noqa: ANN401 - the library is not typed
    if error.validator == "required":
        return tuple(name for name in error.validator_value if name not in error.instance)
    if error.validator == "dependentRequired":
        wanted = error.validator_value.items()
        return tuple(
            name for owner, names in wanted if owner in error.instance for name in names if name not in error.instance
        )
    return ()


def _literal(text: str) -> str:
    # What JSON escapes, CEL reads the same way, except that it knows no surrogate pairs.
    return json.dumps(text, ensure_ascii=False)


@lru_cache(maxsize=256)
def _matcher(pattern: str) -> Any:  # noqa: ANN401
    return _ENVIRONMENT.compile(f"subject.matches({_literal(pattern)})")


def matches(pattern: str, text: str) -> bool:
    """Search `text` for a portable pattern, in linear time."""
    if "\0" in text:
        # The runtime takes a variable as a C string, and would see only what comes before the first NUL.
        compiled = _ENVIRONMENT.compile(f"{_literal(text)}.matches({_literal(pattern)})")
        return compiled.eval(data={}).value() is True
    return _matcher(pattern).eval(data={"subject": text}).value() is True


def _pattern(_: Any, pattern: str, instance: object, __: object) -> Iterator[ValidationError]:  # noqa: ANN401
    if isinstance(instance, str) and not matches(pattern, instance):
        yield ValidationError("pattern")


def _pattern_properties(
    validator: Any,  # noqa: ANN401
    patterns: dict[str, object],
    instance: object,
    _: object,
) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    for pattern, schema in patterns.items():
        for name, value in instance.items():
            if matches(pattern, name):
                yield from validator.descend(value, schema, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any,  # noqa: ANN401
    extra: object,
    instance: object,
    schema: dict[str, Any],
) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    patterns = schema.get("patternProperties", {})
    named = schema.get("properties", {})
    names = [n for n in instance if n not in named and not any(matches(pattern, n) for pattern in patterns)]
    if extra is False:
        if names:
            yield ValidationError("additionalProperties")
        return
    for name in names:
        yield from validator.descend(instance[name], extra, path=name)


def _unique_items(_: Any, wanted: bool, instance: object, __: object) -> Iterator[ValidationError]:  # noqa: ANN401, FBT001
    if wanted and isinstance(instance, list) and len({_key(value) for value in instance}) < len(instance):
        yield ValidationError("uniqueItems")


def _key(value: object) -> object:
    """Give equal JSON values equal keys: 1 and 1.0 are equal, 1 and true are not."""
    if isinstance(value, dict):
        return ("object", frozenset((name, _key(member)) for name, member in value.items()))
    if isinstance(value, list):
        return ("array", tuple(_key(element) for element in value))
    return (isinstance(value, bool), value)


def _equal_to_any(options: Iterable[object], instance: object) -> bool:
    key = _key(instance)
    return any(_key(option) == key for option in options)


def _enum(_: Any, options: list[object], instance: object, __: object) -> Iterator[ValidationError]:  # noqa: ANN401
    if not _equal_to_any(options, instance):
        yield ValidationError("enum")


def _const(_: Any, option: object, instance: object, __: object) -> Iterator[ValidationError]:  # noqa: ANN401
    if not _equal_to_any([option], instance):
        yield ValidationError("const")


_Validator: Any = jsonschema.validators.extend(
    jsonschema.Draft202012Validator,
    {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "uniqueItems": _unique_items,
        "enum": _enum,
        "const": _const,
    },
)
