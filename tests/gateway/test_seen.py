"""Proves that last-seen times outlive a restart, reach other instances, and do not pile up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from devices.registry import Registry
from engine import names, records
from engine.records import Beat
from engine.store.memory import ManualClock, MemoryStore
from gateway.auth import Authority
from gateway.seen import MAX_NAMES, WHOLE_EVERY, LastSeen
from tests.support.source import HandSource

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON)


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock)


def instance(store: MemoryStore, clock: ManualClock, name: str) -> LastSeen:
    source = HandSource(label=name)
    authority = Authority(Registry(store, source), source, wall_clock=clock.now)
    return LastSeen(store, authority, source, name)


async def test_what_was_seen_is_known_after_a_restart(store: MemoryStore, clock: ManualClock) -> None:
    one = instance(store, clock, "one")
    one.authority.saw("device", "door")
    one.authority.saw("user", "anna")
    await one.keep()
    again = instance(store, clock, "two")
    await again.load()
    assert again.authority.last_seen("device", "door") == NOON
    assert again.authority.last_seen("user", "anna") == NOON
    assert again.authority.last_seen("device", "anna") is None


async def test_the_later_of_two_instances_sights_counts_at_both(store: MemoryStore, clock: ManualClock) -> None:
    one, two = instance(store, clock, "one"), instance(store, clock, "two")
    one.authority.saw("device", "door")
    await one.keep()
    clock.advance(60)
    two.authority.saw("device", "door")
    await two.keep()
    await one.keep()
    for each in (one, two):
        assert each.authority.last_seen("device", "door") == NOON + timedelta(seconds=60)


async def test_nothing_is_written_when_nobody_was_seen(store: MemoryStore, clock: ManualClock) -> None:
    one = instance(store, clock, "one")
    one.authority.saw("device", "door")
    for _ in range(5):
        await one.keep()
        clock.advance(60)
    assert len(await store.list(names.SEEN)) == 1


async def test_after_an_hour_one_record_has_it_all_and_those_of_the_dead_are_gone(
    store: MemoryStore, clock: ManualClock
) -> None:
    dead, alive, one = (instance(store, clock, name) for name in ("dead", "alive", "one"))
    for name in ("alive", "one"):
        beat = Beat(at=names.beat(name, 1), nonce="n", instance=name, host="h", lock="", audit="")
        await store.create(*records.encode(beat))
    dead.authority.saw("device", "window")
    await dead.keep()
    alive.authority.saw("device", "gate")
    await alive.keep()
    await one.load()
    for n in range(WHOLE_EVERY):
        one.authority.saw("device", f"door-{n}")
        await one.keep()
        clock.advance(60)
    assert {names.instance_of(record.key) for record in await store.list(names.SEEN)} == {"alive", "one"}
    assert len(await store.list(f"{names.SEEN}one/")) == 1
    later = instance(store, clock, "later")
    await later.load()
    for name in ("window", "gate", "door-0", f"door-{WHOLE_EVERY - 1}"):
        assert later.authority.last_seen("device", name) is not None, name


async def test_a_record_is_bounded_and_the_rest_comes_with_the_next(store: MemoryStore, clock: ManualClock) -> None:
    one = instance(store, clock, "one")
    for n in range(MAX_NAMES + 10):
        one.authority.saw("device", f"{n:064d}")
    await one.keep()
    clock.advance(60)
    await one.keep()
    again = instance(store, clock, "two")
    await again.load()
    assert len(again.authority.seen()) == MAX_NAMES + 10
