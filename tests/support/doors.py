"""What stands behind a door, over a memory store: a registry, an authority, limits, an audit log, deliver."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from devices import operations
from devices.registry import Registry
from engine.errors import WaysideError
from engine.records import Stored
from engine.results import Answer, NotDeclared, SignalRequest
from engine.store.memory import ManualClock, MemoryStore
from gateway.audit import Audit, AuditEvent, read_event
from gateway.auth import Authority, Principal
from gateway.deliver import Deliver, Origin
from gateway.limits import DeviceLimits
from gateway.ports import Engine
from tests.support.source import HandSource

HTTP = Origin(door="http", address="192.0.2.1")


@dataclass(frozen=True)
class Address:
    workflow: str
    key: str | None


@dataclass(frozen=True)
class Definition:
    trigger_topic: bool


@dataclass
class Catalog:
    found: dict[str, Definition] = field(default_factory=dict)

    def get(self, name: str) -> Definition | None:
        return self.found.get(name)


@dataclass
class ScriptedEngine:
    """Answers as it was told to, and remembers what it was asked."""

    answer: Answer | WaysideError = field(default_factory=NotDeclared)
    addresses: dict[str, Address] = field(default_factory=dict)
    open_waits: list[dict[str, object]] = field(default_factory=list)
    catalog: Catalog = field(default_factory=Catalog)
    asked: list[tuple[object, ...]] = field(default_factory=list)

    def _say(self, told: Callable[[Answer], None] | None = None) -> Answer:
        if isinstance(self.answer, WaysideError):
            raise self.answer
        if told is not None:
            told(self.answer)
        return self.answer

    async def signal_key(
        self, workflow: str, key: str, request: SignalRequest, *, told: Callable[[Answer], None] | None = None
    ) -> Answer:
        self.asked.append(("signal_key", workflow, key, str(request.sender.id), request.signal_id))
        return self._say(told)

    async def signal_wait(
        self, wait: str, request: SignalRequest, *, told: Callable[[Answer], None] | None = None
    ) -> Answer:
        self.asked.append(("signal_wait", wait, request.signal_id))
        return self._say(told)

    async def address_of(self, wait: str, request: SignalRequest | None = None) -> Address | None:
        self.asked.append(("address_of", wait))
        return self.addresses.get(wait)

    async def start_run(self, workflow: str, inputs: Mapping[str, object], *, by: str, run: str | None = None) -> str:
        self.asked.append(("start_run", workflow, dict(inputs), by, run))
        self._say()
        return run or "r" * 26

    async def waits(self, *, workflow: str | None = None, key: str | None = None) -> Mapping[str, object]:
        self.asked.append(("waits", workflow, key))
        self._say()
        return {"waits": self.open_waits, "pending": [], "damaged": []}


class Gatehouse:
    """All that a door needs, with a clock and a source to set. `reads` notes the store's operations."""

    def __init__(self, engine: Engine, store: MemoryStore | None = None) -> None:
        self.store = store or MemoryStore(ManualClock())
        self.source = HandSource()
        self.audit = Audit(self.store, "one", self.source)
        self.registry = Registry(self.store, self.source, noted=self.audit.revised)
        self.authority = Authority(self.registry, self.source)
        self.limits = DeviceLimits()
        self.deliver = Deliver(engine, self.authority, self.limits, self.audit, self.source)

    async def device(self, name: str, *grants: str) -> Principal:
        issued = await operations.add(self.registry, name, grants=grants, by="user:admin")
        return Principal("device", name, issued.entry.secrets[0].since)

    async def operator(self, name: str, *rights: str) -> Principal:
        issued = await operations.add_operator(self.registry, name, rights=rights, by="user:admin")  # type: ignore[arg-type]
        return Principal("user", name, issued.entry.secrets[0].since)

    async def events(self, action: str = "") -> list[AuditEvent]:
        """Give the audit events that are stored: nothing is written for the asking."""
        found = [read_event(record) for record in await self.store.list("audit/")]
        return [event.value for event in found if isinstance(event, Stored) and event.value.action.startswith(action)]
