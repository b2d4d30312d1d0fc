"""A store that is copied keeps every record and its stamp, whatever the backend; a store's promises can be checked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from engine.clock import SystemSource
from engine.errors import BadInput, Conflict
from engine.store.base import Loadable, Record, Store
from engine.store.check import check
from engine.store.copy import copy, verify
from engine.store.memory import ManualClock, MemoryStore
from tests.contract.backends import BACKENDS, Backend

LONG_AGO = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
SETS_STAMPS = {"nats", "s3", "gs"}


async def fill(count: int) -> MemoryStore:
    """Make a store with records of all kinds, some moments apart, some of them not in key order."""
    clock = ManualClock(LONG_AGO)
    store = MemoryStore(clock)
    odd = [b"", b"\x00wayside\x00", b"\x00wayside\x00s", b"\x00wayside\x00v", b"\xff" * 70_000]
    for number in range(count):
        clock.advance(0.123_457)
        await store.create(f"runs/{number % 7}/{number:012d}", b"x" * number)
        await store.create(f"due/{count - number:012d}", b"")
    for number, value in enumerate(odd):
        await store.create(f"odd/{number} %é//", value)
    return store


@pytest.fixture
async def filled() -> MemoryStore:
    return await fill(300)


@pytest.fixture(params=[name for name in BACKENDS if name != "memory"])
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[str, Backend]]:
    async with BACKENDS[request.param](tmp_path) as backend:
        yield request.param, backend


async def test_a_copy_has_every_record_with_its_stamp_there_and_back(target: tuple[str, Backend]) -> None:
    _, backend = target
    store, count = backend.store, backend.times(300)
    filled = await fill(count)
    there = await copy(filled, store)
    assert (there.records, there.highest) == (2 * count + 5, filled.clock.now())
    assert await store.get("due/000000000007") == await filled.get("due/000000000007")
    assert await store.last("runs/3/") == await filled.last("runs/3/")
    back = MemoryStore(ManualClock(LONG_AGO + timedelta(days=1)))
    assert await copy(store, back) == there
    assert back.items() == filled.items()


async def test_a_copied_store_goes_on_as_any_other(target: tuple[str, Backend]) -> None:
    store, filled = target[1].store, await fill(target[1].times(300))
    await copy(filled, store)
    record = await store.create("new", b"\x00wayside\x00s no stamp")
    assert record.stored_at > filled.clock.now()
    assert record.value == b"\x00wayside\x00s no stamp"
    assert await store.get("new") == record
    assert (await store.create("runs/0/000000000000", b"another's")).stored_at < record.stored_at


async def test_stamps_that_lie_ahead_of_the_clock_are_kept_up_with_or_told_of(target: tuple[str, Backend]) -> None:
    name, store = target[0], target[1].store
    ahead = Record("a", b"value", await store.now() + timedelta(hours=1))
    assert isinstance(store, Loadable)
    source = MemoryStore(ManualClock(ahead.stored_at))
    await source.create("a", b"value")
    if name in SETS_STAMPS:
        with pytest.raises(Conflict, match=r"clock is 3[56]\d\d\.\d s behind"):
            await copy(source, store)
    else:
        await copy(source, store)
        assert (await store.create("b", b"")).stored_at >= ahead.stored_at
    assert await store.get("a") == ahead


async def test_a_store_that_is_not_empty_is_not_copied_into(filled: MemoryStore, store: Store) -> None:
    await store.create("a", b"mine")
    with pytest.raises(BadInput, match="not empty"):
        await copy(filled, store)
    assert [record.key for record in await store.list("")] == ["a"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("delete", "due/000000000001"), "lacks the record due/000000000001"),
        (("create", "due/000000000001x"), "has a record that the other store has not: due/000000000001x"),
        (("create", "zz"), "has a record that the other store has not: zz"),
    ],
)
async def test_a_difference_is_found(filled: MemoryStore, change: tuple[str, str], words: str) -> None:
    other = filled.copy()
    await verify(filled, other)
    operation, key = change
    await (other.delete([key]) if operation == "delete" else other.create(key, b""))
    with pytest.raises(Conflict, match=words):
        await verify(filled, other)


async def test_another_value_or_another_time_under_one_key_is_found(filled: MemoryStore) -> None:
    for value, words in ((b"", "another time"), (b"else", "another value")):
        other = filled.copy(ManualClock(LONG_AGO + timedelta(days=1)))
        await other.delete(["due/000000000001"])
        await other.create("due/000000000001", value)
        with pytest.raises(Conflict, match=words):
            await verify(filled, other)


async def test_every_backend_keeps_its_promises_and_nothing_is_left_behind(backend: Backend) -> None:
    found = await check(backend.store, SystemSource())
    assert [promise.name for promise in found] == ["one winner", "order", "one clock", "clock", "speed", "delete"]
    assert all(promise.kept is not False for promise in found), found
    assert await backend.store.list("") == []


async def test_a_store_that_lets_two_win_is_found_out() -> None:
    class Careless(MemoryStore):
        async def create(self, key: str, value: bytes) -> Record:
            await self.delete([key])
            return await super().create(key, value)

    found = {promise.name: promise for promise in await check(Careless(), SystemSource())}
    assert found["one winner"].kept is False
    assert "another" in found["one winner"].repair
