"""Runs: their log, who may drive one, and how one is started, ended, cancelled and retried.

Whoever appends an event first decides; a driver that finds an event which it did not write stops driving.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import msgspec

from engine import names, records
from engine.actor import Actor, Owed
from engine.decisions.again import steps_to_retry
from engine.decisions.continuation import Blocked, continuation
from engine.decisions.fold import RunState, fold
from engine.decisions.moot import children, key_of, moot
from engine.errors import Conflict, LostRace, NotFound, UnreadableRecord
from engine.events import Action, EngineEvent
from engine.limits import MAX_EVENTS, MAX_ROUNDS
from engine.records import (
    Accepted,
    Cancelled,
    CancelReason,
    Created,
    Ended,
    Event,
    Outcome,
    Ready,
    Resumed,
    Retried,
    RunCancelled,
    Sender,
    Stored,
    Suspended,
    Unreadable,
)
from engine.store.base import Record
from engine.waits import close
from engine.workflows.definition import Definition, WaitTask

NO_DEAD: frozenset[str] = frozenset()


async def load(actor: Actor, run: str) -> RunState | None:
    """Fold a run's log; None when there is none (any more). Raise `UnreadableRecord` for one that is damaged."""
    found = await actor.store.list(names.log(run), limit=MAX_EVENTS)
    try:
        return fold(run, (records.event(record) for record in found))
    except UnreadableRecord:
        if await exists(actor, run):
            raise
        # A log is removed from its first event on, and the rest was read as it went.
        return None


async def exists(actor: Actor, run: str) -> bool:
    """Tell whether a run's log is there."""
    return await actor.store.get(names.event(run, 1)) is not None


def tell(actor: Actor, run: RunState, action: Action, **told: str) -> None:
    """Tell the surroundings of something that happened to a run; `told` are more of an event's fields."""
    actor.note(EngineEvent(action=action, workflow=run.workflow, run=run.run, **told))


# -- starting ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """A run to be: everything in it has been checked."""

    run: str
    definition: Definition
    inputs: bytes
    by: str
    parent_run: str | None = None
    parent_wait: str | None = None
    depth: int = 0


async def start(actor: Actor, new: NewRun) -> Record:
    """Create a run, durable when this returns; give its first event, which an earlier self made if the id was used."""
    value = Created(
        at=names.event(new.run, 1),
        nonce=actor.source.nonce(),
        workflow=new.definition.name,
        definition=msgspec.Raw(new.definition.source),
        inputs=msgspec.Raw(new.inputs),
        by=new.by,
        parent_run=new.parent_run,
        parent_wait=new.parent_wait,
        depth=new.depth,
    )
    ready = Ready(at=actor.owe(new.run, "-"), nonce=actor.source.nonce(), event=1)
    # `ready` first: whoever finds it, and no run, clears `open` away.
    won, stored = await actor.create_after([ready, names.open_since(new.run, 1)], value)
    if won:
        actor.note(EngineEvent(action="run.created", workflow=new.definition.name, run=new.run, by=new.by))
    return stored


# -- driving -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Driver:
    """The right to drive a run, until another event than the driver's own is found in its log."""

    actor: Actor
    state: RunState
    driving: str
    verified: float

    def at(self) -> str:
        """Name the next event."""
        return names.event(self.state.run, self.state.seq + 1)

    async def append(self, event: Event, *, index: Sequence[str | Ready] = ()) -> None:
        """Append the next event; raises `LostRace` when another actor moved the run on."""
        run = self.state.run
        if not self.actor.fresh(self.verified) and await self.actor.store.get(names.event(run, 1)) is None:
            # The log is removed from its first event on: what is absent is another's event, not a free number.
            raise LostRace(f"the run {run} has been removed")
        won, stored = await self.actor.create_after(index, event)
        if not won:
            raise LostRace(f"the run {run} was moved on by another")
        self.verified = self.actor.source.monotonic()
        self.state.apply(self.state.seq + 1, event, stored.stored_at)

    async def check(self) -> None:
        """Raise `LostRace` if another actor has appended an event."""
        if await self.actor.store.get(self.at()) is not None:
            raise LostRace(f"the run {self.state.run} was moved on by another")

    async def leave(self) -> None:
        """Give up the own claim to be driving; also after a lost race."""
        await self.actor.store.delete([self.driving])


async def outcomes_of(actor: Actor, run: RunState) -> dict[str, Stored[Outcome] | Unreadable]:
    """Read the outcomes that exist for a run's open waits."""
    found = {}
    for step in list(run.open_waits()):
        assert step.wait is not None
        if (outcome := await actor.outcome(step.wait)) is not None:
            found[step.wait] = outcome
    return found


async def take(actor: Actor, run: str, *, dead: frozenset[str] = NO_DEAD) -> Driver | None:
    """Claim the right to drive a run that may go on; None when it may not, or another was faster.

    `dead` names instances that are known to have died: what they drove may be taken over.
    """
    for _ in range(MAX_ROUNDS):
        since = actor.source.monotonic()
        state = await load(actor, run)
        if state is None:
            return None
        outcomes = await outcomes_of(actor, state) if state.phase == "suspended" else {}
        if isinstance(continuation(state, outcomes, dead=dead), Blocked):
            return None
        nonce = actor.source.nonce()
        driving = names.driving(actor.instance, run, nonce)
        event = Resumed(at=names.event(run, state.seq + 1), nonce=nonce, instance=actor.instance)
        driver = Driver(actor, state, driving, since)
        try:
            await driver.append(event, index=[driving])
        except LostRace:
            await driver.leave()
            continue
        tell(actor, state, "run.resumed", receipt=_moved_by(state, outcomes))
        return driver
    return None


def _moved_by(state: RunState, outcomes: Mapping[str, Stored[Outcome] | Unreadable]) -> str:
    """Give the receipt of the signal that a run goes on with, "" for none.

    It is read from what is recorded: the signal may have come to another instance, or another may have died over it.
    """
    if outcomes:
        stored = [one for one in outcomes.values() if isinstance(one, Stored)]
        return max(((it.at, it.value.receipt) for it in stored if isinstance(it.value, Accepted)), default=(0, ""))[1]
    settled = [it for it in state.steps.values() if it.wait and it.ended and isinstance(it.step.task, WaitTask)]
    last = max(settled, key=lambda it: it.ended or state.created_at, default=None)
    return "" if last is None or last.outputs is None else str(last.value()["receipt"])


async def suspend(driver: Driver) -> bool:
    """Suspend on the waits that are open; false when one has an outcome already and the driver goes on.

    The outcomes are read after the event: a signal that lands later finds the run suspended, and an earlier one is
    found here.
    """
    state = driver.state
    waits = tuple(step.wait for step in state.open_waits() if step.wait is not None)
    await driver.append(Suspended(at=driver.at(), nonce=driver.actor.source.nonce(), waits=waits))
    if await outcomes_of(driver.actor, state):
        return False
    tell(driver.actor, state, "run.suspended")
    await driver.leave()
    return True


async def resume_here(driver: Driver) -> None:
    """Append `resumed` to a run that this driver has just suspended and not let go of."""
    nonce = driver.actor.source.nonce()
    await driver.append(Resumed(at=driver.at(), nonce=nonce, instance=driver.actor.instance))


async def end(driver: Driver, status: str) -> None:
    """End a run whose steps have all ended."""
    actor, state = driver.actor, driver.state
    nonce = actor.source.nonce()
    ready = Ready(at=names.ready(state.run, "-", nonce), nonce=nonce, event=state.seq + 1)
    event = Ended(at=driver.at(), nonce=actor.source.nonce(), status=status)  # type: ignore[arg-type]
    try:
        await driver.append(event, index=[ready])
    except LostRace:
        await actor.store.delete([ready.at])
        raise
    tell(actor, state, "run.ended", result=status)
    await finish(actor, state, state.seq, event)
    await actor.store.delete([ready.at, driver.driving])


# -- ending, cancelling, retrying ----------------------------------------------------------------------------


async def cancel(actor: Actor, run: str, by: str) -> RunState:
    """Cancel a run; raises `NotFound`, or `Conflict` when it has ended."""

    def decide(state: RunState) -> Event:
        if state.phase == "ended":
            raise Conflict(f"the run {run} has ended: {state.status}")
        return RunCancelled(at=names.event(run, state.seq + 1), nonce=actor.source.nonce(), by=by)

    state, event, ready = await _move(actor, run, decide)
    tell(actor, state, "run.cancelled", by=by)
    await finish(actor, state, state.seq, event)
    await actor.store.delete([ready])
    return state


async def retry(actor: Actor, run: str, step: str | None, by: str) -> RunState:
    """Run the failed steps again, or `step` and what depends on it; the caller continues the run.

    The `ready` record stays until the run has been resumed, and is named in `actor.owed`.
    """

    def decide(state: RunState) -> Event:
        if state.phase == "driven" and state.deeds_under_way():
            # Another driver would have to break off what they do.
            raise Conflict(f"steps of the run {run} are under way", hint="wait for them, or cancel the run")
        steps = steps_to_retry(state, step)
        if not steps:
            what = f"no step of the run {run} is called {step}" if step else f"no step of the run {run} has failed"
            raise Conflict(what)
        return Retried(at=names.event(run, state.seq + 1), nonce=actor.source.nonce(), steps=steps, by=by)

    state, event, _ = await _move(actor, run, decide, reopen=True)
    tell(actor, state, "run.retried", by=by)
    await finish(actor, state, state.seq, event)
    return state


async def _move(
    actor: Actor, run: str, decide: Callable[[RunState], Event], *, reopen: bool = False
) -> tuple[RunState, Event, str]:
    """Append the event that `decide` makes of the run's state; again from the start when another is there."""
    for _ in range(MAX_ROUNDS):
        since = actor.source.monotonic()
        state = await load(actor, run)
        if state is None:
            raise NotFound(f"there is no run {run}")
        event = decide(state)
        seq = state.seq + 1
        ready = Ready(at=names.ready(run, "-", actor.source.nonce()), nonce=actor.source.nonce(), event=seq)
        index: list[str | Ready] = [ready, names.open_since(run, seq)] if reopen else [ready]
        driver = Driver(actor, state, "", since)
        try:
            await driver.append(event, index=index)
        except LostRace:
            await actor.store.delete([ready.at])
            continue
        if reopen:
            actor.owed.append(Owed(run, "-", ready.at))
        return state, event, ready.at
    raise Conflict(f"the run {run} keeps changing; try again")


async def finish(actor: Actor, state: RunState, seq: int, event: Event) -> None:
    """Do what follows from the end, the cancelling or the retry of a run at `seq`. Safe to do again, by anybody.

    Every wait that the event made moot gets an outcome, claimed or not; registrations and index records go; a parent
    that waits for this run is told.
    """
    match event:
        case Ended():
            why: CancelReason = "ended"
        case RunCancelled():
            why = "cancelled"
        case Retried():
            why = "retried"
        case _:
            return
    over = moot(state, seq, event)
    for opened in over:
        await close(actor, state.run, opened.wait, key_of(state, opened), why=why, by=_by(event))
    for child in children(state, over):
        # A child that is created after this finds, when it is first driven, that its parent waits no more.
        with contextlib.suppress(NotFound, Conflict):
            await cancel(actor, child, f"run:{state.run}")
    await _forget(actor, [opened.wait for opened in over])
    if isinstance(event, Retried):
        return
    await _tell_parent(actor, state, event.status if isinstance(event, Ended) else "cancelled")
    found = await actor.store.list(names.opened(state.run))
    stale = [record.key for record in found if names.number_of(record.key) < seq]
    if stale:
        await actor.store.delete(stale)
    if actor.retention_seconds is not None:
        until = await actor.about_now() + timedelta(seconds=actor.retention_seconds)
        await actor.store.create(names.due(until, "retire", state.run), b"")


def _by(event: Event) -> str:
    return event.by if isinstance(event, RunCancelled | Retried) else ""


async def _forget(actor: Actor, waits: list[str]) -> None:
    """Delete the registrations of waits that have an outcome, and their `due` records."""
    keys = []
    for wait in waits:
        found = await actor.registration(wait)
        if found is not None:
            keys += [found.value.due, names.registration(wait)]
    if keys:
        await actor.store.delete(keys)


async def _tell_parent(actor: Actor, state: RunState, status: str) -> None:
    parent, wait = state.created.parent_run, state.created.parent_wait
    if parent is None or wait is None:
        return
    while True:
        since = actor.source.monotonic()
        if await actor.store.get(names.event(parent, 1)) is None:
            return
        if actor.fresh(since):
            break
    payload = msgspec.json.encode({"run": state.run, "status": status})
    value = Accepted(
        at=names.outcome(wait),
        nonce=actor.source.nonce(),
        receipt=state.run,
        sender=Sender(kind="run", id=state.run),
        signal_id=None,
        payload=msgspec.Raw(payload),
        received=None,
    )
    await actor.create_after([actor.owe(parent, wait)], value)


async def pay(actor: Actor, run: str, owed: Sequence[Owed], state: RunState | None) -> None:
    """Delete those `ready` records of one run whose reason is gone; the others stay for the sweep.

    `state` is what the actor's own drive of the run came to, None if it did not drive.
    """
    if not owed or (state := state or await load(actor, run)) is None:
        return
    paid = [each.ready for each in owed if _is_paid(each, state)]
    if paid:
        await actor.store.delete(paid)


def _is_paid(owed: Owed, state: RunState) -> bool:
    if owed.wait == "-":
        return state.phase != "waiting_for_driver"
    return state.phase == "ended" or owed.wait in state.applied


async def refuse_orphan(driver: Driver) -> None:
    """Cancel a child run that has not begun and whose parent has stopped waiting; raises `LostRace` then."""
    state = driver.state
    wait = state.created.parent_wait
    begun = any(step.status != "pending" or step.attempt > 1 for step in state.steps.values())
    if wait is None or begun:
        return
    found = await driver.actor.outcome(wait)
    if isinstance(found, Stored) and isinstance(found.value, Cancelled):
        await cancel(driver.actor, state.run, f"run:{state.created.parent_run}")
        raise LostRace(f"the run {state.run} was cancelled with its parent")
