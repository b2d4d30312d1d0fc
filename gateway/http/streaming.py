"""A run's log as server-sent events, for who asks with `Accept: text/event-stream`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Final

import msgspec
from fastapi import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from engine.errors import NotFound, StoreUnavailable
from gateway.http.access import Caller
from gateway.http.admission import Admission, Full
from gateway.http.problems import Problem
from gateway.services import Services

MEDIA_TYPE: Final = "text/event-stream"
STILL_HERE_SECONDS: Final = 15.0
ENDED: Final = frozenset({"succeeded", "failed", "cancelled"})
_DIGITS: Final = 15


def wants_stream(request: Request) -> bool:
    """Tell whether the caller asks for events as they come."""
    return MEDIA_TYPE in request.headers.get("accept", "")


def resumed_after(request: Request, after: int) -> int:
    """Give the number of the last event that is known: what a browser says that connects again wins."""
    said = request.headers.get("last-event-id", "")
    return int(said) if said.isascii() and said.isdigit() and len(said) <= _DIGITS else after


def stream_events(request: Request, parts: Services, who: Caller, run: str, after: int) -> Response:
    """Stream a run's events until it has ended, the gateway stops, or the caller may read them no more.

    A stream counts as one of the caller's connections; raises 503 when there are too many.
    """
    admission: Admission = request.app.state.admission
    stack = contextlib.ExitStack()
    try:
        over = stack.enter_context(admission.admitted(who.principal))
    except Full as full:
        raise Problem(503, "too_many_connections", str(full), retry_after_ms=1_000) from None
    return _Stream(_events(parts, who, run, after, over), stack)


class _Stream(StreamingResponse):
    """Lets go of the connection's place also when the peer leaves before anything was sent."""

    def __init__(self, content: AsyncIterator[bytes], stack: contextlib.ExitStack) -> None:
        super().__init__(content, media_type=MEDIA_TYPE)
        self._stack = stack

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._stack:
            await super().__call__(scope, receive, send)


async def _events(parts: Services, who: Caller, run: str, after: int, over: asyncio.Event) -> AsyncIterator[bytes]:
    yield b"retry: 3000\n\n"
    # A run that was removed meanwhile, or a store that is away, ends the stream: a browser asks again by itself.
    with contextlib.suppress(NotFound, StoreUnavailable):
        while True:
            # How it stands is read first: what ends a run is then among the events, or among those of the next look.
            shown = await parts.engine.run(run)
            if over.is_set() or parts.stopping.is_set() or not who.may_read(shown["workflow"]):
                return
            events = await parts.engine.events(run, after)
            for event in events:
                after = event["seq"]
                yield b"id: %d\nevent: %s\ndata: %s\n\n" % (after, event["event"].encode(), msgspec.json.encode(event))
            if events:
                continue
            if shown["status"] in ENDED:
                yield b"event: end\ndata: {}\n\n"
                return
            change = parts.engine.wait_change(run, after, STILL_HERE_SECONDS)
            await parts.unless_stopping(_first(change, over.wait()))
            yield b": still here\n\n"


async def _first(*waiting: Coroutine[Any, Any, object]) -> None:
    """Return as soon as one has; the others are cancelled."""
    tasks = [asyncio.ensure_future(it) for it in waiting]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
