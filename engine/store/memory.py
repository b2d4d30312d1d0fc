"""A store in memory, for tests and for the interleaving explorer: deterministic, with a clock to set.

No basic operation needs an event loop: a coroutine over this store can be driven by hand, one store operation a step.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from engine.clock import SystemSource, wall_clock
from engine.store.base import Record
from engine.store.keys import check_item, check_items, check_key, check_range, range_end

BeforeOperation = Callable[[str, str], Awaitable[None]]


class Clock(Protocol):
    """What stamps the records of a `MemoryStore`."""

    def now(self) -> datetime:
        """Read the clock; it never goes back."""
        ...


class ManualClock:
    """A clock that stands still until it is advanced."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = start

    def now(self) -> datetime:
        return self._now

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass; none of them negative, for a store's clock never goes back."""
        assert seconds >= 0, "a store's clock never goes back"
        self._now += timedelta(seconds=seconds)

    def set(self, now: datetime) -> None:
        """Put the clock at `now`, also backwards: for putting a store back to a snapshot, with its time."""
        self._now = now


class RunningClock:
    """A clock that starts at the host's wall clock and runs on its monotonic one."""

    def __init__(self) -> None:
        self._source = SystemSource()
        self._started_at = wall_clock()
        self._started = self._source.monotonic()

    def now(self) -> datetime:
        return self._started_at + timedelta(seconds=self._source.monotonic() - self._started)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a store held at one moment, with its keys in order, and what its clock said."""

    records: dict[str, Record]
    keys: tuple[str, ...]
    at: datetime


class _Shelf:
    """What the handles of one store share: the records, how often they changed, and who waits for that."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.records: dict[str, Record] = {}
        self.keys: list[str] = []
        self.writes = 0
        self.waiters: dict[asyncio.Event, MemoryStore] = {}

    def wrote(self, by: MemoryStore) -> None:
        self.writes += 1
        for waiter, handle in self.waiters.items():
            if handle is not by:
                waiter.set()


class MemoryStore:
    """Write-once records in memory.

    `before_operation`, when set, is awaited once before each operation (`create`, `get`, `last`, `list`, `delete`,
    `now`) with the operation's name and its key or prefix, and once for each item of `create_all` (as `create`) and
    for each key of `delete`. Nothing else is awaited: between two of these calls everything happens at once. An
    exception that it raises is a crash before that operation.
    """

    def __init__(self, clock: Clock | None = None, *, before_operation: BeforeOperation | None = None) -> None:
        self._shelf = _Shelf(clock or ManualClock())
        self.before_operation = before_operation
        self._own_writes = 0
        self._foreign_writes_seen = 0

    @property
    def clock(self) -> Clock:
        """The clock that stamps the records."""
        return self._shelf.clock

    async def create(self, key: str, value: bytes) -> Record:
        check_item(key, value)
        await self._step("create", key)
        return self._create(key, value)

    async def create_all(self, items: Sequence[tuple[str, bytes]]) -> list[Record]:
        check_items(items)
        stored = []
        for key, value in items:
            await self._step("create", key)
            stored.append(self._create(key, value))
        return stored

    async def load(self, records: Sequence[Record]) -> None:
        """Store records with the stamps that they bear elsewhere, without a step."""
        for record in records:
            check_item(record.key, record.value)
            if record.key not in self._shelf.records:
                self._shelf.records[record.key] = record
                insort(self._shelf.keys, record.key)
        self._wrote()

    async def get(self, key: str) -> Record | None:
        check_key(key)
        await self._step("get", key)
        return self._shelf.records.get(key)

    async def last(self, prefix: str) -> Record | None:
        check_range(prefix, None, None)
        await self._step("last", prefix)
        keys = self._shelf.keys
        start, end = self._bounds(prefix, None)
        return self._shelf.records[keys[end - 1]] if start < end else None

    async def list(self, prefix: str, *, after: str | None = None, limit: int | None = None) -> list[Record]:
        check_range(prefix, after, limit)
        await self._step("list", prefix)
        start, end = self._bounds(prefix, after)
        if limit is not None:
            end = min(end, start + limit)
        return [self._shelf.records[key] for key in self._shelf.keys[start:end]]

    async def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            check_key(key)
            await self._step("delete", key)
            self._delete(key)

    async def now(self, until: datetime | None = None) -> datetime:  # noqa: ARG002 - nothing here is ever in flight
        await self._step("now", "")
        return self._shelf.clock.now()

    async def changed(self) -> None:
        """Return when another handle of this store (`peer`) wrote since the last call. Needs an event loop."""
        if self._foreign_writes() == self._foreign_writes_seen:
            waiter = asyncio.Event()
            self._shelf.waiters[waiter] = self
            try:
                await waiter.wait()
            finally:
                del self._shelf.waiters[waiter]
        self._foreign_writes_seen = self._foreign_writes()

    async def close(self) -> None:
        """Do nothing: the records last as long as a handle to them does."""

    def peer(self) -> MemoryStore:
        """Make another handle to the same records, as another process would have; it starts without a hook."""
        peer = MemoryStore(self._shelf.clock)
        peer._shelf = self._shelf
        peer._foreign_writes_seen = self._shelf.writes
        return peer

    def copy(self, clock: Clock | None = None) -> MemoryStore:
        """Make an independent store that holds the same now; on a clock that stands at the same time, or on `clock`."""
        copy = MemoryStore(clock or ManualClock(self._shelf.clock.now()), before_operation=self.before_operation)
        copy._shelf.records = self._shelf.records.copy()
        copy._shelf.keys = self._shelf.keys.copy()
        return copy

    def snapshot(self) -> Snapshot:
        """Take down what the store holds and what its clock says; the cost is that of copying a dict and a list."""
        return Snapshot(self._shelf.records.copy(), tuple(self._shelf.keys), self._shelf.clock.now())

    def restore(self, snapshot: Snapshot) -> None:
        """Put every handle back to `snapshot`, and a `ManualClock` with them."""
        self._shelf.records = snapshot.records.copy()
        self._shelf.keys = [*snapshot.keys]
        if isinstance(self._shelf.clock, ManualClock):
            self._shelf.clock.set(snapshot.at)

    def items(self) -> tuple[Record, ...]:
        """Read every record, in key order, without a step."""
        return tuple(self._shelf.records[key] for key in self._shelf.keys)

    async def _step(self, operation: str, key: str) -> None:
        if self.before_operation is not None:
            await self.before_operation(operation, key)

    def _create(self, key: str, value: bytes) -> Record:
        shelf = self._shelf
        if (stored := shelf.records.get(key)) is not None:
            return stored
        record = shelf.records[key] = Record(key, value, shelf.clock.now())
        insort(shelf.keys, key)
        self._wrote()
        return record

    def _delete(self, key: str) -> None:
        if self._shelf.records.pop(key, None) is not None:
            del self._shelf.keys[bisect_left(self._shelf.keys, key)]
            self._wrote()

    def _wrote(self) -> None:
        self._own_writes += 1
        self._shelf.wrote(self)

    def _foreign_writes(self) -> int:
        return self._shelf.writes - self._own_writes

    def _bounds(self, prefix: str, after: str | None) -> tuple[int, int]:
        """Find the part of the keys that starts with `prefix`, above `after`."""
        keys = self._shelf.keys
        end_key = range_end(prefix)
        start = bisect_left(keys, prefix)
        end = len(keys) if end_key is None else bisect_left(keys, end_key)
        if after is not None:
            start = max(start, bisect_right(keys, after))
        return start, max(start, end)
