"""`/audit`: what happened, newest first, filtered and live; and all of it as JSON lines."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from starlette.responses import Response, StreamingResponse

from gateway import history, trail
from gateway.trail import Filter
from gateway.web.page import Visit, get

PAGE: Final = 100
MOST: Final = 1_000
FIELDS: Final = ("device", "workflow", "key", "receipt", "result", "action", "run")
_SHOWN: Final = (
    *("time", "instance", "seq", "action", "result", "principal", "workflow", "key", "step", "run", "receipt"),
    *("reason", "count", "door", "address"),
)
SINCE: Final[Mapping[str, timedelta | None]] = {
    "15min": timedelta(minutes=15),
    "1h": timedelta(hours=1),
    "24h": timedelta(days=1),
    "7d": timedelta(days=7),
    "": None,
}
_WORD: Final = re.compile(r"[A-Za-z0-9_.:*/+#?-]{0,96}")


async def audit(visit: Visit) -> Response:
    """Show the newest events that match."""
    visit.must("admin")
    given = _given(visit)
    wanted = await _filter(visit, given)
    show = visit.query("show")
    limit = min(MOST, max(PAGE, int(show))) if show.isdecimal() and len(show) <= len(str(MOST)) else PAGE
    await visit.parts.audit.written()
    found, complete = await history.newest(visit.parts.engine.store, wanted, limit=limit)
    return await visit.page(
        "audit.html",
        events=[_row(entry.view()) for entry in found],
        given=given,
        filtered=any(given.values()),
        spans={"15min": "15 minutes", "1h": "hour", "24h": "day", "7d": "week", "": "everything"},
        complete=complete,
        more=None if complete or limit >= MOST else f"?{_query(given, show=str(min(MOST, limit * 3)))}",
        export=f"/audit.jsonl?{_query(given)}",
    )


def _given(visit: Visit) -> dict[str, str]:
    """Take the filters that have the shape of what they are about; others find nothing anyway."""
    given = {name: visit.query(name) if _WORD.fullmatch(visit.query(name)) else "" for name in FIELDS}
    since = visit.query("since")
    return given | {"since": since if since in SINCE else ""}


def _query(given: Mapping[str, str], **more: str) -> str:
    return urlencode({name: value for name, value in {**given, **more}.items() if value})


async def _filter(visit: Visit, given: Mapping[str, str]) -> Filter:
    span = SINCE[given["since"]]
    since = await visit.parts.engine.store.now() - span if span is not None else None
    return Filter(
        since=since,
        device=given["device"],
        workflow=given["workflow"],
        key=given["key"],
        receipt=given["receipt"],
        result=given["result"],
        action=given["action"],
        run=given["run"],
    )


def _row(event: dict[str, Any]) -> dict[str, Any]:
    return dict.fromkeys(_SHOWN, "") | event


async def export(visit: Visit) -> Response:
    """Give all events that match, oldest first, one JSON object a line."""
    visit.must("admin")
    wanted = await _filter(visit, _given(visit))
    headers = {"content-disposition": 'attachment; filename="wayside-audit.jsonl"'}
    return StreamingResponse(_lines(visit, wanted), media_type="application/x-ndjson", headers=headers)


async def _lines(visit: Visit, wanted: Filter) -> AsyncIterator[bytes]:
    cursor: str | None = None
    more = True
    while more and not visit.parts.stopping.is_set():
        page = await trail.read(visit.parts.engine.store, wanted, cursor=cursor, limit=trail.MAX_EVENTS)
        cursor, more = page.cursor, page.more
        yield b"".join(msgspec.json.encode(event) + b"\n" for event in page.events)


ROUTES: Final = [get("/audit", audit), get("/audit.jsonl", export)]
