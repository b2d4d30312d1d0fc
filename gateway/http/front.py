"""The outermost layer of the HTTP door, in plain ASGI: which host is meant, how much is read, what a fault looks like.

It also answers the health checks.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable
from typing import Final
from urllib.parse import urlsplit

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.limits import MAX_DEFINITION_BYTES, MAX_PAYLOAD_BYTES
from gateway.http.problems import INTERNAL, TooLarge
from gateway.logs import get_logger

MAX_BODY_BYTES: Final = MAX_PAYLOAD_BYTES
# Of a request's line and headers. The parser holds what is incomplete to it; what came in one piece is measured here.
MAX_HEAD_BYTES: Final = 16_384
# Only an operator gets as far as having a whole definition read.
_LARGER: Final = {
    "/api/v1/workflows/validate": MAX_DEFINITION_BYTES,
    # The page's forms, which write a payload in up to three times its bytes.
    "/send": 4 * MAX_PAYLOAD_BYTES,
    "/runs": 4 * MAX_PAYLOAD_BYTES,
}
# HTTP's parser sees to Host and Content-Length.
_ONCE: Final = (b"authorization", b"idempotency-key", b"origin")
HEADERS: Final = [
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
]
TOO_LONG: Final = f"a request's line and headers may have {MAX_HEAD_BYTES} bytes"


class Front:
    """An ASGI application around the one that has the routes."""

    def __init__(self, app: ASGIApp, *, hosts: Iterable[str], not_ready: Callable[[], Awaitable[list[str]]]) -> None:
        self._app = app
        self._hosts = {"localhost", socket.gethostname().lower(), *(host.lower() for host in hosts)}
        self._not_ready = not_ready

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._open_socket(scope, receive, send)
        if scope["type"] != "http":
            return
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                given = message.get("headers", [])
                named = {name for name, _ in given}
                message = {**message, "headers": [*given, *(h for h in HEADERS if h[0] not in named)]}
            await send(message)

        try:
            await self._answer(scope, receive, sending)
        except Exception as fault:  # noqa: BLE001  whatever it is, the caller gets a sentence and the log its place
            get_logger("http").error("request failed", path=scope["path"], exc_info=fault)
            if not started:
                await _problem(sending, 500, "internal", INTERNAL)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        cap = _LARGER.get(scope["path"], MAX_BODY_BYTES)
        headers = _headers_of(scope)
        if _is_too_long(scope):
            await _problem(send, 431, "headers_too_large", TOO_LONG, (b"connection", b"close"))
        elif _ambiguous(scope):
            # What stands before the gateway may have read it otherwise: where the next request begins is unsure, too.
            ends = (b"connection", b"close")
            await _problem(send, 400, "bad_request", "the headers of this request can be read in two ways", ends)
        elif not self._meant(headers.get("host", "")):
            await _problem(
                send, 421, "misdirected_request", "this gateway does not answer to that Host; see http_hosts"
            )
        elif not _same_origin(headers):
            await _problem(send, 403, "forbidden", "requests from other origins are refused")
        elif scope["path"] in {"/healthz", "/readyz"} and scope["method"] in {"GET", "HEAD"}:
            await self._health(scope["path"], send)
        else:
            await self._app(scope, _capped(headers, receive, cap), send)

    async def _open_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a WebSocket through that is meant for this gateway and comes from no other origin."""
        headers = _headers_of(scope)
        if self._meant(headers.get("host", "")) and _same_origin(headers) and not _is_too_long(scope):
            await self._app(scope, receive, send)
            return
        await receive()
        await send({"type": "websocket.close", "code": 1008, "reason": ""})  # before it is accepted: HTTP 403

    def _meant(self, host: str) -> bool:
        """Tell whether a Host is this gateway: an address, or a known name. Other names may be somebody's trick."""
        name, colon, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
        if not colon:
            name = host
        elif not (port.isascii() and port.isdigit()):
            return False
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return name.lower().rstrip(".") in self._hosts
        return True

    async def _health(self, path: str, send: Send) -> None:
        missing = [] if path == "/healthz" else await self._not_ready()
        status = 503 if missing else 200
        await _send(
            send, status, {"status": "unavailable" if missing else "ok", "missing": missing}, b"application/json"
        )


def _headers_of(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def _is_too_long(scope: Scope) -> bool:
    line = len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"")
    return line + sum(len(name) + len(value) + 4 for name, value in scope["headers"]) > MAX_HEAD_BYTES


def _ambiguous(scope: Scope) -> bool:
    """Tell whether a header that decides something occurs twice, or a body's length is said in two ways."""
    names = [name for name, _ in scope["headers"]]
    return (b"content-length" in names and b"transfer-encoding" in names) or any(names.count(n) > 1 for n in _ONCE)


def is_own_origin(origin: str, host: str) -> bool:
    """Tell whether an Origin is the page of the gateway that a Host means; what is no URL is somebody else's."""
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False


def _same_origin(headers: dict[str, str]) -> bool:
    origin = headers.get("origin")
    return origin is None or is_own_origin(origin, headers.get("host", ""))


def _capped(headers: dict[str, str], receive: Receive, cap: int) -> Receive:
    """Raise `TooLarge` as soon as a body is known to be over the cap, before the rest of it is read."""
    said = headers.get("content-length", "")
    length = int(said) if said.isascii() and said.isdigit() else 0
    read = 0

    async def receiving() -> Message:
        nonlocal read
        if length > cap:
            raise TooLarge(length)
        message = await receive()
        if message["type"] == "http.request":
            read += len(message.get("body", b""))
            if read > cap:
                raise TooLarge(read)
        return message

    return receiving


async def _problem(send: Send, status: int, error: str, detail: str, *headers: tuple[bytes, bytes]) -> None:
    body = {"type": error, "status": status, "v": 1, "ok": False, "code": status, "error": error, "detail": detail}
    await _send(send, status, body, b"application/problem+json", *headers)


async def _send(send: Send, status: int, body: dict[str, object], media: bytes, *headers: tuple[bytes, bytes]) -> None:
    content = msgspec.json.encode(body)
    head = [(b"content-type", media), (b"content-length", str(len(content)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": content})
