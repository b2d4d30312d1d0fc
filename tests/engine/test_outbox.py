"""The outbox numbers commands without a gap or a repeat, and every follower reads each once, in order."""

from __future__ import annotations

import asyncio

import pytest

from engine import names, outbox
from engine.limits import OUTBOX_RETENTION_SECONDS
from engine.outbox import Follower
from engine.store.memory import ManualClock, MemoryStore
from tests.support.source import HandSource


async def put(store: MemoryStore, *texts: str) -> list[int]:
    source = HandSource(label="".join(texts))
    return [await outbox.append(store, source, f"t/{text}", text.encode()) for text in texts]


async def read(follower: Follower) -> list[tuple[int, str, bytes]]:
    return [(each.number, each.value.topic, each.value.payload) for each in await follower.read()]


async def test_commands_are_numbered_and_read_in_order_and_once() -> None:
    store = MemoryStore()
    follower = Follower(store)
    await follower.start()
    assert await put(store, "a", "b") == [1, 2]
    assert await read(follower) == [(1, "t/a", b"a"), (2, "t/b", b"b")]
    assert await read(follower) == []
    await put(store, "c")
    assert await read(follower) == [(3, "t/c", b"c")]


async def test_a_follower_begins_behind_what_is_there() -> None:
    store = MemoryStore()
    await put(store, "old")
    follower = Follower(store)
    await follower.start()
    await put(store, "new")
    assert [topic for _, topic, _ in await read(follower)] == ["t/new"]


async def test_writers_at_once_each_get_a_number_of_their_own() -> None:
    store = MemoryStore()

    async def turn(operation: str, key: str) -> None:
        await asyncio.sleep(0)

    numbers: list[int] = []

    async def writer(label: str) -> None:
        handle = store.peer()
        handle.before_operation = turn
        numbers.extend([await outbox.append(handle, HandSource(label=f"{label}{at}"), "t", b"") for at in range(10)])

    await asyncio.gather(*(writer(str(at)) for at in range(5)))
    assert sorted(numbers) == list(range(1, 51))


async def test_old_commands_go_and_the_highest_number_stays() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    await put(store, "a", "b")
    clock.advance(OUTBOX_RETENTION_SECONDS + 1)
    await outbox.prune(store)
    assert [record.key for record in await store.list(names.OUTBOX)] == [names.outbox(2)]
    assert await put(store, "c") == [3]
    await outbox.prune(store)
    assert [record.key for record in await store.list(names.OUTBOX)] == [names.outbox(3)]


async def test_all_old_commands_go_at_once_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "_PRUNED_AT_ONCE", 3)
    clock = ManualClock()
    store = MemoryStore(clock)
    await put(store, *"abcdefghi")
    clock.advance(OUTBOX_RETENTION_SECONDS + 1)
    await put(store, "y", "z")
    await outbox.prune(store)
    assert [record.key for record in await store.list(names.OUTBOX)] == [names.outbox(10), names.outbox(11)]


async def test_a_command_that_cannot_be_read_is_passed_over() -> None:
    store = MemoryStore()
    follower = Follower(store)
    await follower.start()
    await store.create(names.outbox(1), b"\xff")
    await put(store, "next")
    assert await read(follower) == [(2, "t/next", b"next")]


async def test_a_follower_reads_on_when_what_it_read_last_is_gone() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    follower = Follower(store)
    await follower.start()
    await put(store, "a", "b", "c")
    assert len(await read(follower)) == 3
    clock.advance(OUTBOX_RETENTION_SECONDS + 1)
    await put(store, "d")
    await outbox.prune(store)
    assert [topic for _, topic, _ in await read(follower)] == ["t/d"]
