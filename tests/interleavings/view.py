"""The store, sorted by what the invariants ask for, deleted records included."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec

from devices import model
from engine import names, records
from engine.records import Accepted, Cancelled, Claim, Opening, Stored, Unreadable, Void
from engine.store.base import Record


@lru_cache(maxsize=200_000)
def decoded(record: Record) -> Stored[Any] | Unreadable | None:
    """Read a record as what its key says that it is; None for index records."""
    match record.key.split("/", 1)[0]:
        case "claims":
            return records.key_record(record)
        case "pending":
            return records.slot_record(record)
        case "outcomes":
            return records.outcome(record)
        case "sent":
            return records.chain_record(record)
        case "runs":
            return records.event(record)
        case "waits":
            return records.registration(record)
        case _:
            return None


def marker(payload: msgspec.Raw) -> str:
    """Read which signal a payload belongs to: every signal of a scenario has its own `n`."""
    return str(_marker(bytes(payload)))


@lru_cache(maxsize=1_000)
def _marker(payload: bytes) -> str:
    value = msgspec.json.decode(payload)
    return str(value.get("n", "child"))


@dataclass(slots=True)
class View:
    """The store and the ledger, sorted by what the invariants ask for. `dead` parts are of deleted records."""

    claims: dict[tuple[str, int], Stored[Any]] = field(default_factory=dict)
    slots: dict[tuple[str, int], dict[int, Stored[Any]]] = field(default_factory=lambda: defaultdict(dict))
    outcomes: dict[str, Stored[Any]] = field(default_factory=dict)
    live_slots: dict[tuple[str, int], dict[int, Stored[Any]]] = field(default_factory=lambda: defaultdict(dict))
    live_outcomes: dict[str, Stored[Any]] = field(default_factory=dict)
    top: dict[str, int] = field(default_factory=dict)
    runs: dict[str, list[Stored[Any]]] = field(default_factory=lambda: defaultdict(list))
    waits: dict[str, Stored[Any]] = field(default_factory=dict)
    reused: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    accepted: dict[str, list[tuple[str, Stored[Any]]]] = field(default_factory=lambda: defaultdict(list))
    run_of_wait: dict[str, str] = field(default_factory=dict)
    revoked: dict[str, datetime] = field(default_factory=dict)
    said: tuple[Any, ...] = ()

    def add(self, record: Record, *, dead: bool) -> None:
        found = decoded(record)
        if record.key.startswith("devices/"):
            self._add_device(record)
        if found is None:
            return
        assert isinstance(found, Stored), f"a record that cannot be read: {record.key}"
        kind, _, rest = record.key.partition("/")
        match kind:
            case "claims":
                self._add_claim(rest.rsplit("/", 1)[0], found, dead=dead)
            case "pending":
                self._add_slot(record.key, found, dead=dead)
            case "outcomes":
                self._add_outcome(rest, found, dead=dead)
            case "runs":
                self.runs[rest.rsplit("/", 1)[0]].append(found)
            case "waits":
                self.waits[rest] = found
            case _:
                pass

    def _add_device(self, record: Record) -> None:
        found = model.entry_of(record)
        assert isinstance(found, model.Device)
        if not found.secrets:
            self.revoked[found.name] = record.stored_at

    def _add_claim(self, key: str, found: Stored[Any], *, dead: bool) -> None:
        if (key, found.number) in self.claims:
            self.reused.append(f"claim {found.number} of {key}")
        self.claims[key, found.number] = found
        if not dead:
            self.top[key] = max(found.number, self.top.get(key, 0))
        if isinstance(found.value, Claim):
            self.run_of_wait[found.value.wait] = found.value.run

    def _add_slot(self, text: str, found: Stored[Any], *, dead: bool) -> None:
        at = names.parse_pending(text)
        slot = self.slots[f"{at.key.workflow}/{at.key.key}", at.slot]
        # A void takes a number that nobody may have: over a number that was deleted it takes nothing from anybody.
        if at.m in slot and not isinstance(found.value, Void) and not isinstance(slot[at.m].value, Void):
            self.reused.append(f"number {at.m} of slot {at.slot} of {at.key.workflow}/{at.key.key}")
        if not (at.m in slot and isinstance(found.value, Void)):
            slot[at.m] = found
        if not dead:
            self.live_slots[f"{at.key.workflow}/{at.key.key}", at.slot][at.m] = found

    def _add_outcome(self, wait: str, found: Stored[Any], *, dead: bool) -> None:
        void = isinstance(found.value, Cancelled) and found.value.why == "void"
        if wait in self.outcomes and not void and self.outcomes[wait].value != found.value:
            self.changed.append(wait)
        self.outcomes.setdefault(wait, found)
        if not dead:
            self.live_outcomes[wait] = found
        # What is stored for a wait that had its outcome, and was removed with it, is the outcome of no wait.
        first = self.outcomes[wait].value == found.value
        if first and isinstance(found.value, Accepted) and found.value.sender.kind != "run":
            self.accepted[marker(found.value.payload)].append((wait, found))


def view_of(live: Mapping[str, Record], graves: Iterable[Record], said: tuple[Any, ...]) -> View:
    """Sort the records and the ledger."""
    view = View(said=said)
    for record in graves:
        view.add(record, dead=True)
    for key in live:
        view.add(live[key], dead=False)
    for run, log in view.runs.items():
        log.sort(key=lambda entry: entry.number)
        for entry in log:
            if isinstance(entry.value, Opening):
                view.run_of_wait[entry.value.wait] = run
    return view
