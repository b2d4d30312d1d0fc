"""`/live`: tells an open page that something it shows has changed; the page then reads itself again.

Nothing but the fact travels here, so that there is nothing to keep from anybody; a burst is one message.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from starlette.responses import Response, StreamingResponse

from gateway.http.problems import Problem
from gateway.live import Happening
from gateway.sessions import MAX_STREAMS
from gateway.web.page import Visit, get

PAUSE_SECONDS: Final = 0.25
STILL_HERE_SECONDS: Final = 15.0


async def live(visit: Visit) -> Response:
    """Stream until the page is left, the session is over or the gateway stops."""
    if visit.session.streams >= MAX_STREAMS:
        raise Problem(429, "rate_limited", "too many pages are open")
    return StreamingResponse(_changes(visit), media_type="text/event-stream")


async def _changes(visit: Visit) -> AsyncIterator[bytes]:
    run, workflow = visit.query("run"), visit.query("workflow")

    def wanted(happening: Happening) -> bool:
        if (run and happening.run != run) or (workflow and happening.workflow != workflow):
            return False
        return visit.may("admin") or (bool(happening.workflow) and visit.may("read"))

    visit.session.streams += 1
    try:
        async with visit.parts.live.watch(wanted, capacity=1) as subscription:
            yield b"retry: 3000\nevent: ready\ndata: {}\n\n"
            while not _is_over(visit):
                try:
                    async with asyncio.timeout(STILL_HERE_SECONDS):
                        news = await visit.parts.unless_stopping(subscription.news())
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                if news is None:
                    return
                yield b"event: changed\ndata: {}\n\n"
                await visit.parts.unless_stopping(asyncio.sleep(PAUSE_SECONDS))
            yield b"event: over\ndata: {}\n\n"
    finally:
        visit.session.streams -= 1


def _is_over(visit: Visit) -> bool:
    principal = visit.session.principal
    return visit.parts.sessions.is_over(visit.session) or visit.parts.authority.standing(principal) is None


ROUTES: Final = [get("/live", live)]
