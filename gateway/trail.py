"""Reading the audit log: every instance's events as one list in the order of their times, page by page, and live.

A cursor says how far each instance's events of the last days have been read, so that one who follows misses nothing,
also of an instance whose event was given an earlier time and became visible later.
"""

from __future__ import annotations

import asyncio
import base64
import heapq
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Literal

import msgspec

from engine import names
from engine.clock import rfc3339
from engine.errors import BadInput
from engine.records import Unreadable
from engine.store.base import Record, Store
from gateway.audit import FAR, AuditEvent, read_event

FOLLOW_SECONDS: Final = 0.5
# What one page looks at at most: a rare match in a long log takes several pages, never one long pause.
MAX_LOOKED_AT: Final = 10_000
MAX_PAGE: Final = 1_000
_READ: Final = 250
_DAYS_KEPT: Final = 2

# day -> instance -> the number of the last event that was read
Positions = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class Entry:
    """One stored event, or one that is there and cannot be read (`event` is None)."""

    instance: str
    seq: int
    at: datetime
    event: AuditEvent | None

    def view(self) -> dict[str, object]:
        """Give the event as JSON-ready fields; those that say nothing are left out."""
        shown: dict[str, object] = {"time": rfc3339(self.at), "instance": self.instance, "seq": self.seq}
        if self.event is None:
            return shown | {"action": "audit.unreadable"}
        fields = msgspec.structs.asdict(self.event)
        for name in ("v", "at", "nonce", "prev"):
            del fields[name]
        if fields["count"] == 1:
            del fields["count"]
        return shown | {name: value for name, value in fields.items() if value}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which events; what is None is not asked for. `action` also matches by its head: `signal`, `signal.refused`."""

    since: datetime | None = None
    until: datetime | None = None
    device: str | None = None
    user: str | None = None
    workflow: str | None = None
    key: str | None = None
    wait: str | None = None
    receipt: str | None = None
    run: str | None = None
    action: str | None = None
    result: str | None = None

    def matches(self, entry: Entry) -> bool:
        """Tell whether an event is wanted; one that cannot be read always is, within the time."""
        if (self.since is not None and entry.at < self.since) or (self.until is not None and entry.at >= self.until):
            return False
        event = entry.event
        if event is None:
            return True
        plain = (self.workflow, self.key, self.wait, self.receipt, self.run, self.result)
        found = (event.workflow, event.key, event.wait, event.receipt, event.run, event.result)
        return (
            all(wanted is None or wanted == value for wanted, value in zip(plain, found, strict=True))
            and (self.device is None or _is_about("device", self.device, event))
            and (self.user is None or _is_about("user", self.user, event))
            and (self.action is None or f"{event.action}.".startswith(f"{self.action}."))
        )


def _is_about(kind: Literal["device", "user"], name: str, event: AuditEvent) -> bool:
    """Tell whether somebody did it, or it was done to them."""
    return f"{kind}:{name}" in (event.principal, event.result)


@dataclass(frozen=True, slots=True)
class Page:
    """Some events, oldest first. `cursor` goes on behind them; `more` says whether there is more already."""

    entries: tuple[Entry, ...]
    cursor: str
    more: bool


@dataclass(slots=True)
class _Source:
    """The events of one instance on one day, read a few at a time."""

    store: Store
    prefix: str
    instance: str
    seq: int
    read: list[Record] = field(default_factory=list)

    async def peek(self) -> Entry | None:
        if not self.read:
            after = self.prefix + names.number(self.seq)
            self.read = await self.store.list(self.prefix, after=after, limit=_READ)
            self.read.reverse()
        return _entry(self.read[-1]) if self.read else None

    def pop(self) -> None:
        self.seq = names.number_of(self.read.pop().key)


class Trail:
    """Finds events in a store; any number of instances may be writing."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def page(self, wanted: Wanted, *, after: str | None = None, limit: int = 200) -> Page:
        """Read the next events that are wanted, at most `limit` of them; raises `BadInput` for a broken cursor."""
        positions = _parse(after) if after else {}
        first = min(positions) if positions else (f"{wanted.since:%Y%m%d}" if wanted.since is not None else "")
        found: list[Entry] = []
        looked_at = 0
        full = False
        async for day in self._days(first):
            read = positions.setdefault(day, {})
            async for entry in self._merged(day, read, wanted.since):
                looked_at += 1
                read[entry.instance] = entry.seq
                if wanted.matches(entry):
                    found.append(entry)
                full = len(found) >= min(limit, MAX_PAGE) or looked_at >= MAX_LOOKED_AT
                if full:
                    break
            if full:
                break
        return Page(tuple(found), _cursor(positions), full)

    async def follow(
        self, wanted: Wanted, *, after: str | None = None, every_seconds: float = FOLLOW_SECONDS
    ) -> AsyncIterator[Page]:
        """Give pages for ever as events are stored; an empty one each time that there is nothing new."""
        while True:
            page = await self.page(wanted, after=after)
            after = page.cursor
            yield page
            if not page.more:
                await asyncio.sleep(every_seconds)

    async def end(self) -> str:
        """Give the cursor behind everything that is stored now."""
        positions: Positions = {}
        async for day in self._days(""):
            positions[day] = {}
            async for instance in self._instances(day):
                top = await self._store.last(_prefix(day, instance))
                if top is not None:
                    positions[day][instance] = names.number_of(top.key)
            positions = _recent(positions)
        return _cursor(positions)

    async def retain(self, days: int) -> int:
        """Delete the events of whole days that are more than `days` old; return how many."""
        now = await self._store.now(until=FAR)
        oldest = f"{now - timedelta(days=days):%Y%m%d}"
        deleted = 0
        async for day in self._days(""):
            if day >= oldest:
                break
            while page := await self._store.list(f"{names.AUDIT}{day}/", limit=MAX_PAGE):
                await self._store.delete([record.key for record in page])
                deleted += len(page)
        return deleted

    async def _days(self, first: str) -> AsyncIterator[str]:
        after = names.AUDIT + first
        while page := await self._store.list(names.AUDIT, after=after, limit=1):
            day = page[0].key.split("/")[1]
            yield day
            after = f"{names.AUDIT}{day}/{names.HIGHEST}"

    async def _instances(self, day: str) -> AsyncIterator[str]:
        prefix = f"{names.AUDIT}{day}/"
        after = prefix
        while page := await self._store.list(prefix, after=after, limit=1):
            instance = page[0].key.split("/")[2]
            yield instance
            after = f"{prefix}{instance}/{names.HIGHEST}"

    async def _merged(self, day: str, read: dict[str, int], since: datetime | None) -> AsyncIterator[Entry]:
        """Give a day's events that have not been read, by time; an instance's own order is kept."""
        heads: list[tuple[datetime, str, int, Entry, _Source]] = []
        async for instance in self._instances(day):
            start = read[instance] if instance in read else await self._before(day, instance, since)
            source = _Source(self._store, _prefix(day, instance), instance, start)
            if (entry := await source.peek()) is not None:
                heapq.heappush(heads, (entry.at, instance, entry.seq, entry, source))
        while heads:
            _, instance, _, entry, source = heapq.heappop(heads)
            source.pop()
            yield entry
            if (following := await source.peek()) is not None:
                heapq.heappush(heads, (following.at, instance, following.seq, following, source))

    async def _before(self, day: str, instance: str, since: datetime | None) -> int:
        """Find the number of the last event before `since`: its events are in the order of their times."""
        prefix = _prefix(day, instance)
        first = await self._store.list(prefix, limit=1)
        top = await self._store.last(prefix)
        if since is None or not first or top is None or first[0].stored_at >= since:
            return 0
        low, high = names.number_of(first[0].key), names.number_of(top.key)
        if top.stored_at < since:
            return high
        while high - low > 1:  # the event `low` is before `since`, and `high` is not
            middle = await self._store.list(prefix, after=prefix + names.number((low + high) // 2 - 1), limit=1)
            if middle[0].stored_at < since:
                low = names.number_of(middle[0].key)
            else:
                high = (low + high) // 2
        return low


def _prefix(day: str, instance: str) -> str:
    return f"{names.AUDIT}{day}/{instance}/"


def _entry(record: Record) -> Entry:
    found = read_event(record)
    _, _, instance, seq = record.key.split("/")
    return Entry(instance, int(seq), record.stored_at, None if isinstance(found, Unreadable) else found.value)


def _recent(positions: Positions) -> Positions:
    """Keep the last days that events are still being written to."""
    return {day: positions[day] for day in sorted(positions)[-_DAYS_KEPT:]}


def _cursor(positions: Positions) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(_recent(positions))).rstrip(b"=").decode()


def _parse(cursor: str) -> Positions:
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        return msgspec.json.decode(text, type=Positions)
    except (ValueError, msgspec.DecodeError):
        raise BadInput("this cursor is none of the audit log's", hint="leave it out to start anew") from None
