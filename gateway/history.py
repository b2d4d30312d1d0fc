"""The audit log read backwards: what happened last, of all instances, newest first."""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

from engine import names
from engine.store.base import Record, Store
from gateway.trail import Filter, Found, days, entry_of, instances

MAX_LOOKED_AT: Final = 5_000
_CHUNK: Final = 200


@dataclass(slots=True)
class _Backwards:
    """One instance's events of one day, from the last to the first."""

    store: Store
    prefix: str
    floor: int = 0
    top: int = 0
    read: list[Record] = field(default_factory=list)

    async def begin(self) -> None:
        first = await self.store.list(self.prefix, limit=1)
        last = await self.store.last(self.prefix)
        if first and last is not None:
            self.floor, self.top = names.number_of(first[0].key) - 1, names.number_of(last.key)

    async def pop(self) -> Found | None:
        while not self.read and self.top > self.floor:
            low = max(self.floor, self.top - _CHUNK)
            page = await self.store.list(self.prefix, after=self.prefix + names.number(low), limit=self.top - low)
            self.read = [record for record in page if names.number_of(record.key) <= self.top]
            self.top = low
        return entry_of(self.read.pop()) if self.read else None


async def newest(store: Store, wanted: Filter, *, limit: int, look_at: int = MAX_LOOKED_AT) -> tuple[list[Found], bool]:
    """Give the newest events that are wanted, and whether all there are were looked at.

    It looks at `look_at` events at most: a rare match long ago is found by `trail.read` and a time to begin at.
    """
    found: list[Found] = []
    looked_at = 0
    async for entry in _merged(store):
        if wanted.since is not None and entry.at < wanted.since:
            return found, True
        if looked_at >= look_at or len(found) >= limit:
            return found, False
        looked_at += 1
        if wanted.matches(entry):
            found.append(entry)
    return found, True


async def _merged(store: Store) -> AsyncIterator[Found]:
    """Give all events by falling time, day by day; an instance's own order is kept."""
    for day in reversed([day async for day in days(store)]):
        heads: list[tuple[float, str, int, Found, _Backwards]] = []

        async def push(source: _Backwards) -> None:
            if (entry := await source.pop()) is not None:
                at = (-entry.at.timestamp(), entry.instance, -entry.seq)
                heapq.heappush(heads, (*at, entry, source))  # noqa: B023  used up within the day

        async for instance in instances(store, day):
            source = _Backwards(store, f"{names.AUDIT}{day}/{instance}/")
            await source.begin()
            await push(source)
        while heads:
            *_, entry, source = heapq.heappop(heads)
            yield entry
            await push(source)
