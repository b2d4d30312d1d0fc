"""An engine on a bench: a store in memory, a clock to set, and everything that it tells or sends kept for a look."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.actor import Actor
from engine.events import EngineEvent, Whose
from engine.payload import Payload, parse_payload
from engine.records import Sender
from engine.results import Answer, SignalRequest
from engine.service import Engine, EngineSettings
from engine.store.base import Store
from engine.store.memory import ManualClock, MemoryStore
from engine.workflows.definition import Definition
from engine.workflows.loading import Catalog
from engine.workflows.validation import load_text
from tests.support.source import HandSource

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Heard:
    """Keeps every event that it is told."""

    def __init__(self) -> None:
        self.events: list[EngineEvent] = []

    def note(self, event: EngineEvent) -> None:
        self.events.append(event)

    def named(self, action: str) -> list[EngineEvent]:
        return [event for event in self.events if event.action == action]


class Sent:
    """Keeps every command that a workflow sends; `deaf` makes it fail."""

    def __init__(self) -> None:
        self.commands: list[tuple[str, Any]] = []

    async def publish(self, topic: str, payload: bytes, whose: Whose) -> int:
        self.commands.append((topic, json.loads(payload)))
        return 1


def payload(value: object) -> Payload:
    """Make a payload of a JSON value."""
    parsed = parse_payload(json.dumps(value).encode())
    assert isinstance(parsed, Payload)
    return parsed


def request(value: object, *, signal_id: str | None = None, device: str = "camera") -> SignalRequest:
    """Make a signal of a device."""
    return SignalRequest(sender=Sender(kind="device", id=device), payload=payload(value), signal_id=signal_id)


def definition(text: str) -> Definition:
    """Read a workflow that is known to be right."""
    loaded = load_text(text, "test.yaml")
    assert isinstance(loaded, Definition), loaded
    return loaded


def catalog(directory: Path, texts: Iterable[str]) -> Catalog:
    """Put workflows into a directory and load them."""
    directory.mkdir(parents=True, exist_ok=True)
    for text in texts:
        loaded = definition(text)
        (directory / f"{loaded.name}.yaml").write_text(text)
    found = Catalog(directory)
    found.reload()
    return found


class Bench:
    """One engine, whose sweep runs when the test says so."""

    def __init__(self, store: Store, clock: ManualClock, source: HandSource, engine: Engine) -> None:
        self.store = store
        self.clock = clock
        self.source = source
        self.engine = engine
        self.heard: Heard = engine._observer  # type: ignore[assignment]
        self.sent: Sent = engine.drivers._publisher  # type: ignore[assignment]

    async def quiet(self) -> None:
        """Return when no driver of this engine has anything to do."""
        while tasks := list(self.engine.drivers._tasks):
            await asyncio.gather(*tasks)

    def advance(self, seconds: float) -> None:
        """Let time pass, for the store and for this process."""
        self.clock.advance(seconds)
        self.source.advance(seconds)

    async def sweep(self) -> int:
        """Do one pass and what follows from it; tell how many records it looked at."""
        swept = await self.engine.sweep()
        await self.quiet()
        return swept.looked_at

    async def after(self, seconds: float) -> None:
        """Let time pass, and sweep."""
        self.advance(seconds)
        await self.sweep()

    async def start(self, workflow: str, **inputs: object) -> str:
        """Start a run and let it go as far as it goes."""
        run = await self.engine.start_run(workflow, inputs, by="test")
        await self.quiet()
        return run

    async def begin(self, workflow: str, **inputs: object) -> str:
        """Start a run, and leave it to its driver."""
        return await self.engine.start_run(workflow, inputs, by="test")

    async def signal(
        self, workflow: str, key: str, value: object, *, signal_id: str | None = None, device: str = "camera"
    ) -> Answer:
        """Send a signal by key, and let what follows happen."""
        answer = await self.engine.signal_key(workflow, key, request(value, signal_id=signal_id, device=device))
        await self.quiet()
        return answer

    async def view(self, run: str) -> dict[str, Any]:
        return await self.engine.run(run)

    async def status(self, run: str) -> str:
        return str((await self.view(run))["status"])

    async def steps(self, run: str) -> dict[str, dict[str, Any]]:
        """Show a run's steps by name."""
        return {step["name"]: step for job in (await self.view(run))["jobs"] for step in job["steps"]}

    async def statuses(self, run: str) -> dict[str, str]:
        return {name: step["status"] for name, step in (await self.steps(run)).items()}

    async def kinds(self, run: str) -> list[str]:
        """Name the events of a run's log."""
        return [event["event"] for event in await self.engine.events(run)]

    async def keys(self, prefix: str = "") -> list[str]:
        """Name what is stored under a prefix."""
        return [record.key for record in await self.store.list(prefix)]

    def actor(self) -> Actor:
        return self.engine.actor()


@asynccontextmanager
async def bench(
    directory: Path,
    *texts: str,
    store: Store | None = None,
    clock: ManualClock | None = None,
    label: str = "",
    retention_seconds: float | None = None,
    locks: Path | None = None,
    start: float = 1_000.0,
) -> AsyncIterator[Bench]:
    """Set an engine up over a memory store (or `store`), without any task of its own."""
    clock = clock or ManualClock()
    store = store or MemoryStore(clock)
    source = HandSource(start, label)
    engine = Engine(
        store,
        catalog(directory / "workflows", texts),
        observer=Heard(),
        publisher=Sent(),
        source=source,
        settings=EngineSettings(sweeps=False, retention_seconds=retention_seconds, stop_grace_seconds=0.0),
        locks=locks,
    )
    async with engine:
        yield Bench(store, clock, source, engine)


def all_values(store: MemoryStore) -> Iterator[tuple[str, bytes]]:
    """Give every record's key and value."""
    for record in store.items():
        yield record.key, record.value
