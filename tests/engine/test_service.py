"""The engine as a whole, with its own tasks and a real store: it runs on time, beside others, and through faults."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engine import runs, signals
from engine.clock import SystemSource
from engine.errors import FormatTooNew, NotFound, StoreUnavailable
from engine.names import Key
from engine.results import Taken
from engine.service import Engine, EngineSettings
from engine.store.base import Store
from engine.store.memory import ManualClock, MemoryStore, RunningClock
from engine.store.open import open_store
from tests.support.bench import Heard, Sent, bench, catalog, request

TEXT = """
name: door
inputs: { type: object }
jobs:
  - name: main
    steps:
      - name: look
        allowFailure: true
        task: { type: wait_for_signal, key: verdict, acceptEarly: 30, timeout: 60 }
      - name: tell
        dependsOn: [ { step: look, condition: { type: completed } } ]
        task: { type: publish, topic: told, payload: { status: "${{ steps.look.status }}" } }
"""
SHORT = TEXT.replace("name: door", "name: short").replace("timeout: 60", "timeout: 0.4")
PATIENCE = 20.0


@asynccontextmanager
async def running(directory: Path, store: Store, **settings: Any) -> AsyncIterator[Engine]:
    engine = Engine(
        store,
        catalog(directory / "workflows", [TEXT, SHORT]),
        observer=Heard(),
        publisher=Sent(),
        source=SystemSource(),
        settings=EngineSettings(**settings),
        locks=directory / "locks",
    )
    async with engine:
        yield engine


async def until(engine: Engine, run: str, status: str) -> dict[str, Any]:
    """Follow a run until it has a status."""
    async with asyncio.timeout(PATIENCE):
        while True:
            view = await engine.run(run)
            if view["status"] == status:
                return view
            events = await engine.events(run)
            await engine.wait_change(run, events[-1]["seq"], 0.2)


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    made = MemoryStore(RunningClock()) if request.param == "memory" else open_store(f"sqlite:///{tmp_path}/w.db")
    yield made
    await made.close()


async def test_a_signal_continues_a_run_without_any_sweep(store: Store, tmp_path: Path) -> None:
    async with running(tmp_path, store, sweep_interval_seconds=3_600) as engine:
        run = await engine.start_run("door", {}, by="test")
        await until(engine, run, "suspended")
        assert isinstance(await engine.signal_key("door", "verdict", request({})), Taken)
        await until(engine, run, "succeeded")


async def test_a_deadline_is_met_when_it_passes_not_at_the_next_interval(store: Store, tmp_path: Path) -> None:
    async with running(tmp_path, store, sweep_interval_seconds=3_600) as engine:
        runs = [await engine.start_run("short", {}, by="test")]
        view = await until(engine, runs[0], "succeeded")
        assert view["jobs"][0]["steps"][0]["error"]["code"] == "wait_timeout"
        second = await engine.start_run("short", {}, by="test")  # and the timer is set anew for the next
        await until(engine, second, "succeeded")


async def test_a_run_that_nobody_continued_is_found_within_a_sweep_interval(store: Store, tmp_path: Path) -> None:
    async with running(tmp_path, store, sweep_interval_seconds=0.2) as engine:
        run = await engine.start_run("door", {}, by="test")
        await until(engine, run, "suspended")
        await signals.signal_by_key(engine.actor(), Key("door", "verdict"), request({}), None)
        await until(engine, run, "succeeded")


async def test_two_engines_share_the_work_of_one_file(tmp_path: Path) -> None:
    first_store, second_store = (open_store(f"sqlite:///{tmp_path}/w.db") for _ in range(2))
    async with (
        running(tmp_path / "a", first_store, sweep_interval_seconds=1) as first,
        running(tmp_path / "b", second_store, sweep_interval_seconds=1) as second,
    ):
        run = await first.start_run("door", {}, by="test")
        await until(second, run, "suspended")
        assert isinstance(await second.signal_key("door", "verdict", request({})), Taken)
        await until(first, run, "succeeded")
        assert (await first.run(run))["jobs"] == (await second.run(run))["jobs"]
    await first_store.close()
    await second_store.close()


async def test_a_run_is_there_after_a_restart_and_goes_on(tmp_path: Path) -> None:
    for turn in range(2):
        store = open_store(f"sqlite:///{tmp_path}/w.db")
        async with running(tmp_path, store, sweep_interval_seconds=1) as engine:
            if turn == 0:
                run = await engine.start_run("door", {}, by="test")
                await until(engine, run, "suspended")
            else:
                ((shown,), _) = await engine.runs()
                assert isinstance(await engine.signal_key("door", "verdict", request({})), Taken)
                await until(engine, shown["run"], "succeeded")
        await store.close()


# -- faults --------------------------------------------------------------------------------------------------------


async def test_neither_faults_of_the_store_nor_others_end_the_engines_own_tasks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fault: Exception | None = None

    async def before(operation: str, key: str) -> None:
        if fault is not None:
            raise fault

    store = MemoryStore(RunningClock(), before_operation=before)
    settings = {"sweep_interval_seconds": 0.02, "heartbeat_seconds": 0.02}
    with caplog.at_level(logging.ERROR):
        async with running(tmp_path, store, **settings) as engine:
            for each in (StoreUnavailable("away"), RuntimeError("secret-marker"), ValueError()):
                fault = each
                swept = engine.swept_at
                await asyncio.sleep(0.1)  # several passes and beats fail
                assert engine.swept_at == swept
                assert not engine.writable
            fault = None
            run = await engine.start_run("short", {}, by="test")
            await until(engine, run, "succeeded")
            async with asyncio.timeout(PATIENCE):
                while not engine.writable:
                    await asyncio.sleep(0.02)
            names = {task.get_name() for task in engine._tasks if not task.done()}
            assert names == {"heartbeat", "sweep", "store changes"}
    assert "RuntimeError" in caplog.text
    assert "secret-marker" not in caplog.text


async def test_a_run_that_cannot_be_driven_is_left_alone_after_some_tries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(tmp_path, TEXT) as one:
        run = await one.start("door")

        async def no_take(*_: object, **__: object) -> None:
            raise RuntimeError("a fault of this build")

        monkeypatch.setattr(runs, "take", no_take)
        for _ in range(10):
            one.engine.drivers.go_on(run)
            await one.quiet()
        assert len(one.heard.named("run.damaged")) == 3
        assert await one.kinds(run) == ["created", "resumed", "opening", "suspended"]


async def test_a_driver_that_loses_the_store_is_taken_up_by_the_next_pass(tmp_path: Path) -> None:
    clock = ManualClock()
    left = -1

    async def before(operation: str, key: str) -> None:
        nonlocal left
        if left == 0:
            raise StoreUnavailable("away")
        left -= left > 0

    for at in range(25):
        left = -1
        store = MemoryStore(clock, before_operation=before)
        async with bench(tmp_path / str(at), TEXT, store=store, clock=clock) as one:
            await one.signal("door", "verdict", {})
            left = at
            try:
                run = await one.start("door")
            except StoreUnavailable:
                left = -1
                continue
            left = -1
            for _ in range(3):
                await one.sweep()
            steps = await one.steps(run)
            assert steps["look"]["status"] == "succeeded"
            # What had begun and may not be done twice is not done again.
            interrupted = steps["tell"]["error"] is not None and steps["tell"]["error"]["code"] == "step_interrupted"
            assert steps["tell"]["status"] == "succeeded" or interrupted
            assert one.sent.commands.count(("told", {"status": "succeeded"})) <= 1
            assert await one.keys("driving/") + await one.keys("ready/") == []


async def test_a_store_of_a_newer_build_is_refused_at_start(tmp_path: Path) -> None:
    store = MemoryStore()
    await store.create("meta/format", b'{"v":1,"at":"meta/format","format":2,"writer":"wayside 9.0","more":1}')
    with pytest.raises(FormatTooNew, match=r"wayside 9\.0"):
        async with running(tmp_path, store):
            pass


# -- stopping --------------------------------------------------------------------------------------------------------

SLOW = """
name: slow
inputs: { type: object }
jobs: [ { name: main, steps: [ { name: work, task: { type: shell, run: [sleep, "300"] } } ] } ]
"""


async def test_stopping_abandons_what_does_not_end_and_the_next_start_says_so(tmp_path: Path) -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    locks = tmp_path / "locks"
    async with bench(tmp_path / "a", SLOW, store=store, clock=clock, locks=locks, label="a") as one:
        run = await one.begin("slow")
        async with asyncio.timeout(PATIENCE):
            while (await one.statuses(run))["work"] != "running":
                await one.engine.wait_change(run, (await one.engine.events(run))[-1]["seq"], 0.2)
    async with bench(tmp_path / "b", SLOW, store=store, clock=clock, locks=locks, label="b") as after:
        await after.sweep()
        await after.sweep()
        assert (await after.steps(run))["work"]["error"]["code"] == "step_interrupted"
        assert await after.status(run) == "failed"
        assert await after.keys("driving/") == []


async def test_nothing_new_is_begun_once_the_engine_stops(tmp_path: Path) -> None:
    async with bench(tmp_path, TEXT) as one:
        await one.engine.drivers.stop(0)
        run = await one.engine.start_run("door", {}, by="test")
        assert await one.kinds(run) == ["created"]
        assert one.engine.drivers._active == {}


async def test_drivers_keep_nothing_of_runs_that_have_ended(tmp_path: Path) -> None:
    async with bench(tmp_path, TEXT) as one:
        for _ in range(50):
            await one.signal("door", "verdict", {})
            await one.start("door")
        assert one.engine.drivers._active == {}
        assert one.engine.drivers._tasks == set()
        assert dict(one.engine.drivers._faults) == {}


async def test_resuming_a_run_by_hand_does_for_it_what_the_sweep_does(tmp_path: Path) -> None:
    async with bench(tmp_path, TEXT) as one:
        run = await one.start("door")
        one.advance(60)
        await one.engine.resume(run)
        await one.quiet()
        assert await one.status(run) == "succeeded"
        assert one.sent.commands == [("told", {"status": "failed"})]
        with pytest.raises(NotFound):
            await one.engine.resume("z" * 26)


async def test_waiting_for_a_change_ends_with_it_or_with_the_time(tmp_path: Path) -> None:
    async with bench(tmp_path, TEXT) as one:
        run = await one.start("door")
        seq = (await one.engine.events(run))[-1]["seq"]
        await one.engine.wait_change(run, seq, 0.01)
        await one.engine.wait_change(run, seq - 1, 3_600)
        assert (await one.engine.events(run))[-1]["seq"] == seq
