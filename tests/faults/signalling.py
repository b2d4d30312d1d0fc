"""Devices that start runs and signal them through engines in this process, whatever becomes of the store beneath.

Each signal has an id. It is sent until it is answered, to every engine at the same time, which makes all but one of
them repeats; some are refused by their schema. Afterwards what was told is compared with what is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from engine.clock import SystemSource
from engine.errors import StoreUnavailable
from engine.results import Contended, EarlySignalHeld, Taken
from engine.service import Engine, EngineSettings
from engine.store.base import Store
from tests.faults.judging import EARLY_SECONDS, Report, Told, judge
from tests.faults.kill import WORKFLOW
from tests.faults.tally import Tally
from tests.support.bench import Heard, Sent, catalog, request

T = TypeVar("T")
WAIT_SECONDS = 60
PAUSE_SECONDS = 0.05


@dataclass
class Device:
    """Who is told something: what `judge` asks for."""

    name: str
    door: str = "engine"
    told: list[Told] = field(default_factory=list)


@dataclass
class Signalling:
    """The load; `engines` share one store, each by a connection of its own."""

    engines: Sequence[Engine]
    devices: Sequence[Device]
    directory: Path
    tally: Tally = field(default_factory=Tally)
    done: asyncio.Event = field(default_factory=asyncio.Event)

    async def acknowledges(self, more: int) -> None:
        """Wait until `more` further signals have been acknowledged."""
        wanted = self.tally.acknowledged + more
        async with asyncio.timeout(60):
            while self.tally.acknowledged < wanted:
                await asyncio.sleep(0.01)

    async def feels(self, more: int = 1) -> None:
        """Wait until `more` further signals have been turned away, since the store is away."""
        wanted = self.tally.turned_away.total() + more
        async with asyncio.timeout(60):
            while self.tally.turned_away.total() < wanted:
                await asyncio.sleep(0.01)

    async def live(self, device: Device) -> None:
        """Go round until `done`: a run and the signal that it takes, both at once."""
        number = 0
        while not self.done.is_set():
            number += 1
            await asyncio.gather(self._start(device, number), self._signal(device, number))
            if number % 4 == 0:
                await self._refused(device, number)
            for engine in self.engines:
                await engine.settled(_run(device, number))

    async def _start(self, device: Device, number: int) -> None:
        engine = self.engines[number % len(self.engines)]
        run = _run(device, number)
        await _until_up(lambda: engine.start_run(device.name, {}, by=device.name, run=run), lambda: None)

    async def _signal(self, device: Device, number: int) -> None:
        """Send one signal to every engine at once: one of the attempts is first, and all have its answer."""
        receipts = await asyncio.gather(
            *(self._accepted(engine, device, number, repeat=at > 0) for at, engine in enumerate(self.engines))
        )
        device.told.append(Told(receipts[0], device.name, number, f"s{number}"))

    async def _accepted(self, engine: Engine, device: Device, number: int, *, repeat: bool) -> str:
        asked = request({"n": number, "by": device.name}, signal_id=f"s{number}", device=device.name)
        if repeat:
            self.tally.sent_again(identified=True)
        while True:
            answer = await _until_up(lambda: engine.signal_key(device.name, "verdict", asked), self._turned_away)
            match answer:
                case Taken(receipt=receipt):
                    self.tally.accept(device.name, f"s{number}", receipt.id, receipt.at.isoformat())
                    return receipt.id
                case EarlySignalHeld() | Contended():
                    # The run before has yet to take its own.
                    self.tally.refuse(type(answer).__name__)
                case _:
                    raise AssertionError(f"{device.name} {number}: {answer}")
            await asyncio.sleep(PAUSE_SECONDS)
            self.tally.sent_again(identified=True)

    async def _refused(self, device: Device, number: int) -> None:
        """Send what the schema refuses; `None` where no schema was asked, since a signal is held."""
        asked = request({"n": "none"}, signal_id=f"bad{number}", device=device.name)
        answer = await _until_up(lambda: self.engines[0].signal_key(device.name, "verdict", asked), self._turned_away)
        assert not isinstance(answer, Taken)
        self.tally.refuse(type(answer).__name__)

    def _turned_away(self) -> None:
        self.tally.turn_away("", properly=True)
        self.tally.sent_again(identified=True)

    async def ended(self) -> None:
        """Wait until no run is open."""
        async with asyncio.timeout(2 * WAIT_SECONDS):
            while await _until_up(lambda: self.engines[0].store.list("open/", limit=1), lambda: None):
                await asyncio.sleep(PAUSE_SECONDS)

    async def judged(self, store: str, url: str, capsys: pytest.CaptureFixture[str]) -> Report:
        """Compare with what is stored, print the counts under the name of the `store`, and give them."""
        report = Report()
        await judge(self.directory, self.devices, report, url=url)
        report.wrong += self.tally.wrong
        refusals = dict(self.tally.refusals)
        in_all = (
            f"  in all: signals acknowledged {report.told}, applied {report.outcomes}, held {report.held}, refused "
            f"{self.tally.refused.total()} {refusals}, repeated {self.tally.repeated.total()}; lost "
            f"{len(report.lost)}, applied twice {len(report.twice)}, runs {dict(report.runs)}"
        )
        with capsys.disabled():
            print("\n".join([f"\n  {store}", in_all, *self.tally.lines(report.applied)]))
        return report


def _run(device: Device, number: int) -> str:
    return f"{device.name}-{number}"


async def _until_up(ask: Callable[[], Awaitable[T]], faulty: Callable[[], None]) -> T:
    while True:
        try:
            return await ask()
        except StoreUnavailable:
            faulty()
        await asyncio.sleep(PAUSE_SECONDS)


@asynccontextmanager
async def signalling(directory: Path, stores: Sequence[Store], devices: int) -> AsyncIterator[Signalling]:
    """Run an engine over each of the stores, and the devices, until the block ends."""
    names = [f"work-{number:02d}" for number in range(devices)]
    texts = [WORKFLOW.format(name=name, early=EARLY_SECONDS, timeout=WAIT_SECONDS) for name in names]
    known = catalog(directory / "workflows", texts)
    settings = EngineSettings(sweep_interval_seconds=0.5, heartbeat_seconds=1.0)
    async with AsyncExitStack() as stack:
        engines = []
        for store in stores:
            stack.push_async_callback(store.close)
            made = Engine(store, known, observer=Heard(), publisher=Sent(), source=SystemSource(), settings=settings)
            engines.append(await stack.enter_async_context(made))
        load = Signalling(engines, [Device(name) for name in names], directory)
        async with asyncio.TaskGroup() as group:
            for device in load.devices:
                group.create_task(load.live(device), name=device.name)
            yield load
            load.done.set()
        await load.ended()
