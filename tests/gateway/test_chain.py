"""Proves that the check of the audit log finds an event that was changed, removed, put elsewhere or cut off.

Each is planted in the records themselves, as somebody with the database in hand would.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from engine import names, records
from engine.records import Beat, Stored
from engine.store.base import Record
from engine.store.memory import ManualClock, MemoryStore
from gateway.audit import Audit, Entry, read_event
from gateway.chain import Verified, verify
from gateway.retention import Retention
from tests.support.source import HandSource

DAY = 86_400.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime(2026, 1, 1, 12, 0, tzinfo=UTC))


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock)


class Instance:
    """An instance that writes events and beats."""

    def __init__(self, store: MemoryStore, name: str) -> None:
        self.store, self.name, self.beats = store, name, 0
        self.source = HandSource(label=name)
        self.audit = Audit(store, name, self.source)

    async def write(self, count: int = 1) -> None:
        for n in range(count):
            self.audit.add(Entry(action="signal.delivered", reason=f"n-{n}"))
            await self.audit.written()

    async def beat(self) -> None:
        self.beats += 1
        at = names.beat(self.name, self.beats)
        beat = Beat(at=at, nonce=self.source.nonce(), instance=self.name, host="h", lock="", audit=self.audit.head)
        await self.store.create(*records.encode(beat))

    async def leave(self) -> None:
        """Stop as a process that was asked to: a last event, and no beats."""
        await self.audit.end()
        await self.die()

    async def die(self) -> None:
        """Be forgotten by the others."""
        await self.store.delete([record.key for record in await self.store.list(names.beats(self.name))])


async def events(store: MemoryStore, instance: str) -> list[Record]:
    return [record for record in await store.list(names.AUDIT) if record.key.split("/")[2] == instance]


async def put(store: MemoryStore, key: str, value: bytes) -> None:
    await store.delete([key])
    await store.create(key, value)


async def change(store: MemoryStore, record: Record, **fields: str) -> None:
    found = read_event(record)
    assert isinstance(found, Stored)
    _, value = records.encode(msgspec.structs.replace(found.value, **fields))
    await put(store, record.key, value)


def flaws(found: Verified) -> list[tuple[str, str, int]]:
    return [(flaw.kind, flaw.instance, flaw.seq) for flaw in found.flaws]


@pytest.fixture
async def one(store: MemoryStore, clock: ManualClock) -> Instance:
    """Ten events over two days, and a heartbeat that carries the head."""
    one = Instance(store, "one")
    await one.write(5)
    clock.advance(DAY)
    await one.write(5)
    await one.beat()
    return one


async def test_a_log_as_it_was_written_has_no_flaw(store: MemoryStore, one: Instance) -> None:
    two = Instance(store, "two")
    await two.write(3)
    await two.leave()
    found = await verify(store)
    assert (found.events, found.chains, found.flaws, found.unvouched) == (14, 2, (), ())
    await one.write(2)  # behind the heartbeat
    assert (await verify(store)).ok


@pytest.mark.parametrize("seq", [1, 4, 5, 6, 10])
async def test_a_changed_event_is_found(store: MemoryStore, one: Instance, seq: int) -> None:
    await change(store, (await events(store, "one"))[seq - 1], principal="user:mallory")
    assert flaws(await verify(store)) == [("changed", "one", seq)]


async def test_an_event_that_is_no_event_any_more_is_found(store: MemoryStore, one: Instance) -> None:
    await put(store, (await events(store, "one"))[3].key, b"nonsense")
    assert flaws(await verify(store)) == [("changed", "one", 4)]


@pytest.mark.parametrize("seq", [1, 4, 6])
async def test_a_removed_event_is_found(store: MemoryStore, one: Instance, seq: int) -> None:
    await store.delete([(await events(store, "one"))[seq - 1].key])
    assert flaws(await verify(store)) == [("removed", "one", seq)]


async def test_two_events_in_each_other_s_place_are_found(store: MemoryStore, one: Instance) -> None:
    third, fourth = (await events(store, "one"))[2:4]
    await put(store, third.key, fourth.value)
    await put(store, fourth.key, third.value)
    assert flaws(await verify(store)) == [("reordered", "one", 3), ("reordered", "one", 4)]


async def test_two_events_in_each_other_s_place_are_found_also_with_their_addresses_rewritten(
    store: MemoryStore, one: Instance
) -> None:
    third, fourth = (await events(store, "one"))[2:4]
    await put(store, third.key, fourth.value.replace(fourth.key.encode(), third.key.encode()))
    await put(store, fourth.key, third.value.replace(third.key.encode(), fourth.key.encode()))
    found = flaws(await verify(store))
    assert ("reordered", "one", 4) in found


async def test_an_event_under_another_day_is_found(store: MemoryStore, one: Instance) -> None:
    event = (await events(store, "one"))[4]
    key = names.audit("20251224", "one", 5)
    await store.delete([event.key])
    await store.create(key, event.value.replace(event.key.encode(), key.encode()))
    assert {"changed", "reordered", "removed"} & {kind for kind, _, _ in flaws(await verify(store))}


@pytest.mark.parametrize("left", [9, 5, 1])
async def test_a_tail_that_was_cut_off_is_found_by_the_heartbeat(store: MemoryStore, one: Instance, left: int) -> None:
    await store.delete([record.key for record in (await events(store, "one"))[left:]])
    assert flaws(await verify(store)) == [("cut_off", "one", left + 1)]


async def test_a_chain_that_is_gone_altogether_is_found_by_the_heartbeat(store: MemoryStore, one: Instance) -> None:
    await store.delete([record.key for record in await events(store, "one")])
    assert flaws(await verify(store)) == [("cut_off", "one", 1)]


async def test_the_end_of_an_instance_that_was_killed_is_vouched_for_by_another(
    store: MemoryStore, one: Instance
) -> None:
    await one.die()
    assert (await verify(store)).unvouched == ("one",)
    two = Instance(store, "two")
    await two.beat()
    assert await Retention(store, two.audit, days=0).witness() == 1
    await two.beat()
    assert (await verify(store)).unvouched == ()
    await store.delete([(await events(store, "one"))[-1].key])
    assert flaws(await verify(store)) == [("cut_off", "one", 10)]


async def test_an_end_is_noted_once(store: MemoryStore, one: Instance) -> None:
    await one.leave()
    two = Instance(store, "two")
    await two.beat()
    first = Retention(store, two.audit, days=0)
    assert [await first.witness(), await first.witness()] == [1, 0]
    three = Instance(store, "three")
    await three.beat()
    assert await Retention(store, three.audit, days=0).witness() == 0


async def test_what_retention_leaves_can_still_be_checked(
    store: MemoryStore, clock: ManualClock, one: Instance
) -> None:
    retention = Retention(store, one.audit, days=3)
    assert await retention.retain() == 0
    two = Instance(store, "two")  # it writes now, and again in a long time
    await two.write(2)
    await two.beat()
    for _ in range(12):
        clock.advance(DAY)
        await one.write(2)
        await retention.retain()
        await one.beat()
        assert (await verify(store)).flaws == ()
    days = {record.key.split("/")[1] for record in await store.list(names.AUDIT)}
    assert min(days) == "20260111"
    await two.write(1)
    assert (await verify(store)).flaws == ()
    first = (await events(store, "one"))[0]
    await store.delete([first.key])
    assert flaws(await verify(store)) == [("removed", "one", names.number_of(first.key))]


async def test_a_day_goes_only_when_it_is_as_old_as_was_said(store: MemoryStore, clock: ManualClock) -> None:
    one = Instance(store, "one")
    await one.write(3)
    retention = Retention(store, one.audit, days=2)
    clock.advance(2 * DAY)
    assert await retention.retain() == 0
    clock.advance(DAY)
    assert await retention.retain() == 3
    assert clock.now() - datetime(2026, 1, 1, tzinfo=UTC) > timedelta(days=3)
