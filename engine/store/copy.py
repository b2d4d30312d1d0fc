"""Copy a store that nobody uses into an empty one, and compare the two record by record."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from engine.errors import BadInput, Conflict
from engine.store.base import Loadable, Record, Store

_PAGE: Final = 500
_LITTLE: Final = timedelta(seconds=1.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """What was copied: how many records, how many bytes of values, a digest over all of it, and the highest stamp."""

    records: int
    volume: int
    digest: str
    highest: datetime | None


async def copy(source: Store, target: Store, *, progress: Callable[[int], None] = lambda _: None) -> Copied:
    """Copy every record, with its stamp, and read all of both again; `progress` is told how many records are done.

    Raises `BadInput` when the target is not empty or cannot take stamps, and `Conflict` when afterwards the two differ:
    somebody used one of them meanwhile; or when the target's clock is behind the highest stamp, as a service's clock
    may be, which is then to be waited for.
    """
    if not isinstance(target, Loadable):
        raise BadInput("the store to copy into cannot take records with their stamps")
    if await target.list("", limit=1):
        raise BadInput("the store to copy into is not empty", hint="name an empty file, database, bucket or prefix")
    done = 0
    async for page in _pages(source):
        await target.load(page)
        done += len(page)
        progress(done)
    return await verify(source, target)


async def verify(source: Store, target: Store) -> Copied:
    """Compare two stores record by record, stamps included; raises `Conflict` at the first difference."""
    records, volume, highest = 0, 0, None
    digest = hashlib.sha256()
    theirs = _records(target)
    async for record in _records(source):
        copied = await anext(theirs, None)
        if copied != record:
            raise _different(record, copied)
        records += 1
        volume += len(record.value)
        highest = record.stored_at if highest is None else max(highest, record.stored_at)
        for part in (record.key.encode(), record.value, record.stored_at.isoformat().encode()):
            digest.update(len(part).to_bytes(4, "big") + part)
    if (extra := await anext(theirs, None)) is not None:
        raise Conflict(f"the copy has a record that the other store has not: {extra.key}", hint=_HINT)
    if highest is not None and (behind := await _behind(target, highest)):
        raise Conflict(
            f"the copy is complete, but its clock is {behind.total_seconds():.1f} s behind the latest record",
            hint="do not start a gateway on it before that time has passed",
        )
    return Copied(records=records, volume=volume, digest=digest.hexdigest(), highest=highest)


async def _behind(target: Store, highest: datetime) -> timedelta:
    """Tell by how much the target's clock is behind a stamp, once a little of it has been waited for.

    A service that stamps whole seconds is behind whatever was stored elsewhere just now.
    """
    behind = highest - await target.now()
    if timedelta() < behind <= _LITTLE:
        await asyncio.sleep(_LITTLE.total_seconds())
        behind = highest - await target.now()
    return max(behind, timedelta())


_HINT: Final = "stop every gateway that uses either store, empty the copy, and copy again"


def _different(record: Record, copied: Record | None) -> Conflict:
    if copied is None or copied.key > record.key:
        return Conflict(f"the copy lacks the record {record.key}", hint=_HINT)
    if copied.key < record.key:
        return Conflict(f"the copy has a record that the other store has not: {copied.key}", hint=_HINT)
    what = "value" if copied.value != record.value else "time"
    return Conflict(f"the record {record.key} has another {what} in the copy", hint=_HINT)


async def _pages(store: Store) -> AsyncIterator[list[Record]]:
    after = None
    while page := await store.list("", after=after, limit=_PAGE):
        yield page
        after = page[-1].key


async def _records(store: Store) -> AsyncIterator[Record]:
    async for page in _pages(store):
        for record in page:
            yield record
