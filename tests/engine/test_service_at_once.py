"""A signal over a store that does it at one moment: who hears of it when, and that a failed commit leaves nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from engine import names
from engine.clock import SystemSource
from engine.errors import StoreUnavailable
from engine.events import EngineEvent
from engine.results import Answer, SignalIdReused, Taken
from engine.service import Engine, EngineSettings
from engine.store.base import Record
from engine.store.sqlite import SqliteStore
from tests.support.bench import Sent, catalog, request

TEXT = """
name: door
jobs:
  - name: main
    steps:
      - name: look
        task: { type: wait_for_signal, key: verdict, acceptEarly: 30, timeout: 60 }
"""
PATIENCE = 20.0


@dataclass
class Listener:
    """Notes what it hears in which way, and asks at that time whether somebody else sees the outcome."""

    visible: Callable[[str], bool]
    heard: list[tuple[str, str, bool]] = field(default_factory=list)

    def note(self, event: EngineEvent) -> None:
        if event.action == "wait.settled":
            self.heard.append(("note", event.action, self.visible(event.wait)))

    def note_within(self, event: EngineEvent) -> None:
        self.heard.append(("within", event.action, self.visible(event.wait)))

    def note_after(self, event: EngineEvent) -> None:
        self.heard.append(("after", event.action, self.visible(event.wait)))


@dataclass
class House:
    engine: Engine
    store: SqliteStore
    listener: Listener

    async def suspended(self) -> str:
        """Start a run, and give its id once it waits."""
        run = await self.engine.start_run("door", {}, by="test")
        async with asyncio.timeout(PATIENCE):
            while (await self.engine.run(run))["status"] != "suspended":
                await self.engine.wait_change(run, len(await self.engine.events(run)), 0.2)
        return run


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    store = SqliteStore(tmp_path / "w.db")

    def visible(wait: str) -> bool:
        other = store._file.connect(read_only=True)
        try:
            return bool(other.execute("SELECT 1 FROM records WHERE key = ?", (names.outcome(wait),)).fetchall())
        finally:
            other.close()

    listener = Listener(visible)
    settings = EngineSettings(sweep_interval_seconds=3_600)
    engine = Engine(
        store,
        catalog(tmp_path / "workflows", [TEXT]),
        observer=listener,
        publisher=Sent(),
        source=SystemSource(),
        settings=settings,
    )
    async with engine:
        yield House(engine, store, listener)
    await store.close()


async def test_what_is_stored_along_hears_before_the_commit_and_everybody_else_after_it(house: House) -> None:
    run = await house.suspended()
    answers: list[tuple[Answer, int]] = []
    answer = await house.engine.signal_key(
        "door", "verdict", request({}), told=lambda told: answers.append((told, len(house.listener.heard)))
    )
    assert isinstance(answer, Taken)
    assert answer.state == "delivered"
    # The event of the answer comes behind those of what was done.
    assert answers == [(answer, 1)]
    assert house.listener.heard[:2] == [("within", "wait.settled", False), ("after", "wait.settled", True)]
    async with asyncio.timeout(PATIENCE):
        while (await house.engine.run(run))["status"] != "succeeded":
            await house.engine.wait_change(run, len(await house.engine.events(run)), 0.2)


async def test_a_commit_that_fails_leaves_the_wait_open_and_nobody_hears_that_it_was_settled(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.store.sqlite import batch

    run = await house.suspended()

    def full(_: object, items: Sequence[object], __: object) -> list[Record]:
        if items:
            raise StoreUnavailable("the disk is full")
        return []

    with monkeypatch.context() as patched:
        patched.setattr(batch, "insert", full)
        with pytest.raises(StoreUnavailable, match="the disk is full"):
            await house.engine.signal_key("door", "verdict", request({}))
    assert [way for way, _, _ in house.listener.heard] == ["within"]
    assert (await house.engine.run(run))["status"] == "suspended"
    answer = await house.engine.signal_key("door", "verdict", request({}))
    assert isinstance(answer, Taken)
    assert answer.state == "delivered"


async def test_an_identified_signal_is_one_commit_with_its_attempt_and_its_repeat_is_known(house: House) -> None:
    first = await house.engine.signal_key("door", "verdict", request({"n": 1}, signal_id="s-1"))
    assert isinstance(first, Taken)
    stamps = {
        record.stored_at for prefix in ("sent/", "pending/", "early/") for record in await house.store.list(prefix)
    }
    assert len(stamps) == 1
    again = await house.engine.signal_key("door", "verdict", request({"n": 1}, signal_id="s-1"))
    assert isinstance(again, Taken)
    assert (again.duplicate, again.receipt) == (True, first.receipt)
    other = await house.engine.signal_key("door", "verdict", request({"n": 2}, signal_id="s-1"))
    assert isinstance(other, SignalIdReused)


async def test_many_at_once_for_one_key_are_decided_one_after_the_other(house: House) -> None:
    await house.suspended()
    answers = await asyncio.gather(*(house.engine.signal_key("door", "verdict", request({"n": n})) for n in range(50)))
    states = [answer.state for answer in answers if isinstance(answer, Taken)]
    assert states == ["delivered", "held"]
    assert isinstance(answers[0], Taken)
