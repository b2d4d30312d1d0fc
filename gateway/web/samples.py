"""A value that a schema would probably take: a form starts with it, so that a person changes what is there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gateway.web.render import pretty

_PLAIN: Mapping[str, object] = {"string": "", "boolean": True, "null": None, "array": [], "number": 0, "integer": 0}
MAX_DEPTH = 8


def sample_text(schema: bytes | None) -> str:
    """Write a sample for a schema as JSON over several lines; `{}` without one."""
    return pretty(sample(json.loads(schema)) if schema else {})


def sample(schema: object, depth: int = 0) -> Any:  # noqa: ANN401  JSON of any shape
    """Make a value of what the schema names; it need not fit, the gateway says what is wrong with it."""
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        return {} if depth == 0 else None
    for name in ("const", "default"):
        if name in schema:
            return schema[name]
    for name in ("examples", "enum"):
        if isinstance(values := schema.get(name), list) and values:
            return values[0]
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    if kind == "object" or "properties" in schema or (kind is None and depth == 0):
        return _object(schema, depth)
    if kind == "array" and isinstance(schema.get("minItems"), int) and schema["minItems"] > 0:
        return [sample(schema.get("items", {}), depth + 1)]
    if kind in {"number", "integer"} and "minimum" in schema:
        return schema["minimum"]
    return _PLAIN.get(str(kind), "")


def _object(schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
    properties = schema.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    required = schema.get("required")
    wanted = required if isinstance(required, list) else list(properties)
    return {str(name): sample(properties.get(name, {}), depth + 1) for name in wanted}
