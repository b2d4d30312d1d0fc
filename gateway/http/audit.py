"""`/audit`: the audit log, filtered, with a cursor and a wait for more."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query

from gateway import story, trail
from gateway.chain import verify
from gateway.http.access import Parts, Who
from gateway.http.models import MAX_AGE_SECONDS, AuditPage, ChainCheck, Name, RunId, StoryView
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
    since_seconds: Annotated[
        float | None, Query(ge=0, le=MAX_AGE_SECONDS, description="nothing older than this")
    ] = None,
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


@router.get("/verify", response_model=ChainCheck, responses=documented(401, 403, 422, 429, 503))
async def verify_chains(parts: Parts, who: Who) -> dict[str, Any]:
    """Check that every event of every instance is there, as it was written and in its place. Reads the whole log."""
    who.must_be_operator("admin")
    await parts.audit.written()
    found = await verify(parts.engine.store)
    flaws = [{"kind": it.kind, "instance": it.instance, "seq": it.seq, "text": it.text} for it in found.flaws]
    return {
        "ok": found.ok,
        "events": found.events,
        "chains": found.chains,
        "flaws": flaws,
        "unvouched": list(found.unvouched),
    }


@router.get("/why", response_model=StoryView, responses=documented(401, 403, 404, 422, 429, 503))
async def tell_why(
    parts: Parts,
    who: Who,
    about: Annotated[str, Query(min_length=1, max_length=129, description="a receipt, a run, or workflow/key")],
    since_seconds: Annotated[float | None, Query(ge=0, le=MAX_AGE_SECONDS, description="look back this far")] = None,
) -> dict[str, Any]:
    """Tell the story of a signal, a run or a key in order and in words, and why nothing came of it if nothing did."""
    who.must_be_operator("admin")
    return (await story.tell(parts, about, seconds=since_seconds)).view()
