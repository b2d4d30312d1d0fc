"""`/docs`: the API's description for people, made of the OpenAPI document; nothing is loaded from anywhere else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from gateway.answers import TITLES
from gateway.web.page import html

_REF: Final = "#/components/schemas/"
_WHERE: Final = {"path": "in the path", "query": "in the query", "header": "header"}
Schema = Mapping[str, Any]


async def docs(request: Request) -> Response:
    """Show every operation, and what goes in and comes out. Open to everybody, as the document itself is."""
    document: Schema = request.app.openapi()
    base = f"{request.url.scheme}://{request.headers.get('host', 'localhost')}"
    return html(
        request,
        "docs.html",
        {
            "groups": groups(document, base),
            "schemas": [_schema(name, it) for name, it in sorted(document["components"]["schemas"].items())],
            "errors": TITLES,
            "base": base,
        },
    )


def groups(document: Schema, base: str) -> list[dict[str, Any]]:
    """Give the operations under their tags, in the document's order."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            made = _operation(method.upper(), path, operation, base)
            found.setdefault((operation.get("tags") or ["other"])[0], []).append(made)
    return [{"name": name, "operations": operations} for name, operations in found.items()]


def _operation(method: str, path: str, operation: Schema, base: str) -> dict[str, Any]:
    given: Schema = operation.get("requestBody", {})
    body = _first(given)
    return {
        "id": operation["operationId"],
        "method": method,
        "path": path,
        "text": operation.get("description", "").split("\n\n"),
        "open": not operation.get("security"),
        "parameters": [_parameter(it) for it in operation.get("parameters", ())],
        "body": {"kind": kind(body), "text": given.get("description", "")} if body else None,
        "answers": _answers(operation["responses"]),
        "curl": _curl(method, base + path, body=bool(body), secured=bool(operation.get("security"))),
    }


def _parameter(parameter: Schema) -> dict[str, Any]:
    schema = parameter["schema"]
    return {
        "name": parameter["name"],
        "where": _WHERE.get(parameter["in"], parameter["in"]),
        "kind": kind(schema),
        "required": parameter.get("required", False),
        "text": parameter.get("description", schema.get("description", "")),
    }


def _answers(responses: Schema) -> list[dict[str, Any]]:
    """Give the answers, those that look alike in one: all errors are problem documents."""
    alike: dict[str, dict[str, Any]] = {}
    for status, answer in sorted(responses.items()):
        schema = _first(answer)
        row = alike.setdefault(
            str(schema), {"statuses": [], "text": answer["description"], "kind": kind(schema) if schema else []}
        )
        row["statuses"].append(status)
    return list(alike.values())


def _first(part: Schema) -> Schema:
    """Give the schema of the first media type of a body or an answer; empty when it has none."""
    media: list[Schema] = list(part.get("content", {}).values())
    schema: Schema = media[0].get("schema", {}) if media else {}
    return schema


def _curl(method: str, url: str, *, body: bool, secured: bool) -> str:
    parts = ["curl", *([f"-X {method}"] if method not in {"GET", *(["POST"] if body else [])} else [])]
    parts += ['-H "Authorization: Bearer $TOKEN"'] if secured else []
    parts += ["-H 'Content-Type: application/json' -d '{…}'"] if body else []
    return " ".join([*parts, f"'{url}'"])


def _schema(name: str, schema: Schema) -> dict[str, Any]:
    required = set(schema.get("required", ()))
    fields = [
        {"name": field, "kind": kind(it), "required": field in required, "text": it.get("description", "")}
        for field, it in schema.get("properties", {}).items()
    ]
    return {"name": name, "text": schema.get("description", ""), "fields": fields}


def kind(schema: Schema) -> list[tuple[str, bool]]:
    """Say what a schema takes, as words; True marks the name of another schema."""
    return list(_kind(schema))


def _kind(schema: Schema) -> Iterator[tuple[str, bool]]:
    if "$ref" in schema:
        yield schema["$ref"].removeprefix(_REF), True
    elif "anyOf" in schema:
        for number, choice in enumerate(schema["anyOf"]):
            if number:
                yield "or", False
            yield from _kind(choice)
    elif "enum" in schema or "const" in schema:
        yield ", ".join(map(str, schema.get("enum", [schema.get("const")]))), False
    elif schema.get("type") == "array":
        yield "list of", False
        yield from _kind(schema.get("items", {}))
    else:
        yield schema.get("type", "anything"), False
        yield from _bounds(schema)


def _bounds(schema: Schema) -> Iterator[tuple[str, bool]]:
    names = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<", "maxLength": "length ≤"}
    for name, sign in names.items():
        if name in schema:
            yield f"{sign} {schema[name]:g}", False
    if "pattern" in schema:
        yield schema["pattern"], False


ROUTES: Final[list[BaseRoute]] = [Route("/docs", docs, methods=["GET"], include_in_schema=False)]
