"""`/audit`: the audit log, filtered, with a cursor and a wait for more."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query

from gateway import trail
from gateway.http.access import Parts, Who
from gateway.http.models import AuditPage, Name, RunId
from gateway.http.problems import documented
from gateway.http.runs import MAX_WAIT_SECONDS

POLL_SECONDS: Final = 0.5

router: Final = APIRouter(prefix="/audit", tags=["audit"])
Word = Annotated[str, Query(max_length=96)]


@router.get("", response_model=AuditPage, responses=documented(401, 403, 422, 429, 503))
async def list_events(
    *,
    parts: Parts,
    who: Who,
    device: Name | None = None,
    workflow: Name | None = None,
    key: Name | None = None,
    receipt: RunId | None = None,
    run: RunId | None = None,
    wait_id: RunId | None = None,
    action: Word | None = None,
    result: Word | None = None,
    since_seconds: Annotated[float | None, Query(ge=0, le=10**9, description="nothing older than this")] = None,
    after: Annotated[str | None, Query(max_length=12_000, description="`next` of an earlier answer")] = None,
    limit: Annotated[int, Query(ge=1, le=trail.MAX_EVENTS)] = trail.MAX_EVENTS,
    wait: Annotated[float, Query(ge=0, le=MAX_WAIT_SECONDS, description="seconds to wait for one")] = 0,
) -> dict[str, Any]:
    """Read events, oldest first. With `wait`, answer as soon as there are some, or empty when the time is over."""
    who.must_be_operator("admin")
    store = parts.engine.store
    since = await store.now() - timedelta(seconds=since_seconds) if since_seconds is not None else None
    wanted = trail.Filter(
        device=device or "",
        workflow=workflow or "",
        key=key or "",
        receipt=receipt or "",
        run=run or "",
        wait=wait_id or "",
        action=action or "",
        result=result or "",
        since=since,
    )
    await parts.audit.written()
    end = parts.source.monotonic() + wait
    page = await trail.read(store, wanted, cursor=after, limit=limit)
    while not page.events and not page.more and parts.source.monotonic() < end and not parts.stopping.is_set():
        # Other instances write too: the store is asked, twice a second, from where the last look ended.
        await parts.unless_stopping(asyncio.sleep(min(POLL_SECONDS, max(0.0, end - parts.source.monotonic()))))
        page = await trail.read(store, wanted, cursor=page.cursor, limit=limit)
    return {"events": page.events, "next": page.cursor, "more": page.more}
