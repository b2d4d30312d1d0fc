"""Keeping the audit log for so many days, and vouching for the ends of chains whose instances are gone.

Whole days go, and of every chain that loses events the last one lost is noted first, with its digest: what is left of
the chain can still be checked. Any number of instances may do this at any time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from engine import names
from engine.errors import StoreUnavailable
from engine.records import Unreadable
from engine.store.base import Record, Store
from gateway import trail
from gateway.audit import FAR, RETAINED, WITNESSED, Audit, Entry, digest, read_event
from gateway.chain import Head, heads, parse_head

HOUR_SECONDS: Final = 3_600.0
_PAGE: Final = 500
_WITNESSED_DAYS: Final = 2


@dataclass(slots=True)
class Retention:
    """The task of one instance. `days` 0 keeps everything; `told` hears how many events were removed."""

    store: Store
    audit: Audit
    days: int
    told: Callable[[int], None] = lambda _: None
    _witnessed: set[tuple[str, int]] | None = None

    async def run(self) -> None:
        """Do it for ever, once an hour: most of the time there is nothing to do."""
        while True:
            try:
                await self.witness()
                if self.days and (removed := await self.retain()):
                    self.told(removed)
            except StoreUnavailable:
                pass
            await asyncio.sleep(HOUR_SECONDS)

    # -- ends of chains ----------------------------------------------------------------------------------------------

    async def witness(self) -> int:
        """Note the ends of the chains of the last days whose instances beat no more; return how many are new."""
        living = await heads(self.store)
        if self._witnessed is None:
            self._witnessed = await self._noted()
        tops: dict[str, Record] = {}
        for day in await self._last_days():
            async for instance in trail.instances(self.store, day):
                top = await self.store.last(f"{names.AUDIT}{day}/{instance}/")
                if top is not None and instance not in living and instance != self.audit.instance:
                    tops[instance] = top
        new = 0
        for instance, top in tops.items():
            seq = names.number_of(top.key)
            if (instance, seq) not in self._witnessed:
                self._witnessed.add((instance, seq))
                self.audit.add(_note(WITNESSED, instance, top))
                new += 1
        await self.audit.written()
        return new

    async def _last_days(self) -> list[str]:
        return [day async for day in trail.days(self.store)][-_WITNESSED_DAYS:]

    async def _noted(self) -> set[tuple[str, int]]:
        """Read what others have noted in the last days, so that it is noted once."""
        noted: set[tuple[str, int]] = set()
        for day in await self._last_days():
            async for record in _records(self.store, day):
                found = read_event(record)
                if isinstance(found, Unreadable) or found.value.action != WITNESSED:
                    continue
                if (head := parse_head(found.value.result, found.value.reason)) is not None:
                    noted.add((head.instance, head.seq))
        return noted

    # -- old days ----------------------------------------------------------------------------------------------------

    async def retain(self) -> int:
        """Remove the days that are older than `days`, the oldest first; return how many events went."""
        now = await self.store.now(until=FAR)
        oldest = f"{now - timedelta(days=self.days):%Y%m%d}"
        old = [day async for day in trail.days(self.store) if day < oldest]
        removed = 0
        for day in old:
            removed += await self._remove(day)
        return removed

    async def _remove(self, day: str) -> int:
        tops: dict[str, Record] = {}
        kept: dict[str, Head] = {}
        keys: list[str] = []
        async for record in _records(self.store, day):
            keys.append(record.key)
            tops[record.key.split("/")[2]] = record
            found = read_event(record)
            if isinstance(found, Unreadable) or found.value.action != RETAINED:
                continue
            # A note that goes is written again, unless a newer one takes its place below.
            if (head := parse_head(found.value.result, found.value.reason)) is not None:
                kept[head.instance] = head
        living = await heads(self.store)
        for instance, head in kept.items():
            if instance not in tops and (instance in living or await self._goes_on(instance, day)):
                self.audit.add(Entry(action=RETAINED, result=instance, reason=f"{head.day}:{head.seq}:{head.digest}"))
        for instance, top in tops.items():
            self.audit.add(_note(RETAINED, instance, top))
        # Noted durably before anything goes: a crash in between costs a second note.
        await self.audit.written()
        for start in range(0, len(keys), _PAGE):
            await self.store.delete(keys[start : start + _PAGE])
        return len(keys)

    async def _goes_on(self, instance: str, day: str) -> bool:
        async for later in trail.days(self.store):
            if later > day and await self.store.last(f"{names.AUDIT}{later}/{instance}/") is not None:
                return True
        return False


async def _records(store: Store, day: str) -> AsyncIterator[Record]:
    prefix = f"{names.AUDIT}{day}/"
    after: str | None = None
    while page := await store.list(prefix, after=after, limit=_PAGE):
        for record in page:
            yield record
        after = page[-1].key


def _note(action: str, instance: str, top: Record) -> Entry:
    day, seq = top.key.split("/")[1], names.number_of(top.key)
    return Entry(action=action, result=instance, reason=f"{day}:{seq}:{digest(top.value)}")
