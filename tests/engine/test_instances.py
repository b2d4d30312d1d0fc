"""An instance's death is seen, at once on its host and by its silence elsewhere, and what it drove is taken over."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engine import names, runs
from engine.errors import StoreUnavailable
from engine.instances import Lock, Pulse, is_free
from engine.limits import STALE_AFTER_SECONDS
from engine.store.memory import ManualClock, MemoryStore
from engine.sweep import Sweep
from tests.support.bench import Bench, bench, definition
from tests.support.source import HandSource

FLAT = """
name: flat
inputs: { type: object }
jobs: [ { name: main, steps: [ { name: send, task: { type: publish, topic: sent, payload: {} } } ] } ]
"""
RUN = "r" * 26


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[Bench, Bench]]:
    """Two instances over one store, neither of which sees the other's lock."""
    clock = ManualClock()
    store = MemoryStore(clock)
    async with (
        bench(tmp_path / "a", FLAT, store=store, clock=clock, label="a") as first,
        bench(tmp_path / "b", FLAT, store=store.peer(), clock=clock, label="b") as second,
    ):
        yield first, second


async def driven_by(one: Bench) -> None:
    """Leave a run behind that the instance has just taken, as if it had died then."""
    actor = one.actor()
    await runs.start(actor, runs.NewRun(run=RUN, definition=definition(FLAT), inputs=b"{}", by="test"))
    assert await runs.take(actor, RUN) is not None


def pulse_of(one: Bench) -> Pulse:
    assert one.engine._pulse is not None
    return one.engine._pulse


async def pass_time(one: Bench, seconds: float, *, beats: int) -> None:
    """Let time pass for the instance, with so many beats of its own in it, and sweep."""
    for _ in range(beats):
        one.source.advance(seconds / beats)
        await pulse_of(one).beat()
    await one.sweep()


# -- by silence --------------------------------------------------------------------------------------------------


async def test_an_instance_that_is_silent_is_dead_after_a_while_and_not_before(pair: tuple[Bench, Bench]) -> None:
    dead, other = pair
    await driven_by(dead)
    await other.sweep()
    await pass_time(other, STALE_AFTER_SECONDS - 1, beats=3)
    assert await other.kinds(RUN) == ["created", "resumed"]
    await pass_time(other, 1, beats=1)
    assert await other.status(RUN) == "succeeded"
    assert other.sent.commands == [("sent", {})]
    await other.sweep()
    assert await other.keys("driving/") == []


async def test_an_instance_that_beats_is_alive_however_long(pair: tuple[Bench, Bench]) -> None:
    alive, other = pair
    await driven_by(alive)
    for _ in range(20):
        await pulse_of(alive).beat()
        await pass_time(other, 10, beats=1)
    assert await other.kinds(RUN) == ["created", "resumed"]


async def test_silence_while_the_observers_own_beats_fail_says_nothing(tmp_path: Path) -> None:
    away = False

    async def before(operation: str, key: str) -> None:
        if away:
            raise StoreUnavailable("away")

    store = MemoryStore(ManualClock())
    observing = store.peer()
    observing.before_operation = before
    source = HandSource(label="o")
    other, own = Pulse(store, HandSource(), "other", None), Pulse(observing, source, "own", None)
    await other.beat()
    await own.beat()
    assert not await own.is_dead("other")
    away = True
    for _ in range(10):
        source.advance(10)
        with pytest.raises(StoreUnavailable):
            await own.beat()
    away = False  # the store is back; the other has not had the time to beat again
    await own.beat()
    await own.beat()
    assert not await own.is_dead("other")
    for _ in range(3):
        source.advance(10)
        await own.beat()
    assert await own.is_dead("other")


async def test_an_instance_whose_beats_another_has_removed_is_gone_at_once() -> None:
    store = MemoryStore(ManualClock())
    other, own = Pulse(store, HandSource(), "other", None), Pulse(store, HandSource(), "own", None)
    await other.beat()
    await own.beat()
    assert not await own.is_gone("other")
    await own.forget("other")
    assert await own.is_gone("other")
    assert not await own.is_dead("other"), "of a driver that could be one about to beat for the first time"
    assert not await own.is_gone("own")


async def test_an_observer_that_slept_declares_nobody_dead(pair: tuple[Bench, Bench]) -> None:
    alive, other = pair
    await other.sweep()
    other.source.advance(3_600)  # a laptop's lid
    assert not await pulse_of(other).is_dead(alive.engine.instance)


async def test_a_dead_instances_beats_go_once_nothing_is_left_that_it_drove(pair: tuple[Bench, Bench]) -> None:
    dead, other = pair
    await driven_by(dead)
    await other.sweep()
    await pass_time(other, STALE_AFTER_SECONDS, beats=3)
    for _ in range(3):
        await other.sweep()
    assert await other.keys(names.beats(dead.engine.instance)) == []
    assert len(await other.keys(names.beats(other.engine.instance))) == 2


async def test_beats_do_not_pile_up(pair: tuple[Bench, Bench]) -> None:
    one, _ = pair
    for _ in range(50):
        await pulse_of(one).beat("head")
    beats = await one.keys(names.beats(one.engine.instance))
    assert [names.number_of(key) for key in beats] == [50, 51]


# -- by its lock ---------------------------------------------------------------------------------------------------


async def test_a_death_on_the_same_host_is_seen_at_once_by_the_lock(tmp_path: Path) -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    locks = tmp_path / "locks"
    async with (
        bench(tmp_path / "a", FLAT, store=store, clock=clock, label="a", locks=locks) as dead,
        bench(tmp_path / "b", FLAT, store=store.peer(), clock=clock, label="b", locks=locks) as other,
    ):
        await driven_by(dead)
        await other.sweep()
        assert await other.kinds(RUN) == ["created", "resumed"]
        lock = dead.engine._lock
        assert lock is not None
        lock.release()  # what the kernel does when a process dies
        dead.engine._lock = None
        await other.sweep()
        assert await other.status(RUN) == "succeeded"


async def test_a_directory_of_the_same_path_in_another_container_says_nothing_about_a_death(tmp_path: Path) -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    locks = tmp_path / "locks"
    async with bench(tmp_path / "a", FLAT, store=store, clock=clock, label="a", locks=locks) as alive:
        await driven_by(alive)
        locks.rename(tmp_path / "the other container's")
        async with bench(tmp_path / "b", FLAT, store=store.peer(), clock=clock, label="b", locks=locks) as other:
            assert not await pulse_of(other).is_dead(alive.engine.instance)
            await other.sweep()
            assert await other.kinds(RUN) == ["created", "resumed"]


def test_a_lock_is_held_for_as_long_as_its_process_lives(tmp_path: Path) -> None:
    script = f"""
import sys
from pathlib import Path
from engine.instances import Lock
Lock(Path({str(tmp_path)!r}), "child")
print("locked", flush=True)
sys.stdin.read()
"""
    child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdin is not None
    assert child.stdout.readline() == b"locked\n"
    assert not is_free(tmp_path / "child.lock")
    child.kill()
    child.wait()
    child.stdin.close()
    child.stdout.close()
    assert (tmp_path / "child.lock").exists()
    assert is_free(tmp_path / "child.lock")


def test_a_lock_that_is_let_go_is_gone(tmp_path: Path) -> None:
    lock = Lock(tmp_path, "one")
    assert not is_free(lock.path)
    lock.release()
    assert not lock.path.exists()
    assert is_free(lock.path)


# -- leaving -------------------------------------------------------------------------------------------------------


async def test_an_instance_that_leaves_with_nothing_open_takes_its_beats_along(tmp_path: Path) -> None:
    store = MemoryStore(ManualClock())
    async with bench(tmp_path, FLAT, store=store, clock=store.clock, locks=tmp_path / "locks") as one:  # type: ignore[arg-type]
        await one.start("flat")
    assert [record.key for record in await store.list(names.INSTANCES)] == []
    assert list((tmp_path / "locks").iterdir()) == []


async def test_what_an_instance_leaves_undone_is_taken_over_at_once_by_its_successor(tmp_path: Path) -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    locks = tmp_path / "locks"
    async with bench(tmp_path / "a", FLAT, store=store, clock=clock, label="a", locks=locks) as leaving:
        await driven_by(leaving)
    assert len(await store.list(names.INSTANCES)) == 1
    async with bench(tmp_path / "b", FLAT, store=store, clock=clock, label="b", locks=locks) as after:
        await after.sweep()
        assert await after.status(RUN) == "succeeded"
        for _ in range(2):
            await after.sweep()
        assert await after.keys(names.beats(leaving.engine.instance)) == []


# -- two tasks for one run ------------------------------------------------------------------------------------------


async def test_a_takeover_and_a_signal_at_once_leave_the_run_driven_by_one_task(pair: tuple[Bench, Bench]) -> None:
    dead, other = pair
    await driven_by(dead)
    other.engine.drivers.go_on(RUN)  # for another reason, before the dead one is known to be dead
    other.engine.drivers.take_over(RUN, frozenset({dead.engine.instance}))
    other.engine.drivers.go_on(RUN)
    await other.quiet()
    assert await other.status(RUN) == "succeeded"
    assert other.sent.commands == [("sent", {})]
    assert (await other.kinds(RUN)).count("resumed") == 2


async def test_a_driving_record_stays_while_the_log_says_that_the_dead_one_drives(pair: tuple[Bench, Bench]) -> None:
    dead, other = pair
    await driven_by(dead)
    (record,) = await other.store.list("driving/")

    async def is_dead(instance: str, run: str) -> bool:
        return True

    async def nothing(*_: str) -> None:
        return None

    await Sweep(other.actor(), nothing, nothing, is_dead).run()
    assert await other.keys("driving/") == [record.key]
