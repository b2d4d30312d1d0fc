"""The invariants I1 to I8, as functions over what the store holds, what it held, and what senders were told.

They read records and decide for themselves: nothing here calls the engine's decisions, so that a mistake in those is
not repeated. Each check is given a `View` and yields what is wrong; `check` names the first invariant that fails.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any

import msgspec

from engine import names, records
from engine.decisions.fold import fold
from engine.records import (
    Accepted,
    Cancelled,
    Claim,
    Opening,
    Pending,
    StepEnded,
    Stored,
    TimedOut,
)
from engine.results import Taken
from engine.store.base import Record
from tests.interleavings.ledger import LetPass, Sent, Told
from tests.interleavings.machine import Node, Noted
from tests.interleavings.view import View, decoded, marker, view_of


@dataclass(frozen=True, slots=True)
class Violation:
    """Which invariant does not hold, and what shows it."""

    invariant: str
    what: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.what}"


# -- what a claim allows, decided again -------------------------------------------------------------------------


def fits(claim: Stored[Claim], pending: Stored[Pending]) -> bool:
    """Tell whether the wait of a claim may take this early signal: section 3, word by word."""
    limit = claim.value.accept_early
    if limit is None:
        return False
    age = (claim.at - pending.at).total_seconds()
    young = age <= min(limit, pending.value.limit)
    in_time = pending.at < claim.at + timedelta(seconds=claim.value.timeout)
    return young and in_time and _allowed(bytes(claim.value.schema), bytes(pending.value.payload))


@lru_cache(maxsize=1_000)
def _allowed(schema: bytes, payload: bytes) -> bool:
    """Check the one kind of schema that the scenarios use: `verdict` is one of an enumeration."""
    if schema == b"null":
        return True
    wanted = msgspec.json.decode(schema)["properties"]["verdict"]["enum"]
    return msgspec.json.decode(payload).get("verdict") in wanted


def pendings(slot: Mapping[int, Stored[Any]]) -> list[Stored[Pending]]:
    """Give the signals of a slot, by number."""
    return [slot[m] for m in sorted(slot) if isinstance(slot[m].value, Pending)]


def claims_of(view: View) -> Iterator[tuple[str, Stored[Claim]]]:
    """Give every claim that is or was stored, with its key."""
    return ((key, entry) for (key, _), entry in view.claims.items() if isinstance(entry.value, Claim))


# -- the invariants ---------------------------------------------------------------------------------------------


def i1(view: View) -> Iterator[str]:
    """I1: no wait has two outcomes: none was stored for it, deleted, and stored otherwise while its run's log exists.

    Voids of waits that were removed with their run are not outcomes of a wait. And what a run's log says of a step
    that waited is what the wait's outcome says: succeeded if and only if the outcome accepted a signal.
    """
    for wait in view.changed:
        if view.runs.get(view.run_of_wait.get(wait, "")):
            yield f"the outcome of {wait} changed"
    for run, log in view.runs.items():
        yield from _i1_log(view, run, log)


def _i1_log(view: View, run: str, log: list[Stored[Any]]) -> Iterator[str]:
    wait_of: dict[tuple[str, str, int], str] = {}
    for entry in log:
        match entry.value:
            case Opening(job=job, step=step, attempt=attempt, wait=wait):
                wait_of[job, step, attempt] = wait
            case StepEnded(job=job, step=step, attempt=attempt, status=status):
                wait = wait_of.get((job, step, attempt), "")
                outcome = view.outcomes.get(wait)
                if wait and outcome is None:
                    yield f"a step of {run} ended and its wait {wait} has no outcome"
                elif wait and outcome is not None and isinstance(outcome.value, Accepted):
                    if outcome.value.sender.kind != "run" and status != "succeeded":
                        yield f"a step of {run} {status} though {wait} accepted a signal"
                elif wait and status == "succeeded":
                    yield f"a step of {run} succeeded though {wait} accepted nothing"
            case _:
                pass


def i2(view: View) -> Iterator[str]:
    """I2: a key has at most one open wait: the wait of every claim below the highest ever made has an outcome.

    Nor is a wait that was never claimed, or whose claim is not the highest, registered without an outcome.
    """
    highest: dict[str, int] = {}
    for key, number in view.claims:
        highest[key] = max(number, highest.get(key, 0))
    for key, claim in claims_of(view):
        if claim.number < highest[key] and claim.value.wait not in view.outcomes:
            yield f"claim {claim.number} of {key} was superseded while its wait was open"
    by_wait = {claim.value.wait: (key, claim.number) for key, claim in claims_of(view)}
    for wait, entry in view.waits.items():
        if entry.value.key is None or wait in view.outcomes:
            continue
        if by_wait.get(wait, ("", 0))[1] != highest.get(by_wait.get(wait, ("", 0))[0]):
            yield f"{wait} is registered and does not hold its key"


def i3(view: View) -> Iterator[str]:
    """I3: nobody was told a thing of a signal that is not so.

    Delivered: the signal is the outcome of exactly one wait. Held: it was stored as pending, and is the outcome of
    at most one wait; once a claim takes from its slot and has an outcome, that is this signal, or the claim does not
    allow it (schema, age, acceptEarly), or it was cancelled, or a claim under `latest` took a newer one, or one under
    `first` an older one that it allows. The first claim after it takes from its slot. Expired (audited so as well) and
    superseded: it is the outcome of no wait. And no wait has taken an early signal that its claim does not allow, or
    that is not the one its policy prefers.
    """
    receipts = {entry.value.receipt: wait for taken in view.accepted.values() for wait, entry in taken}
    for told in view.said:
        if isinstance(told, Noted) and told.receipt in receipts:
            yield f"the signal {told.receipt} was audited as expired and is the outcome of {receipts[told.receipt]}"
        if not isinstance(told, Told) or not isinstance(told.answer, Taken):
            continue
        waits = [wait for wait, _ in view.accepted.get(told.signal, ())]
        match told.answer.state:
            case "delivered" if len(waits) != 1:
                yield f"{told.signal} was told delivered and is the outcome of {len(waits)} waits"
            case "held":
                yield from _i3_held(view, told.signal, waits)
            case "expired" | "superseded" if waits:
                yield f"{told.signal} was told {told.answer.state} and is the outcome of {waits[0]}"
            case _:
                pass
    yield from _i3_taken(view)


def _i3_held(view: View, signal: str, waits: list[str]) -> Iterator[str]:
    if len(waits) > 1:
        yield f"{signal} was told held and is the outcome of {len(waits)} waits"
    stored = [
        (key, slot, entry)
        for (key, slot), entries in view.slots.items()
        for entry in pendings(entries)
        if marker(entry.value.payload) == signal
    ]
    if not stored:
        yield f"{signal} was told held and is not stored"
    # A signal may have left a dead record in a slot that is behind, before the one that its answer speaks of.
    if stored and not waits and all(_passed_over(view, *each) for each in stored):
        yield f"{signal} was told held, the wait that takes it allows it and has another outcome"


def _passed_over(view: View, key: str, slot: int, held: Stored[Pending]) -> bool:
    """Tell whether a wait takes from the slot, allows the signal, and was settled without it for no good reason.

    The slot is named after the record that left it; the first claim above that record must take from it.
    """
    following = [claim for of, claim in claims_of(view) if of == key and claim.number > slot]
    heir = min(following, key=lambda claim: claim.number, default=None)
    if heir is not None and heir.value.takes != slot and fits(heir, held):
        return True
    for claim in (claim for of, claim in claims_of(view) if of == key and claim.value.takes == slot):
        outcome = view.outcomes.get(claim.value.wait)
        if outcome is None or not fits(claim, held) or isinstance(outcome.value, Cancelled):
            return False
        allowed = {
            marker(each.value.payload): each.number for each in pendings(view.slots[key, slot]) if fits(claim, each)
        }
        taken = allowed.get(marker(outcome.value.payload)) if isinstance(outcome.value, Accepted) else None
        preferred = taken is not None and (taken > held.number) == (claim.value.policy == "latest")
        return not preferred
    return False


def _i3_taken(view: View) -> Iterator[str]:
    for key, claim in claims_of(view):
        outcome = view.outcomes.get(claim.value.wait)
        if outcome is None or not isinstance(outcome.value, Accepted) or outcome.value.received is None:
            continue
        slot = pendings(view.slots.get((key, claim.value.takes), {}))
        taken = [entry for entry in slot if entry.value.receipt == outcome.value.receipt]
        if not taken or not any(fits(claim, entry) for entry in taken):
            yield f"{claim.value.wait} took an early signal that its claim does not allow"
        elif claim.value.policy == "first" and any(
            fits(claim, entry) for entry in slot if entry.number < taken[0].number
        ):
            yield f"{claim.value.wait} took an early signal that was not the first"


def i4(view: View) -> Iterator[str]:
    """I4: a signal is the outcome of at most one wait, whichever of its messages and whoever applied it."""
    for signal, taken in view.accepted.items():
        if len({wait for wait, _ in taken}) > 1:
            yield f"{signal} is the outcome of {' and '.join(sorted({wait for wait, _ in taken}))}"


def i5(view: View) -> Iterator[str]:
    """I5: a wait with an applicable pending signal never times out."""
    for key, claim in claims_of(view):
        outcome = view.outcomes.get(claim.value.wait)
        if outcome is None or not isinstance(outcome.value, TimedOut):
            continue
        for entry in pendings(view.slots.get((key, claim.value.takes), {})):
            if fits(claim, entry):
                yield f"{claim.value.wait} timed out beside {marker(entry.value.payload)}, which it allows"


def i7(view: View) -> Iterator[str]:
    """I7: no number of a claim or of a pending record is used twice; a void over a deleted number uses nothing."""
    yield from view.reused


def i8(view: View) -> Iterator[str]:
    """I8: a signal of which every message was refused is the outcome of no wait, and no wait can take it any more.

    A record of it may only be in a slot that is behind, whose claim has its outcome or does not allow it.
    """
    sent: defaultdict[str, int] = defaultdict(int)
    told: defaultdict[str, list[Any]] = defaultdict(list)
    for said in view.said:
        match said:
            case Sent(signal):
                sent[signal] += 1
            case Told(signal, answer):
                told[signal].append(answer)
            case _:
                pass
    for signal, answers in told.items():
        if len(answers) < sent[signal] or any(isinstance(answer, Taken) for answer in answers):
            continue
        if view.accepted.get(signal):
            yield f"{signal} was refused and is the outcome of {view.accepted[signal][0][0]}"
        yield from _i8_left(view, signal)


def _i8_left(view: View, signal: str) -> Iterator[str]:
    for (key, slot), entries in view.live_slots.items():
        for entry in pendings(entries):
            if marker(entry.value.payload) != signal:
                continue
            taker = [claim for of, claim in claims_of(view) if of == key and claim.value.takes == slot]
            if not taker:
                yield f"{signal} was refused and waits in slot {slot} of {key}"
            elif taker[0].value.wait not in view.outcomes and fits(taker[0], entry):
                yield f"{signal} was refused and {taker[0].value.wait} can take it"


def revoked(view: View) -> Iterator[str]:
    """R: a gateway that looks for changes after a device was revoked lets it do nothing any more."""
    for said in view.said:
        if not isinstance(said, LetPass):
            continue
        at = view.revoked.get(said.device)
        if at is not None and said.since > at:
            yield f"{said.device} was let pass at {said.since:%H:%M:%S} and was revoked at {at:%H:%M:%S}"


def log_is_whole(view: View) -> Iterator[str]:
    """L: a run's log has no gap, except that its beginning goes first when it is removed."""
    for run, log in view.runs.items():
        numbers = [entry.number for entry in log]
        if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
            yield f"the log of {run} has a gap: {numbers}"


INVARIANTS: dict[str, Callable[[View], Iterator[str]]] = {
    "I1": i1,
    "I2": i2,
    "I4": i4,
    "I3": i3,
    "I5": i5,
    "I7": i7,
    "I8": i8,
    "L": log_is_whole,
    "R": revoked,
}


def check(live: Mapping[str, Record], graves: Iterable[Record], said: tuple[Any, ...]) -> Violation | None:
    """Give the first violation of what must hold in every state (I6 is for when nobody acts: see `aftermath`)."""
    view = view_of(live, graves, said)
    for name, invariant in INVARIANTS.items():
        for what in invariant(view):
            return Violation(name, what)
    return None


def stuck(live: Mapping[str, Record], *, driven: bool) -> Iterator[str]:
    """I6: tell of runs that have a reason to go on and do not; with `driven`, also of those that a driver should have.

    Asked after one pass with nobody else alive; and, without a pass, when every player has ended in peace and each of
    them lets go on what it gave a reason to.
    """
    logs: dict[str, list[Record]] = defaultdict(list)
    for key in sorted(live):
        if key.startswith(names.RUNS):
            logs[names.run_of(key)].append(live[key])
    for run, log in logs.items():
        state = fold(run, (records.event(record) for record in log))
        if state is None:
            continue
        if driven and state.phase in ("waiting_for_driver", "driven"):
            yield f"the run {run} is {state.phase} and nobody drives it"
        if state.phase == "suspended":
            for step in state.open_waits():
                if names.outcome(step.wait or "") in live:
                    yield f"the wait {step.wait} is settled and its run {run} did not go on"


def fault_of(node: Node) -> Violation | None:
    """Tell of a player whose program raised what no caller expects."""
    if node.fault is None:
        return None
    return Violation("fault", f"{node.player.name} raised {type(node.fault).__name__}: {node.fault}")


__all__ = ["INVARIANTS", "Sent", "Told", "View", "Violation", "check", "decoded", "fault_of", "stuck", "view_of"]
