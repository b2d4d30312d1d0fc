"""The memory store can be stepped by hand, crashed before any operation, put back and copied; its clock is set."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from datetime import UTC, datetime, timedelta
from itertools import permutations
from types import coroutine
from typing import Any, TypeVar

import pytest

from engine.store.memory import ManualClock, MemoryStore, RunningClock

T = TypeVar("T")
START = datetime(2026, 11, 30, 12, tzinfo=UTC)


@coroutine
def pause(operation: str, key: str) -> Generator[tuple[str, str]]:
    yield operation, key


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never pauses, without an event loop."""
    with pytest.raises(StopIteration) as stopped:
        work.send(None)
    result: T = stopped.value.value
    return result


def steps(work: Coroutine[Any, Any, Any]) -> list[Any]:
    """Run a coroutine to its end; give what it paused at."""
    seen = []
    while True:
        try:
            seen.append(work.send(None))
        except StopIteration:
            return seen


def test_each_operation_is_one_step_and_each_item_of_a_list_is_one_create() -> None:
    store = MemoryStore(before_operation=pause)
    assert steps(store.create("a", b"")) == [("create", "a")]
    assert steps(store.create_all([("b", b""), ("c", b"")])) == [("create", "b"), ("create", "c")]
    assert steps(store.get("a")) == [("get", "a")]
    assert steps(store.last("p/")) == [("last", "p/")]
    assert steps(store.list("p/")) == [("list", "p/")]
    assert steps(store.now()) == [("now", "")]
    assert steps(store.delete(["a", "b"])) == [("delete", "a"), ("delete", "b")]
    assert [record.key for record in store.items()] == ["c"]


def test_two_actors_are_driven_in_every_order() -> None:
    for order in permutations("ab"):
        store = MemoryStore(before_operation=pause)
        actors = {name: store.create("key", name.encode()) for name in "ab"}
        for actor in actors.values():
            actor.send(None)
        winners = set()
        for name in order:
            with pytest.raises(StopIteration) as stopped:
                actors[name].send(None)
            winners.add(stopped.value.value.value)
        assert winners == {order[0].encode()}


def test_a_crash_before_the_second_item_leaves_the_first() -> None:
    store = MemoryStore(before_operation=pause)
    work = store.create_all([("due/1", b""), ("waits/1", b"")])
    work.send(None)
    work.send(None)
    with pytest.raises(KeyboardInterrupt):
        work.throw(KeyboardInterrupt())
    assert [record.key for record in store.items()] == ["due/1"]


def test_a_record_is_stamped_with_the_time_that_the_clock_is_set_to() -> None:
    clock = ManualClock(START)
    store = MemoryStore(clock)
    assert run(store.create("a", b"")).stored_at == START
    clock.advance(1.5)
    assert run(store.create("b", b"")).stored_at == START + timedelta(seconds=1.5) == run(store.now())
    assert run(store.create("a", b"")).stored_at == START


def test_a_manual_clock_never_goes_back() -> None:
    with pytest.raises(AssertionError):
        ManualClock(START).advance(-1)


def test_a_running_clock_runs_from_now_on() -> None:
    clock = RunningClock()
    first = clock.now()
    assert first > START - timedelta(days=3_650)
    assert clock.now() >= first


def test_a_store_is_put_back_to_a_snapshot_with_its_time() -> None:
    clock = ManualClock(START)
    store = MemoryStore(clock)
    peer = store.peer()
    run(store.create("b", b"kept"))
    snapshot = store.snapshot()
    clock.advance(60)
    run(store.create("a", b""))
    run(store.delete(["b"]))
    for _ in range(2):
        store.restore(snapshot)
        assert [(record.key, record.value) for record in peer.items()] == [("b", b"kept")]
        assert run(peer.now()) == START
        run(store.create("c", b""))


def test_a_copy_is_independent() -> None:
    store = MemoryStore(ManualClock(START))
    run(store.create("a", b""))
    copy = store.copy()
    run(store.create("b", b""))
    run(copy.create("c", b""))
    run(copy.delete(["a"]))
    assert [record.key for record in store.items()] == ["a", "b"]
    assert [record.key for record in copy.items()] == ["c"]
    assert copy.clock is not store.clock
    assert run(copy.now()) == START
