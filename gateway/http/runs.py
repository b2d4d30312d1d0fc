"""`/runs`: how runs stand, their logs, and what an operator does to them."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from gateway.http.access import Caller, Parts, Who, not_found
from gateway.http.models import (
    Done,
    EventPage,
    Name,
    Removed,
    RemoveOld,
    Retry,
    RunId,
    RunPage,
    RunStatus,
    RunView,
)
from gateway.http.paging import AfterId
from gateway.http.problems import documented
from gateway.http.streaming import ENDED, resumed_after, stream_events, wants_stream
from gateway.http.streaming import MEDIA_TYPE as STREAM
from gateway.services import Services

MAX_WAIT_SECONDS: Final = 60.0
MAX_PAGE: Final = 200
_STREAMED: Final[dict[int | str, dict[str, Any]]] = {200: {"content": {STREAM: {"schema": {"type": "string"}}}}}

router: Final = APIRouter(prefix="/runs", tags=["runs"])
Run = Annotated[RunId, Path(description="the run's id")]
_ERRORS: Final = documented(401, 403, 404, 409, 422, 429, 503)


@router.get("", response_model=RunPage, responses=documented(401, 422, 429, 503))
async def list_runs(
    *,
    parts: Parts,
    who: Who,
    workflow: Name | None = None,
    status: RunStatus | None = None,
    after: AfterId = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 50,
) -> dict[str, Any]:
    """List runs, newest first: those of workflows that the caller may read.

    A page is full while more follow, unless a thousand runs in a row had to be looked at for it: go on with `next`
    until it is null.
    """
    if workflow is not None and not who.may_read(workflow):
        return {"runs": [], "next": None}
    runs, following = await parts.engine.runs(
        workflow=workflow, status=status, after=after or None, limit=limit, readable=who.may_read
    )
    return {"runs": runs, "next": following}


@router.post("/gc", response_model=Removed, responses=documented(401, 403, 413, 422, 429, 503))
async def remove_old(body: RemoveOld, parts: Parts, who: Who) -> dict[str, Any]:
    """Remove runs that ended longer ago than that."""
    who.must_be_operator("admin")
    return {"runs": await parts.engine.gc(body.older_than_seconds, by=who.name)}


@router.get("/{run}", response_model=RunView, responses=_ERRORS)
async def show_run(run: Run, parts: Parts, who: Who) -> dict[str, Any]:
    """Show a run's jobs and steps."""
    return await _readable(parts, who, run)


@router.get("/{run}/events", response_model=EventPage, responses=_STREAMED | _ERRORS)
async def run_events(
    *,
    request: Request,
    run: Run,
    parts: Parts,
    who: Who,
    after: Annotated[int, Query(ge=0, description="the number of the last event that is known")] = 0,
    wait: Annotated[float, Query(ge=0, le=MAX_WAIT_SECONDS, description="seconds to wait for one")] = 0,
) -> dict[str, Any] | Response:
    """Read a run's log. With `wait`, answer as soon as there is more, or empty when the time is over.

    With `Accept: text/event-stream`, events are sent as they come until the run has ended.
    """
    # How it stands is read first: what ends a run is then among the events, or among those of the next call.
    ended = (await _readable(parts, who, run))["status"] in ENDED
    if wants_stream(request):
        return stream_events(request, parts, who, run, resumed_after(request, after))
    events = await parts.engine.events(run, after)
    if not events and wait and not ended:
        await parts.unless_stopping(parts.engine.wait_change(run, after, wait))
        events = await parts.engine.events(run, after)
    return {"events": events, "next": events[-1]["seq"] if events else after, "ended": ended}


@router.post("/{run}/cancel", response_model=Done, responses=_ERRORS)
async def cancel_run(run: Run, parts: Parts, who: Who) -> dict[str, Any]:
    """Stop a run; its open waits are closed."""
    await _controllable(parts, who, run)
    await parts.engine.cancel(run, by=who.name)
    return {"ok": True}


@router.post("/{run}/retry", response_model=Done, responses=_ERRORS)
async def retry_run(run: Run, parts: Parts, who: Who, body: Retry | None = None) -> dict[str, Any]:
    """Run the failed steps again, or one step and what depends on it."""
    await _controllable(parts, who, run)
    await parts.engine.retry(run, step=body.step if body else None, by=who.name)
    return {"ok": True}


@router.post("/{run}/resume", response_model=Done, responses=_ERRORS)
async def resume_run(run: Run, parts: Parts, who: Who) -> dict[str, Any]:
    """Look at one run at once, as the sweep does for all."""
    await _controllable(parts, who, run)
    await parts.engine.resume(run)
    return {"ok": True}


@router.delete("/{run}", response_model=Done, responses=_ERRORS)
async def delete_run(run: Run, parts: Parts, who: Who) -> dict[str, Any]:
    """Remove a run that has ended, and what belongs to it; complete after the removal grace."""
    who.must_be_operator("admin")
    await parts.engine.delete(run, by=who.name)
    return {"ok": True}


async def _readable(parts: Services, who: Caller, run: str) -> dict[str, Any]:
    """Read a run that the caller may see; for everybody else it is not there."""
    found: dict[str, Any] = await parts.engine.run(run)
    if not who.may_read(found["workflow"]):
        raise not_found()
    return found


async def _controllable(parts: Services, who: Caller, run: str) -> None:
    who.must_be_operator("run")
    await parts.engine.run(run)
