"""Proves that whoever watches hears of everything in order, from every instance, and never holds anybody up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from engine.events import EngineEvent, Whose
from engine.service import Engine
from engine.store.memory import ManualClock, MemoryStore
from gateway.audit import Audit, Entry
from gateway.live import Happening, Live, Subscription
from tests.support.bench import catalog, request
from tests.support.source import HandSource

PAUSE = 0.005
WORKFLOW = """\
name: door
jobs:
  - name: main
    steps:
      - name: first
        task: { type: assert, that: "${{ true }}", message: never }
      - name: answer
        dependsOn: [{ step: first }]
        task: { type: wait_for_signal, key: bell, timeout: 60 }
"""


class Nobody:
    async def publish(self, topic: str, payload: bytes, whose: Whose) -> int:
        return 0


def everything(_: Happening) -> bool:
    return True


def event(step: str = "") -> EngineEvent:
    return EngineEvent(action="step.started", workflow="door", run="r" * 26, step=step)


async def heard(subscription: Subscription, enough: Callable[[list[Happening]], bool]) -> list[Happening]:
    """Take news until there is enough."""
    found: list[Happening] = []
    async with asyncio.timeout(20):
        while not enough(found):
            found += (await subscription.news()).happenings
    return found


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(ManualClock())


@pytest.fixture
async def live(store: MemoryStore) -> AsyncIterator[Live]:
    hub = Live(store, "here", every_seconds=PAUSE)
    task = asyncio.create_task(hub.follow())
    yield hub
    task.cancel()


async def test_events_of_this_instance_come_at_once_and_in_order(live: Live) -> None:
    async with live.watch(everything) as subscription:
        for step in ("a", "b", "c"):
            live.note(event(step))
        assert [happening.step for happening in (await subscription.news()).happenings] == ["a", "b", "c"]


async def test_only_what_is_wanted_is_queued(live: Live) -> None:
    async with live.watch(lambda happening: happening.step == "b") as subscription:
        for step in ("a", "b", "c"):
            live.note(event(step))
        assert [happening.step for happening in (await subscription.news()).happenings] == ["b"]


async def test_a_slow_watcher_is_told_that_it_missed_some_and_a_quick_one_misses_nothing(live: Live) -> None:
    async with live.watch(everything, capacity=3) as slow, live.watch(everything, capacity=100) as quick:
        for step in range(10):
            live.note(event(str(step)))
        news = await slow.news()
        assert news.missed
        assert len(news.happenings) <= 3
        assert len((await quick.news()).happenings) == 10
        live.note(event("later"))
        assert not (await slow.news()).missed


async def test_nothing_is_kept_for_nobody(live: Live) -> None:
    live.note(event())
    async with live.watch(everything) as subscription:
        assert live.watchers == 1
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(subscription.news(), 4 * PAUSE)
    assert live.watchers == 0


async def test_while_nobody_watches_the_store_is_not_asked(store: MemoryStore, live: Live) -> None:
    asked: list[str] = []

    async def before(operation: str, *_: object) -> None:
        asked.append(operation)

    async with live.watch(everything):
        pass
    await asyncio.sleep(2 * PAUSE)  # the look that was under way when the last watcher left
    store.before_operation = before
    await asyncio.sleep(10 * PAUSE)
    assert asked == []


async def test_own_audit_events_are_told_once_and_the_engines_are_not_repeated(store: MemoryStore, live: Live) -> None:
    audit = Audit(store, "here", HandSource(), heard=live.stored)
    async with live.watch(everything) as subscription:
        audit.note(event())
        audit.note(EngineEvent(action="run.created", workflow="door", run="r" * 26))
        audit.add(Entry(action="signal.held", workflow="door", key="bell"))
        await audit.written()
        found = await heard(subscription, bool)
        assert [happening.action for happening in found] == ["signal.held"]


async def test_a_run_of_another_instance_is_told_step_by_step(store: MemoryStore, live: Live, tmp_path: Path) -> None:
    async with other_instance(store, tmp_path) as (engine, audit), live.watch(everything) as subscription:
        run = await engine.start_run("door", {}, by="user:test")
        await engine.settled(run)
        await audit.written()
        found = await heard(subscription, lambda told: any(it.action == "run.suspended" for it in told))
        actions = [happening.action for happening in found]
        assert actions[:2] == ["run.created", "run.resumed"]
        assert ("step.ended", "first", "succeeded") in {(it.action, it.step, it.result) for it in found}
        assert actions.index("step.ended") < actions.index("run.suspended")
        await engine.signal_key("door", "bell", request({}))
        await engine.settled(run)
        await audit.written()
        rest = await heard(subscription, lambda told: any(it.action == "run.ended" for it in told))
        assert [(it.step, it.result) for it in rest if it.action == "step.ended"] == [("answer", "succeeded")]
        assert {it.workflow for it in rest} == {"door"}


class _Other:
    def __init__(self, store: MemoryStore, directory: Path) -> None:
        source = HandSource()
        self.engine = Engine(store, catalog(directory, [WORKFLOW]), observer=self, publisher=Nobody(), source=source)
        self.audit = Audit(store, "there", source)

    def note(self, told: EngineEvent) -> None:
        self.audit.note(told)

    async def __aenter__(self) -> tuple[Engine, Audit]:
        await self.engine.__aenter__()
        return self.engine, self.audit

    async def __aexit__(self, *fault: object) -> None:
        await self.engine.__aexit__(*fault)


def other_instance(store: MemoryStore, directory: Path) -> _Other:
    return _Other(store.peer(), directory)
