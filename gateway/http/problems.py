"""Errors on the wire: RFC 9457 problem documents, each with a stable name, and never what was sent."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.responses import Response

from engine.errors import BadInput, Conflict, FormatTooNew, NotFound, StoreUnavailable, WaysideError
from engine.limits import MAX_PAYLOAD_BYTES, NAME_FORM, NAME_PATTERN, SIGNAL_ID_PATTERN
from gateway.http.models import ID_PATTERN, KEY_PATTERN
from gateway.logs import get_logger

MEDIA_TYPE: Final = "application/problem+json"
RETRY_SECONDS: Final = 1
INTERNAL: Final = "something went wrong inside the gateway; its log says where"
_NAMES: Final[Mapping[int, str]] = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    409: "conflict",
    413: "payload_too_large",
    421: "misdirected_request",
    422: "bad_input",
    429: "rate_limited",
    431: "headers_too_large",
    503: "store_unavailable",
}
# The forms that names and ids have, in words.
_FORMS: Final[Mapping[str, str]] = {
    NAME_PATTERN: NAME_FORM,
    SIGNAL_ID_PATTERN: "a signal id is 1 to 64 characters of A-Z, a-z, 0-9, _ and -",
    ID_PATTERN: "an id is 26 characters of a-z and 0-9",
    KEY_PATTERN: "a key is written workflow/key",
}


class ProblemItem(BaseModel):
    """One thing that is wrong, by its JSON pointer."""

    pointer: str = ""
    message: str | None = None
    rule: str | None = None


class ProblemDocument(BaseModel):
    """RFC 9457; `type` and `error` are the same stable name, `status` and `code` the same number."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str | None = None
    error: str
    code: int
    ok: bool = False
    v: int = 1
    hint: str | None = None
    problems: list[ProblemItem] | list[str] | None = None


class Problem(HTTPException):
    """Raised in a route to answer with a problem document."""

    def __init__(
        self,
        status: int,
        error: str,
        detail: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        **more: object,
    ) -> None:
        super().__init__(status, detail or error, headers=dict(headers or {}))
        self.error = error
        self.more = more


class TooLarge(Problem):
    """The body is over the cap; `size` is what was said or, if nothing was, what had come."""

    def __init__(self, size: int) -> None:
        super().__init__(
            413, "payload_too_large", "the body is over the limit", max_bytes=MAX_PAYLOAD_BYTES, bytes=size
        )
        self.size = size


def document(status: int, error: str, detail: str = "", **more: object) -> dict[str, Any]:
    """Write a problem; empty members are left out."""
    given = {"detail": detail, **more}
    return {
        "type": error,
        "title": HTTPStatus(status).phrase,
        "status": status,
        "v": 1,
        "ok": False,
        "code": status,
        "error": error,
        **{name: value for name, value in given.items() if value not in ("", None, ())},
    }


def answer(status: int, body: Mapping[str, object], headers: Mapping[str, str] | None = None) -> Response:
    """Send a problem document."""
    return Response(msgspec.json.encode(body), status, dict(headers or {}), MEDIA_TYPE)


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe the error answers of a route for OpenAPI."""
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}},
        }
        for status in statuses
    }


def of_fault(fault: WaysideError) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Give the status, the document and the headers for a fault of the parts behind the door."""
    problems: Sequence[str] | None = None
    headers: dict[str, str] = {}
    match fault:
        case NotFound():
            status = 404
        case Conflict():
            status = 409
        case BadInput():
            status, problems = 422, fault.problems or None
        case StoreUnavailable() | FormatTooNew():
            status, headers = 503, {"Retry-After": str(RETRY_SECONDS)}
        case _:
            status = 500
    return status, document(status, fault.code, fault.message, hint=fault.hint, problems=problems), headers


def install(app: FastAPI) -> None:
    """Have every error of `app` answered with a problem document."""

    @app.exception_handler(HTTPException)
    async def refused(request: Request, fault: HTTPException) -> Response:
        if isinstance(fault, Problem):
            body = document(fault.status_code, fault.error, fault.detail, **fault.more)
        else:
            body = document(fault.status_code, _NAMES.get(fault.status_code, "refused"))
        headers = dict(fault.headers or {})
        if fault.status_code == 405 and (methods := _methods(app, request.url.path)):
            headers["Allow"] = ", ".join(sorted(methods))
        return answer(fault.status_code, body, headers)

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, fault: RequestValidationError) -> Response:
        # Without the input, and without the context, which may hold it.
        wrong = [{"pointer": _pointer(e["loc"]), "message": _in_words(e)} for e in fault.errors()]
        is_json = "json" in request.headers.get("content-type", "json")
        hint = "" if is_json else "say what the body is: Content-Type: application/json"
        return answer(422, document(422, "bad_input", "the request is malformed", problems=wrong, hint=hint))

    @app.exception_handler(Exception)
    async def broken(*_: object) -> Response:
        # It is raised again behind this answer: the front writes it to the log.
        return answer(500, document(500, "internal", INTERNAL))

    @app.exception_handler(WaysideError)
    async def faulty(request: Request, fault: WaysideError) -> Response:
        status, body, headers = of_fault(fault)
        if status >= 500:
            get_logger("http").error("request failed", path=request.url.path, code=fault.code)
        return answer(status, body, headers)


def _methods(app: FastAPI, path: str) -> set[str]:
    """Name the methods that a path of the API has: the routes know only their own."""
    found: set[str] = set()
    for template, operations in app.openapi()["paths"].items():
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path):
            found |= {method.upper() for method in operations}
    return found


def _in_words(error: Mapping[str, Any]) -> str:
    """Say what is wrong; a form is described, where the library would print its regular expression."""
    if error["type"] != "string_pattern_mismatch":
        return str(error["msg"])
    pattern = error["ctx"]["pattern"].strip("^$").removeprefix("(").removesuffix(")?")
    return _FORMS.get(pattern, "this has not the form that the API's description gives")


def _pointer(location: Sequence[int | str]) -> str:
    where = location[1:] if location and location[0] in {"body", "query", "path", "header"} else location
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in where)
