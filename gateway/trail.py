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
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, Literal

import msgspec

from engine import names
from engine.clock import rfc3339
from engine.errors import BadInput
from engine.records import Unreadable
from engine.store.base import Record, Store
from gateway.audit import AuditEvent, read_event

FOLLOW_SECONDS: Final = 0.5
# What one page looks at at most: a rare match in a long log takes several pages, never one long pause.
MAX_LOOKED_AT: Final = 10_000
MAX_EVENTS: Final = 1_000
_READ: Final = 250
_DAYS_KEPT: Final = 2
_UNSHOWN: Final = frozenset({"v", "at", "nonce", "prev"})

# day -> instance -> the number of the last event that was read
Positions = dict[
    Annotated[str, msgspec.Meta(pattern=r"^\d{8}\Z")],
    dict[Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{1,64}\Z")], Annotated[int, msgspec.Meta(ge=0)]],
]


@dataclass(frozen=True, slots=True)
class Found:
    """One stored event, or one that is there and cannot be read (`event` is None)."""

    instance: str
    seq: int
    at: datetime
    event: AuditEvent | None

    def view(self) -> dict[str, object]:
        """Give the event as JSON-ready fields; those that say nothing are left out."""
        shown: dict[str, object] = {"time": rfc3339(self.at), "instance": self.instance, "seq": self.seq}
        if self.event is None:
            return shown | {"action": "audit.unreadable", "result": "", "principal": ""}
        fields = msgspec.structs.asdict(self.event)
        always = {name: fields[name] for name in ("action", "result", "principal")}
        said = {name: value for name, value in fields.items() if value and name not in _UNSHOWN}
        if self.event.count == 1:
            del said["count"]
        return shown | always | said


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which events; what is "" or None is not asked for. `action` matches by its head too: `signal` is all of them."""

    since: datetime | None = None
    until: datetime | None = None
    device: str = ""
    user: str = ""
    workflow: str = ""
    key: str = ""
    wait: str = ""
    receipt: str = ""
    run: str = ""
    action: str = ""
    result: str = ""

    def matches(self, entry: Found) -> bool:
        """Tell whether an event is wanted; one that cannot be read always is, within the time."""
        if (self.since is not None and entry.at < self.since) or (self.until is not None and entry.at >= self.until):
            return False
        event = entry.event
        if event is None:
            return True
        plain = (self.workflow, self.key, self.wait, self.receipt, self.run, self.result)
        found = (event.workflow, event.key, event.wait, event.receipt, event.run, event.result)
        return (
            all(wanted in ("", value) for wanted, value in zip(plain, found, strict=True))
            and (not self.device or _is_about("device", self.device, event))
            and (not self.user or _is_about("user", self.user, event))
            and (not self.action or f"{event.action}.".startswith(f"{self.action}."))
        )


def _is_about(kind: Literal["device", "user"], name: str, event: AuditEvent) -> bool:
    """Tell whether somebody did it, or it was done to them."""
    return f"{kind}:{name}" in (event.principal, event.result)


@dataclass(frozen=True, slots=True)
class Page:
    """Some events, oldest first. `cursor` goes on behind them; `more` says whether there may be more already."""

    entries: tuple[Found, ...]
    cursor: str
    more: bool

    @property
    def events(self) -> list[dict[str, object]]:
        """Give the events as JSON-ready fields."""
        return [entry.view() for entry in self.entries]


@dataclass(slots=True)
class _Source:
    """The events of one instance on one day, read a few at a time."""

    store: Store
    prefix: str
    instance: str
    seq: int
    read: list[Record] = field(default_factory=list)

    async def peek(self) -> Found | None:
        if not self.read:
            after = self.prefix + names.number(self.seq)
            self.read = await self.store.list(self.prefix, after=after, limit=_READ)
            self.read.reverse()
        return _entry(self.read[-1]) if self.read else None

    def pop(self) -> None:
        self.seq = names.number_of(self.read.pop().key)


async def read(store: Store, wanted: Filter, *, cursor: str | None = None, limit: int = 200, unless: str = "") -> Page:
    """Read the next events that are wanted, at most `limit` of them; raises `BadInput` for a broken cursor.

    The events of the instance `unless` are left out, and cost nothing.
    """
    positions = _parse(cursor) if cursor else {}
    first = min(positions) if positions else _first_day(wanted.since)
    found: list[Found] = []
    looked_at = 0
    full = False
    async for day in _days(store, first):
        done = positions.setdefault(day, {})
        async for entry in _merged(store, day, done, wanted.since, unless):
            looked_at += 1
            done[entry.instance] = entry.seq
            if wanted.matches(entry):
                found.append(entry)
            full = len(found) >= min(limit, MAX_EVENTS) or looked_at >= MAX_LOOKED_AT
            if full:
                break
        if full:
            break
    return Page(tuple(found), _cursor(positions), full)


async def follow(
    store: Store, wanted: Filter, *, cursor: str | None = None, every_seconds: float = FOLLOW_SECONDS
) -> AsyncIterator[Page]:
    """Give pages for ever as events are stored; an empty one each time that there is nothing new."""
    while True:
        page = await read(store, wanted, cursor=cursor)
        cursor = page.cursor
        yield page
        if not page.more:
            await asyncio.sleep(every_seconds)


async def end(store: Store) -> str:
    """Give the cursor behind everything that is stored now."""
    positions: Positions = {}
    async for day in _days(store, ""):
        positions[day] = {}
        async for instance in _instances(store, day):
            top = await store.last(_prefix(day, instance))
            if top is not None:
                positions[day][instance] = names.number_of(top.key)
        positions = _recent(positions)
    return _cursor(positions)


def days(store: Store) -> AsyncIterator[str]:
    """Name the days that have events, the first one first."""
    return _days(store, "")


def instances(store: Store, day: str) -> AsyncIterator[str]:
    """Name the instances that have events on a day."""
    return _instances(store, day)


def entry_of(record: Record) -> Found:
    """Read a record of the audit log, damaged or not."""
    return _entry(record)


async def _days(store: Store, first: str) -> AsyncIterator[str]:
    after = names.AUDIT + first
    while page := await store.list(names.AUDIT, after=after, limit=1):
        day = page[0].key.split("/")[1]
        yield day
        after = f"{names.AUDIT}{day}/{names.HIGHEST}"


async def _instances(store: Store, day: str) -> AsyncIterator[str]:
    prefix = f"{names.AUDIT}{day}/"
    after = prefix
    while page := await store.list(prefix, after=after, limit=1):
        instance = page[0].key.split("/")[2]
        yield instance
        after = f"{prefix}{instance}/{names.HIGHEST}"


async def _merged(
    store: Store, day: str, done: dict[str, int], since: datetime | None, unless: str = ""
) -> AsyncIterator[Found]:
    """Give a day's events that have not been read, by time; an instance's own order is kept."""
    heads: list[tuple[datetime, str, int, Found, _Source]] = []
    async for instance in _instances(store, day):
        if instance == unless:
            continue
        start = done[instance] if instance in done else await _before(store, day, instance, since)
        source = _Source(store, _prefix(day, instance), instance, start)
        if (entry := await source.peek()) is not None:
            heapq.heappush(heads, (entry.at, instance, entry.seq, entry, source))
    while heads:
        _, instance, _, entry, source = heapq.heappop(heads)
        source.pop()
        yield entry
        if (following := await source.peek()) is not None:
            heapq.heappush(heads, (following.at, instance, following.seq, following, source))


async def _before(store: Store, day: str, instance: str, since: datetime | None) -> int:
    """Find the number of the last event before `since`: its events are in the order of their times."""
    prefix = _prefix(day, instance)
    first = await store.list(prefix, limit=1)
    top = await store.last(prefix)
    if since is None or not first or top is None or first[0].stored_at >= since:
        return 0
    low, high = names.number_of(first[0].key), names.number_of(top.key)
    if top.stored_at < since:
        return high
    while high - low > 1:  # the event `low` is before `since`, and `high` is not
        middle = await store.list(prefix, after=prefix + names.number((low + high) // 2 - 1), limit=1)
        if middle[0].stored_at < since:
            low = names.number_of(middle[0].key)
        else:
            high = (low + high) // 2
    return low


def _first_day(since: datetime | None) -> str:
    """Name the first day to look at: an event is filed under the day on which its batch was begun."""
    return f"{since.astimezone(UTC) - timedelta(minutes=1):%Y%m%d}" if since is not None else ""


def _prefix(day: str, instance: str) -> str:
    return f"{names.AUDIT}{day}/{instance}/"


def _entry(record: Record) -> Found:
    found = read_event(record)
    _, _, instance, seq = record.key.split("/")
    return Found(instance, int(seq), record.stored_at, None if isinstance(found, Unreadable) else found.value)


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
