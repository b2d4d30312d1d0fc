"""The validator on jsonschema-rs: tens of microseconds for a payload at the cap, patterns in linear time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import jsonschema_rs

from engine.workflows.schema import RawProblem


class FastValidator:
    """A schema compiled by jsonschema-rs, with its linear-time regular expressions and no way out to fetch anything."""

    def __init__(self, schema: object) -> None:
        self._validator = jsonschema_rs.Draft202012Validator(
            cast("dict[str, object] | bool", schema),
            validate_formats=False,
            pattern_options=jsonschema_rs.RegexOptions(),
            offline=True,
        )

    def is_valid(self, value: object) -> bool:
        return self._validator.is_valid(cast("dict[str, object]", value))

    def problems(self, value: object) -> Iterator[RawProblem]:
        for error in self._validator.iter_errors(cast("dict[str, object]", value)):
            kind = error.kind
            missing = (kind.property,) if isinstance(kind, jsonschema_rs.ValidationErrorKind.Required) else ()
            yield RawProblem(tuple(error.instance_path), tuple(error.schema_path), missing)
