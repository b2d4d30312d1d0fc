"""`/api/v1/ws`: signals and live events over one connection, for devices, operators and the page.

Messages are JSON objects in text frames. A connection is let in by a bearer token in its request, by the page's cookie
(then only from the page's own origin), or by a first message `{"type":"auth","token":…}` within ten seconds.
Messages are answered in their order, one at a time: who sends faster than the store takes is slowed down by TCP.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import Any, Final

import msgspec
from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketDisconnect

from devices.model import Device
from engine.limits import MAX_PAYLOAD_BYTES
from engine.names import is_name
from engine.results import NotDeclared
from gateway.answers import RateLimited, Words, body, say
from gateway.auth import Principal
from gateway.deliver import Delivered, Origin
from gateway.http.access import Caller, authenticate, page_session
from gateway.http.admission import Admission, Full
from gateway.http.places import vouch
from gateway.http.problems import Problem, answer, document
from gateway.limits import Limited
from gateway.live import Happening, Subscription
from gateway.services import Services
from gateway.sessions import Session

MAX_FRAME_BYTES: Final = MAX_PAYLOAD_BYTES + 1_024
MAX_SUBSCRIPTIONS: Final = 32
MAX_MALFORMED: Final = 20
MAX_REF_CHARACTERS: Final = 64
AUTH_SECONDS: Final = 10.0
SEND_SECONDS: Final = 30.0
# RFC 6455, 7.4.1
GOING_AWAY: Final = 1001
POLICY: Final = 1008
TRY_LATER: Final = 1013

router: Final = APIRouter()
Ref = str | int | None


class _Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", kw_only=True):
    ref: Ref = None


class Auth(_Message, frozen=True, tag="auth"):
    token: str


class Signal(_Message, frozen=True, tag="signal"):
    """`wait` in place of `workflow` and `key` addresses one wait; `payload` is kept as it was sent."""

    payload: msgspec.Raw
    workflow: str = ""
    key: str = ""
    wait: str = ""
    id: str | None = None


class Subscribe(_Message, frozen=True, tag="subscribe"):
    workflow: str


class Unsubscribe(_Message, frozen=True, tag="unsubscribe"):
    workflow: str


class Ping(_Message, frozen=True, tag="ping"):
    """For browsers, which cannot send the protocol's own."""


class _OnlyRef(msgspec.Struct):
    ref: Ref = None


_MESSAGE: Final = msgspec.json.Decoder(Auth | Signal | Subscribe | Unsubscribe | Ping)
_REF: Final = msgspec.json.Decoder(_OnlyRef)


class _Ended(Exception):
    """The connection is over; it is closed with this code."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


@router.websocket("/ws")
async def socket(websocket: WebSocket) -> None:
    """Serve one WebSocket."""
    parts: Services = websocket.app.state.services
    admission: Admission = websocket.app.state.admission
    try:
        async with contextlib.AsyncExitStack() as stack:
            caller, session = await _let_in(websocket, parts, admission)
            vouch(websocket)
            over = stack.enter_context(admission.admitted(caller.principal))
            await Conversation(websocket, parts, caller, stack).run(over, session)
    except Full as full:
        await _refuse(websocket, Problem(503, "too_many_connections", str(full), retry_after_ms=1_000))
    except Problem as problem:
        await _refuse(websocket, problem)
    except _Ended as ended:
        with contextlib.suppress(RuntimeError, WebSocketDisconnect):
            await websocket.close(ended.code, ended.reason)
    except WebSocketDisconnect:
        return


async def _let_in(websocket: WebSocket, parts: Services, admission: Admission) -> tuple[Caller, Session | None]:
    """Authenticate by the request's header or cookie, else by the first message; give the page's session if by that."""
    address = websocket.client.host if websocket.client else ""
    scheme, _, token = websocket.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return await authenticate(parts, token.strip(), address=address, door="ws"), None
    # The front has seen to it that an Origin is this gateway's own; a cookie without one proves no page.
    if "origin" in websocket.headers and (session := page_session(parts, websocket)) is not None:
        return Caller(session.principal, parts.authority, address), session
    with admission.unknown(address):
        await websocket.accept()
        try:
            async with asyncio.timeout(AUTH_SECONDS):
                first = _decoded(await _received(websocket))
        except TimeoutError:
            raise _Ended(POLICY, "no token came") from None
        if not isinstance(first, Auth):
            raise Problem(401, "unauthorized", 'the first message is {"type":"auth","token":…}')
        return await authenticate(parts, first.token, address=address, door="ws"), None


async def _refuse(websocket: WebSocket, problem: Problem) -> None:
    """Answer a handshake with a problem document, or an open connection with a message, and close it."""
    said = document(problem.status_code, problem.error, problem.detail, **problem.more)
    with contextlib.suppress(RuntimeError, WebSocketDisconnect):
        if websocket.application_state.name == "CONNECTED":
            await websocket.send_text(msgspec.json.encode(_refusal(None, said)).decode())
            await websocket.close(TRY_LATER if problem.status_code == 503 else POLICY)
        else:
            await websocket.send_denial_response(answer(problem.status_code, said, problem.headers))


def _refusal(ref: Ref, said: dict[str, Any]) -> dict[str, Any]:
    return {"type": "refused", "ref": ref} | {name: value for name, value in said.items() if name != "type"}


async def _received(websocket: WebSocket) -> bytes:
    message = await websocket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code") or 1005)
    text: str | None = message.get("text")
    if text is None:
        raise _Ended(1003, "messages are text")
    return text.encode("utf-8", "surrogatepass")


def _decoded(raw: bytes) -> Auth | Signal | Subscribe | Unsubscribe | Ping | None:
    try:
        found = _MESSAGE.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return None if isinstance(found.ref, str) and len(found.ref) > MAX_REF_CHARACTERS else found


class Conversation:
    """One connection that has been let in."""

    def __init__(self, websocket: WebSocket, parts: Services, caller: Caller, stack: contextlib.AsyncExitStack) -> None:
        self._websocket = websocket
        self._parts = parts
        self._caller = caller
        self._stack = stack
        self._group = asyncio.TaskGroup()
        self._workflows: set[str] = set()
        self._watching = False
        self._malformed = 0

    @property
    def _who(self) -> Principal:
        return self._caller.principal

    async def run(self, over: asyncio.Event, session: Session | None) -> None:
        """Serve until the peer leaves, the credential ends (`over`), the session does, or the instance stops."""
        if self._websocket.application_state.name != "CONNECTED":
            await self._websocket.accept()
        await self._send({"type": "ready", "v": 1, "principal": self._caller.name})
        try:
            async with self._group as group:
                group.create_task(self._read(), name="ws read")
                group.create_task(_end(over.wait(), POLICY, "the credential has ended"), name="ws end")
                if session is not None:
                    ended = self._parts.sessions.ended(session)
                    group.create_task(_end(ended, POLICY, "the session is over"), name="ws session")
                stopping = self._parts.stopping.wait()
                group.create_task(_end(stopping, GOING_AWAY, "the gateway is stopping"), name="ws stop")
        except ExceptionGroup as several:
            raise several.exceptions[0] from None

    async def _send(self, message: dict[str, Any]) -> None:
        """Send one message; a peer that takes nothing for `SEND_SECONDS` is left."""
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await self._websocket.send_text(msgspec.json.encode(message).decode())
        except TimeoutError:
            raise _Ended(POLICY, "nothing is read") from None

    # -- from the peer -------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        while True:
            raw = await _received(self._websocket)
            match _decoded(raw):
                case Signal() as signal:
                    await self._signal(signal)
                case Subscribe() as subscribe:
                    await self._subscribe(subscribe)
                case Unsubscribe(ref=ref, workflow=workflow):
                    self._workflows.discard(workflow)
                    await self._send({"type": "unsubscribed", "ref": ref, "workflow": workflow})
                case Ping(ref=ref):
                    await self._send({"type": "pong", "ref": ref})
                case Auth() | None:
                    await self._malformed_message(raw)

    async def _malformed_message(self, raw: bytes) -> None:
        self._malformed += 1
        if self._malformed > MAX_MALFORMED:
            raise _Ended(POLICY, "too many malformed messages")
        said = document(400, "bad_request", "not a message that is known here; see the API's description")
        await self._send(_refusal(_ref_of(raw), said))

    async def _signal(self, asked: Signal) -> None:
        origin = Origin(door="ws", address=self._caller.address)
        deliver, raw = self._parts.deliver, bytes(asked.payload)
        if asked.wait and not (asked.workflow or asked.key):
            delivered = await deliver.signal_wait(self._who, origin, wait=asked.wait, raw=raw, signal_id=asked.id)
        else:
            delivered = await deliver.signal(
                self._who, origin, workflow=asked.workflow, key=asked.key, raw=raw, signal_id=asked.id
            )
        await self._answer(asked.ref, delivered)
        if delivered.close:
            raise _Ended(POLICY, "over the rate for too long")

    async def _answer(self, ref: Ref, delivered: Delivered) -> None:
        kind = "receipt" if delivered.words.ok else "refused"
        await self._send({"type": kind, "ref": ref, **body(delivered.words, delivered.id)})

    # -- live events ---------------------------------------------------------------------------------------------------

    async def _subscribe(self, asked: Subscribe) -> None:
        if (words := self._refusal_to_subscribe(asked.workflow)) is not None:
            await self._send({"type": "refused", "ref": asked.ref, **body(words, "")})
            return
        self._workflows.add(asked.workflow)
        if not self._watching:
            self._watching = True
            subscription = await self._stack.enter_async_context(self._parts.live.watch(self._is_wanted))
            self._group.create_task(self._tell(subscription), name="ws events")
        await self._send({"type": "subscribed", "ref": asked.ref, "workflow": asked.workflow})

    def _refusal_to_subscribe(self, workflow: str) -> Words | None:
        entry = self._parts.authority.standing(self._who)
        if isinstance(entry, Device):
            now = self._parts.source.monotonic()
            verdict = self._parts.limits.take(entry.name, "reads", now, entry.limits)
            if isinstance(verdict, Limited):
                limited = RateLimited(limit=verdict.limit, retry_after_seconds=verdict.retry_after_seconds)
                return say(limited, reader=False)
        if len(self._workflows) >= MAX_SUBSCRIPTIONS and workflow not in self._workflows:
            limited = RateLimited(limit="subscriptions", retry_after_seconds=1.0)
            return say(limited, reader=False)
        if not (is_name(workflow) and self._caller.may_read(workflow)):
            return say(NotDeclared(), reader=False)
        return None

    def _is_wanted(self, happening: Happening) -> bool:
        # What was refused says who tried what: that is for the audit log alone.
        return happening.workflow in self._workflows and not happening.action.endswith(".refused")

    async def _tell(self, subscription: Subscription) -> None:
        while True:
            news = await subscription.news()
            if news.missed:
                await self._send({"type": "missed"})
            for happening in news.happenings:
                # The grant may have been taken away since.
                if happening.workflow in self._workflows and self._caller.may_read(happening.workflow):
                    await self._send({"type": "event", **happening.said()})


async def _end(waiting: Awaitable[object], code: int, reason: str) -> None:
    await waiting
    raise _Ended(code, reason)


def _ref_of(raw: bytes) -> Ref:
    try:
        ref = _REF.decode(raw).ref
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return None if isinstance(ref, str) and len(ref) > MAX_REF_CHARACTERS else ref
