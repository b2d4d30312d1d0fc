"""What became of every acknowledged signal: what senders were told, compared with what the store holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from engine import names, records
from engine.decisions.fold import fold
from engine.records import Accepted, Claim, Pending, Stored
from engine.store.base import Store
from engine.store.open import open_store

EARLY_SECONDS = 20


@dataclass
class Told:
    """One signal that a device was told is accepted."""

    receipt: str
    device: str
    number: int
    signal_id: str | None


class Sender(Protocol):
    """Whoever was told something."""

    name: str
    door: str
    told: list[Told]


@dataclass
class Report:
    """What the run came to."""

    kills: int = 0
    between: int = 0
    told: int = 0
    outcomes: int = 0
    held: int = 0
    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    repeats: int = 0
    unfinished: list[str] = field(default_factory=list)
    runs: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    doors: dict[str, Counter[str]] = field(default_factory=dict)
    applied: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether nothing was lost, applied twice or answered otherwise when sent again, and every run ended."""
        return not (self.lost or self.twice or self.unfinished or self.wrong)

    def lines(self) -> list[str]:
        """Say it in words."""
        share = 100 * self.outcomes / max(1, self.told)
        return [
            f"kills                        {self.kills}, of them between commit and PUBACK {self.between}",
            f"signals told accepted        {self.told}",
            f"  outcome of exactly one wait {self.outcomes} ({share:.1f} %)",
            f"  held within its limit       {self.held}",
            f"  lost                        {len(self.lost)} {self.lost[:5]}",
            f"  identified, applied twice   {len(self.twice)} {self.twice[:5]}",
            f"repeats of unidentified       {self.repeats}",
            f"runs                          {dict(self.runs)}, not ended {len(self.unfinished)} {self.unfinished[:5]}",
            f"answers                       {dict(self.answers)}",
            *(f"by {door:<26} {dict(counts)}" for door, counts in self.doors.items()),
        ]


async def accepted(store: Store) -> list[Accepted]:
    """Give the outcomes by which waits took a signal."""
    found = []
    for record in await store.list("outcomes/"):
        outcome = records.outcome(record)
        assert isinstance(outcome, Stored)
        if isinstance(outcome.value, Accepted):
            found.append(outcome.value)
    return found


async def judge(data: Path, everyone: Sequence[Sender], report: Report, *, url: str = "") -> None:
    """Compare what devices were told with what the store holds: the one that `url` names, or the directory's own."""
    store = open_store(url or str(data / "wayside.db"))
    try:
        applied = report.applied = Counter(each.receipt for each in await accepted(store))
        await _runs(store, report)
        told = {told.receipt: told for each in everyone for told in each.told}
        report.told = len(told)
        report.twice = [receipt for receipt, times in applied.items() if times > 1]
        door_of = {each.name: each.door for each in everyone}
        for receipt, signal in told.items():
            counts = report.doors.setdefault(door_of[signal.device], Counter())
            if applied[receipt]:
                report.outcomes += 1
                counts["applied once"] += applied[receipt] == 1
            elif await _was_held(store, receipt, signal):
                report.held += 1
                counts["held"] += 1
            else:
                report.lost.append(f"{receipt} of {signal.device} number {signal.number}")
        unidentified = Counter((each.device, each.number) for each in told.values() if each.signal_id is None)
        report.repeats = sum(times - 1 for times in unidentified.values())
    finally:
        await store.close()


async def _runs(store: Store, report: Report) -> None:
    logs: dict[str, list[Stored[records.Event]]] = {}
    for record in await store.list(names.RUNS):
        logs.setdefault(names.run_of(record.key), []).append(records.event(record))
    for run, events in logs.items():
        state = fold(run, events)
        assert state is not None
        report.runs[state.status] += 1
        if state.phase != "ended":
            report.unfinished.append(f"{run} {state.status}")


async def _was_held(store: Store, receipt: str, signal: Told) -> bool:
    """Tell whether a signal was held and lawfully not taken: no wait opened in time, or an earlier one was taken."""
    key = names.Key(signal.device, "verdict")
    for record in await store.list(key.slots):
        entry = records.slot_record(record)
        if not isinstance(entry, Stored) or not isinstance(entry.value, Pending) or entry.value.receipt != receipt:
            continue
        slot = names.parse_pending(record.key).slot
        for raw in await store.list(key.claims):
            claim = records.key_record(raw)
            if isinstance(claim.value, Claim) and claim.value.takes == slot:
                late = (claim.at - entry.at).total_seconds() > EARLY_SECONDS
                outcome = await store.get(names.outcome(claim.value.wait))
                return late or await _earlier_was_taken(store, outcome, slot, key, entry.number)
        return True
    # Expired and cleared away: the audit log still says so.
    return any(
        receipt.encode() in record.value and b'"signal.expired"' in record.value
        for record in await store.list(names.AUDIT)
    )


async def _earlier_was_taken(store: Store, outcome: Any, slot: int, key: names.Key, number: int) -> bool:
    found = None if outcome is None else records.outcome(outcome)
    if not isinstance(found, Stored) or not isinstance(found.value, Accepted):
        return False
    for record in await store.list(key.slot(slot)):
        entry = records.slot_record(record)
        if not isinstance(entry, Stored) or not isinstance(entry.value, Pending):
            continue
        if entry.value.receipt == found.value.receipt:
            return entry.number < number
    return False
