"""`/waits` and `/keys`: what waits for a signal, and which signals wait."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter

from gateway.http.access import Parts, Who
from gateway.http.models import KeyList, Name, WaitList
from gateway.http.paging import MAX_PAGE, AfterId, AfterKey, Limit, named, page
from gateway.http.problems import documented

router: Final = APIRouter(tags=["waits"])
_ERRORS: Final = documented(401, 422, 429, 503)


@router.get("/waits", response_model=WaitList, responses=_ERRORS)
async def list_waits(
    *,
    parts: Parts,
    who: Who,
    workflow: Name | None = None,
    key: Name | None = None,
    after: AfterId = None,
    limit: Limit = MAX_PAGE,
) -> dict[str, Any]:
    """List open waits with their deadlines, newest first; on the first page also all held signals.

    `damaged`, on the first page too, names records that cannot be read: a wait or a held signal may be missing for it.
    """
    found = await parts.engine.waits(workflow=workflow, key=key)
    readable = {kind: [it for it in listed if who.may_read(it["workflow"])] for kind, listed in found.items()}
    waits, following = page(readable.pop("waits"), named("wait"), after=after, limit=limit)
    # The others are not many: they come with the first page.
    return {"waits": waits, **{kind: [] if after else listed for kind, listed in readable.items()}, "next": following}


@router.get("/keys", response_model=KeyList, responses=_ERRORS)
async def list_keys(
    *, parts: Parts, who: Who, workflow: Name | None = None, after: AfterKey = None, limit: Limit = MAX_PAGE
) -> dict[str, Any]:
    """List declared keys: who holds each, and the last outcome."""
    readable = [key for key in await parts.engine.keys(workflow) if who.may_read(key["workflow"])]
    keys, following = page(readable, lambda key: f"{key['workflow']}/{key['key']}", after=after, limit=limit)
    return {"keys": keys, "next": following}
