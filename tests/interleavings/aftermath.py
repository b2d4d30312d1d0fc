"""I6: what becomes of the store when every player has ended or died, and one fresh instance sweeps.

`Aftermath.check` lets the sweep run once where it is, then with the clock moving to whatever is due next until nothing
is; for every `REMOVED_EVERY`th store it then removes every run and does the same. It is deterministic, and every
store is looked at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from engine import names, records, removal
from engine.clock import derived_id
from engine.decisions.fold import RunState, fold
from engine.limits import REMOVAL_GRACE_SECONDS
from engine.records import Accepted, Claim, Pending
from engine.results import Taken
from engine.store.base import Record
from engine.store.memory import ManualClock, MemoryStore
from tests.interleavings.invariants import Violation, check, stuck
from tests.interleavings.ledger import Told
from tests.interleavings.machine import GRAVES, Contents, Hands, Machine, Noted, StepSource
from tests.interleavings.programs import one_pass
from tests.interleavings.view import decoded, marker

_INDEXES = ("open/", "ready/", "driving/", "early/", "due/", "removing/")
_REGISTRY = ("changes", "devices")
_MAX_MOVES = 60
# Removing everything takes the longest by far and differs the least: it is done for every so many stores.
REMOVED_EVERY = 5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Aftermath:
    """Sweeps what a schedule leaves behind. `count` says how many stores it has looked at."""

    def __init__(self, machine: Machine) -> None:
        self.count = 0
        self._clock = ManualClock(machine.start)
        self._known: dict[tuple[int, datetime], Violation | None] = {}

    def check(self, contents: Contents, now: datetime, said: tuple[Any, ...]) -> Violation | None:
        """Tell what is stuck, lost or left over, if anything is."""
        key = (contents.mark, now)
        if key not in self._known:
            self.count += 1
            self._known[key] = None
            whole = self.count % REMOVED_EVERY == 1
            self._known[key] = _Aftermath(self._clock, contents, now, said, whole=whole).check()
        return self._known[key]


class _Aftermath:
    def __init__(
        self, clock: ManualClock, contents: Contents, now: datetime, said: tuple[Any, ...], *, whole: bool
    ) -> None:
        self.whole = whole
        self.clock = clock
        self.clock.set(now)
        self.store = MemoryStore(clock)
        self.store._shelf.records = dict(contents.records)
        self.store._shelf.keys = list(contents.keys)
        self.graves = list(contents.graves)
        self.said = said
        self.passes = 0
        self.mark = contents.mark

    def check(self) -> Violation | None:
        for found in self._findings():
            return found
        return None

    def _findings(self) -> Iterator[Violation]:
        yield from self._pass()
        yield from (Violation("I6", what) for what in stuck(self._records(), driven=True))
        yield from self._until_quiet()
        yield from (Violation("I6", what) for what in [*self._unended(), *self._unapplied(), *self._left()])
        yield from (Violation("I3", what) for what in [*self._undecided(), *self._untold()])
        if not self.whole:
            return
        for run in self._runs():
            self._do(run)
        yield from self._until_quiet()
        yield from (Violation("I6", what) for what in self._remains())

    # -- doing -------------------------------------------------------------------------------------------------

    def _hands(self) -> Hands:
        self.passes += 1
        name = "after-" + derived_id(str(self.mark), str(self.passes))[:10]
        return Hands(name, self.store, StepSource(name, self._monotonic))

    def _monotonic(self) -> float:
        return (self.clock.now() - _EPOCH).total_seconds()

    def _pass(self) -> Iterator[Violation]:
        """Do one pass of a sweep whose instance knows that all others are dead; then look at what it left."""
        before = dict(self.store._shelf.records)
        hands = self._hands()
        _finish(one_pass(hands, is_dead=lambda _: True))
        now = self.store._shelf.records
        self.said += tuple(hands.said)
        self.graves += [before[key] for key in before if key.startswith(GRAVES) and key not in now]
        violation = check(now, self.graves, self.said)
        if violation is not None:
            yield Violation(violation.invariant, f"after the sweep, {violation.what}")

    def _do(self, run: str) -> None:
        hands = self._hands()
        _finish(removal.begin(hands.actor(), run, "aftermath"))

    def _until_quiet(self) -> Iterator[Violation]:
        """Sweep whenever something is due, until nothing is; then once more when the removal grace has passed."""
        for _ in range(_MAX_MOVES):
            due = next((key for key in self.store._shelf.keys if key.startswith(names.DUE)), None)
            waiting = any(key.startswith(_INDEXES) for key in self.store._shelf.keys)
            if due is None and not waiting:
                return
            moment = self.clock.now() + timedelta(seconds=REMOVAL_GRACE_SECONDS + 1)
            if due is not None:
                minute = int(due.split("/", 2)[1])
                moment = _EPOCH + timedelta(minutes=minute + 1, seconds=1)
            self.clock.set(max(moment, self.clock.now() + timedelta(seconds=10)))
            keys = list(self.store._shelf.keys)
            yield from self._pass()
            if due is None and keys == self.store._shelf.keys:
                return

    # -- looking -----------------------------------------------------------------------------------------------

    def _records(self) -> dict[str, Record]:
        return self.store._shelf.records

    def _runs(self) -> list[str]:
        return sorted({names.run_of(key) for key in self._records() if key.startswith(names.RUNS)})

    def _state(self, run: str) -> RunState | None:
        log = [record for key, record in sorted(self._records().items()) if key.startswith(names.log(run))]
        return fold(run, (records.event(record) for record in log))

    def _unended(self) -> Iterator[str]:
        """I6: when all deadlines have passed, every run has ended."""
        for run in self._runs():
            state = self._state(run)
            if state is not None and state.phase != "ended":
                yield f"the run {run} is {state.phase} for ever"

    def _unapplied(self) -> Iterator[str]:
        """I6: a signal that became an outcome has moved its run, unless that was cancelled or the step run again."""
        for key, record in self._records().items():
            claim = records.key_record(record).value if key.startswith("claims/") else None
            outcome = self._records().get(names.outcome(claim.wait)) if isinstance(claim, Claim) else None
            if outcome is None or not isinstance(claim, Claim):
                continue
            state, found = self._state(claim.run), decoded(outcome)
            if state is None or state.status == "cancelled" or not isinstance(getattr(found, "value", None), Accepted):
                continue
            again = any(step.attempt > 1 for step in state.steps.values())
            if claim.wait not in state.applied and not again:
                yield f"the wait {claim.wait} accepted a signal and its run {claim.run} never heard of it"

    def _left(self) -> Iterator[str]:
        """I6: no index record stays that will never go; only a run that is there may have `claimed` records."""
        for key in self.store._shelf.keys:
            if key.startswith(_INDEXES):
                yield f"{key} is left over"
            if key.startswith("claimed/") and names.run_of(key) not in self._runs():
                yield f"{key} is left over"

    def _undecided(self) -> Iterator[str]:
        """I3: when everything has passed, no signal that was held is still held: it was taken, or a void is over it."""
        held = {each.signal for each in self.said if isinstance(each, Told) and isinstance(each.answer, Taken)}
        for key, record in self._records().items():
            if not key.startswith("pending/"):
                continue
            entry = decoded(record)
            at = names.parse_pending(key)
            value = getattr(entry, "value", None)
            if not isinstance(value, Pending) or marker(value.payload) not in held or not self._is_newest(at):
                continue
            if records.current_slot(self._top(at.key)) == at.slot:
                yield f"{marker(value.payload)} is held for ever"

    def _untold(self) -> Iterator[str]:
        """I3: a person was told of every signal that was held until it expired, before any wait took from its slot."""
        told = {each.receipt for each in self.said if isinstance(each, Noted)}
        for record in [*self.graves, *self._records().values()]:
            if not record.key.startswith("pending/"):
                continue
            value = getattr(decoded(record), "value", None)
            if not isinstance(value, Pending) or value.receipt in told:
                continue
            at = names.parse_pending(record.key)
            if records.current_slot(self._top(at.key)) == at.slot:
                yield f"{marker(value.payload)} expired and nobody was told"

    def _is_newest(self, at: names.PendingAt) -> bool:
        above = at.key.pending(at.slot, at.m + 1)
        return above not in self._records()

    def _top(self, key: names.Key) -> Any:
        found = [each for each in self.store._shelf.keys if each.startswith(key.claims)]
        return records.key_record(self._records()[found[-1]]) if found else None

    def _remains(self) -> Iterator[str]:
        """I6: with all runs removed, only what numbers the next record is left: the top of a key and of its slot."""
        for key in self.store._shelf.keys:
            kind = key.split("/", 1)[0]
            if kind in _REGISTRY:
                continue
            if kind == "claims":
                workflow, name = key.split("/")[1:3]
                top = self._top(names.Key(workflow, name))
                if names.number_of(key) == top.number and not isinstance(top.value, Claim):
                    continue
            if kind == "pending":
                at = names.parse_pending(key)
                if self._is_newest(at) and records.current_slot(self._top(at.key)) == at.slot:
                    continue
            yield f"{key} remains when all runs have been removed"


def _finish(coroutine: Any) -> None:
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise AssertionError("the memory store awaited something")
