"""An actor: whoever performs an operation of the protocol, with its store, its source of names and its surroundings.

The coroutines of `waits`, `signals`, `runs` and `sweep` take an actor and await its store and nothing else, so that
a test can step them by hand, one store operation at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

from engine import names, records
from engine.clock import Source
from engine.events import EngineEvent, Observer
from engine.limits import OPERATION_SECONDS
from engine.store.base import Record, Store

V = TypeVar("V", bound=records.Value)
FAR = datetime(9999, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Owed:
    """A run that may have to go on, because of `wait`; `ready` is the record that this actor made to say so."""

    run: str
    wait: str
    ready: str


@dataclass(slots=True)
class Actor:
    """One operation's hands. `owed` collects the runs that it has given a reason to go on."""

    store: Store
    source: Source
    instance: str
    observer: Observer
    owed: list[Owed] = field(default_factory=list)
    retention_seconds: float | None = None

    def note(self, event: EngineEvent) -> None:
        """Tell the surroundings."""
        self.observer.note(event)

    def fresh(self, since: float) -> bool:
        """Tell whether an operation that read the claims at `since` (monotonic) may still create by what it read.

        A removal pauses much longer than this between closing a run's records and deleting them.
        """
        return self.source.monotonic() - since < OPERATION_SECONDS

    async def about_now(self) -> datetime:
        """Read a time near the store's clock, at no cost: for index records, which are only looked at again."""
        return await self.store.now(until=FAR)

    # -- creating ------------------------------------------------------------------------------------------------

    async def create(self, value: V) -> tuple[bool, Record]:
        """Create one record; tell whether it is this actor's that is stored."""
        key, data = records.encode(value)
        stored = await self.store.create(key, data)
        return stored.value == data, stored

    async def create_after(self, index: Sequence[str | records.Ready], value: V) -> tuple[bool, Record]:
        """Create index records and then the record that they point to."""
        items = [(entry, b"") if isinstance(entry, str) else records.encode(entry) for entry in index]
        key, data = records.encode(value)
        stored = (await self.store.create_all([*items, (key, data)]))[-1]
        return stored.value == data, stored

    def owe(self, run: str, wait: str) -> str:
        """Name a `ready` record of this actor's own for `run`, and remember it. The caller creates it."""
        key = names.ready(run, wait, self.source.nonce())
        self.owed.append(Owed(run, wait, key))
        return key

    # -- reading -------------------------------------------------------------------------------------------------

    async def outcome(self, wait: str) -> records.Stored[records.Outcome] | records.Unreadable | None:
        """Read a wait's outcome."""
        found = await self.store.get(names.outcome(wait))
        return None if found is None else records.outcome(found)

    async def top(self, key: names.Key) -> records.Stored[records.KeyRecord] | None:
        """Read a key's highest record."""
        found = await self.store.last(key.claims)
        return None if found is None else records.key_record(found)

    async def slot(self, key: names.Key, slot: int) -> list[records.Stored[records.SlotRecord] | records.Unreadable]:
        """Read what is stored in a slot, by number."""
        return [records.slot_record(record) for record in await self.store.list(key.slot(slot))]

    async def newest(self, key: names.Key, slot: int) -> records.Stored[records.SlotRecord] | records.Unreadable | None:
        """Read the highest record of a slot."""
        found = await self.store.last(key.slot(slot))
        return None if found is None else records.slot_record(found)

    async def registration(self, wait: str) -> records.Stored[records.Registration] | None:
        """Read where a wait lives."""
        found = await self.store.get(names.registration(wait))
        return None if found is None else records.registration(found)

    async def taking(self, key: names.Key, slot: int) -> records.Stored[records.Claim] | None:
        """Find the claim that takes from a slot that is behind; none when its run has been removed.

        It is the first claim above the number that left the slot: only releases can stand between.
        """
        after = key.claim(slot)
        while True:
            page = await self.store.list(key.claims, after=after, limit=8)
            for record in page:
                match records.key_record(record):
                    case records.Stored(value=records.Claim() as claim, number=number, at=at):
                        return records.Stored(claim, number, at) if claim.takes == slot else None
                    case _:
                        after = record.key
            if len(page) < 8:
                return None


def number_at(entry: records.Stored[records.SlotRecord] | records.Unreadable) -> int:
    """Read the number of a slot's record, readable or not."""
    return names.number_of(entry.key) if isinstance(entry, records.Unreadable) else entry.number
