"""Signals: deliver one to the wait that holds its key, or hold it for the wait that opens next.

What is answered is what is stored. A refused signal leaves nothing in the store that a wait could take.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any

from msgspec import Struct

from engine import chains, names, records
from engine.actor import Actor
from engine.chains import Sending
from engine.clock import derived_id
from engine.decisions import admission as rules
from engine.decisions.holder import Free, Held
from engine.decisions.settlement import Open, Settled, payload_problems
from engine.errors import StoreUnavailable
from engine.limits import MAX_ROUNDS, MAX_SLOT_RECORDS
from engine.names import Key, PendingAt
from engine.records import Accepted, Claim, Pending, Registration, Stored, TimedOut, Unreadable
from engine.results import (
    AlreadySettled,
    Answer,
    Contended,
    EarlySignalHeld,
    InvalidPayload,
    LastWait,
    NoOpenWait,
    NotDeclared,
    Receipt,
    SignalRequest,
    SlotFull,
    Taken,
    WaitClosed,
)
from engine.waits import Gone, note_settled, settle, settle_registered, word_of
from engine.workflows.definition import WaitTask


def chain_of(request: SignalRequest, address: str) -> str:
    """Name the chain of an identified signal; empty for one without an id."""
    if request.signal_id is None:
        return ""
    return names.chain(request.sender.kind, request.sender.id, address, request.signal_id)


def receipt_of(actor: Actor, request: SignalRequest, address: str) -> str:
    """Give the receipt's id: the same for every message of one identified signal, fresh for any other."""
    if request.signal_id is None:
        return actor.source.sortable_id()
    return derived_id("receipt", request.sender.kind, request.sender.id, address, request.signal_id)


async def signal_by_key(actor: Actor, key: Key, request: SignalRequest, task: WaitTask | None) -> Answer:
    """Deliver or hold a signal that is addressed to a key. The caller has authorised the sender.

    `task` is the step that declares the key in the current definition, if one does: it says whether an early signal is
    admitted. Whether a wait takes it, that wait's claim says. What must go on afterwards is in `actor.owed`.
    """
    address = f"{key.workflow}/{key.key}"
    sending = Sending(
        request=request,
        workflow=key.workflow,
        key=key,
        receipt=receipt_of(actor, request, address),
        chain=chain_of(request, address),
    )
    return await _in_rounds(actor, sending, lambda attempt: _round(actor, sending, key, task, attempt))


async def _in_rounds(
    actor: Actor, sending: Sending, decide: Callable[[int], Coroutine[Any, Any, Answer | None]]
) -> Answer:
    """Look what became of earlier messages of the signal, then decide; again while others change what was read.

    A refusal stands only if nobody has fixed an attempt meanwhile: what is in the signal's way may be itself.
    """
    for _ in range(MAX_ROUNDS):
        attempt = await chains.resume(actor, sending)
        if not isinstance(attempt, int):
            return attempt
        answer = await decide(attempt)
        if isinstance(answer, Taken) or (answer is not None and await chains.unchanged(actor, sending, attempt)):
            return answer
    return Contended()


class _Key(Struct, frozen=True):
    """What a round has read of a key, before it decides."""

    top: Stored[records.KeyRecord] | None
    state: Free | Held
    outcome: Stored[records.Outcome] | Unreadable | None
    newest: Stored[records.SlotRecord] | Unreadable | None
    now: datetime


async def _read(actor: Actor, key: Key, task: WaitTask | None) -> _Key | None:
    """Read how a key stands; None when its highest claim was superseded meanwhile."""
    top = await actor.top(key)
    state: Free | Held = Free()
    outcome: Stored[records.Outcome] | Unreadable | None = None
    if top is not None and isinstance(top.value, Claim):
        claim = Stored(top.value, top.number, top.at)
        match await settle(actor, key, claim):
            case Open():
                state = Held(claim)
            case Settled(found):
                outcome = found
            case Gone():
                return None
    newest, now = None, await actor.about_now()
    if isinstance(state, Free) and task is not None and task.accept_early is not None:
        newest = await actor.newest(key, records.current_slot(top))
        if isinstance(newest, Stored) and isinstance(newest.value, Pending):
            now = await actor.store.now(until=records.kept_until(Stored(newest.value, newest.number, newest.at)))
    return _Key(top, state, outcome, newest, now)


async def _round(actor: Actor, sending: Sending, key: Key, task: WaitTask | None, attempt: int) -> Answer | None:
    """Go once through the protocol; None: another actor changed what was read, look again."""
    since = actor.source.monotonic()
    read = await _read(actor, key, task)
    if read is None:
        return None
    match rules.admission(read.state, read.top, read.newest, task, read.now):
        case rules.Deliver(held):
            return await _deliver(actor, sending, held.claim, attempt, since)
        case rules.Undeclared():
            return NotDeclared()
        case rules.NoWait():
            return NoOpenWait(None if read.outcome is None else last_wait(read.outcome))
        case rules.SlotBehind():
            return None
        case rules.AlreadyHeld(held_signal):
            return await _already_held(actor, key, records.current_slot(read.top), held_signal)
        case rules.Hold(slot, m):
            assert task is not None
            return await _hold(actor, sending, PendingAt(key, slot, m), task, _Try(attempt, since))


class _Try(Struct, frozen=True):
    """Which attempt an identified signal is at, and when the claims were read (monotonic)."""

    attempt: int
    since: float


# -- delivering ----------------------------------------------------------------------------------------------


async def _deliver(
    actor: Actor, sending: Sending, target: Stored[Claim] | Stored[Registration], attempt: int, since: float
) -> Answer | None:
    """Give the signal to an open wait, unless its schema refuses it or another outcome is first."""
    value = target.value
    schema = records.text_of(value.schema)
    if problems := payload_problems(schema, sending.request.payload.text):
        return InvalidPayload(problems)
    if not actor.fresh(since):
        return None
    if not await chains.fix(actor, sending, attempt, makes=names.outcome(value.wait), wait=value.wait):
        return None
    if not actor.fresh(since):
        return None
    made = chains.accepted(actor, sending, value.wait)
    won, stored = await actor.create_after([actor.owe(value.run, value.wait)], made)
    if not won:
        return None
    note_settled(actor, target, sending.key, made)
    return Taken(receipt=Receipt(sending.receipt, stored.stored_at), state="delivered", where=chains.where_of(value))


# -- holding -------------------------------------------------------------------------------------------------


async def _already_held(actor: Actor, key: Key, slot: int, held: Stored[Pending]) -> Answer | None:
    if records.current_slot(await actor.top(key)) != slot:
        return None
    return EarlySignalHeld(Receipt(held.value.receipt, held.at), held.value.sender, records.kept_until(held))


async def _hold(actor: Actor, sending: Sending, at: PendingAt, task: WaitTask, this: _Try) -> Answer | None:
    """Store the signal for the wait that opens next, then look whether one opened meanwhile."""
    assert task.accept_early is not None
    if problems := payload_problems(task.schema, sending.request.payload.text):
        return InvalidPayload(problems)
    if at.m > MAX_SLOT_RECORDS and await _full(actor, at):
        return SlotFull()
    makes = at.key.pending(at.slot, at.m)
    if not actor.fresh(this.since):
        return None
    if not await chains.fix(actor, sending, this.attempt, makes=makes, wait=None, limit=task.accept_early):
        return None
    index = await chains.index_of(actor, at, task.accept_early)
    if not actor.fresh(this.since):
        return None
    made = chains.pending(actor, sending, makes, task.accept_early)
    won, record = await actor.create_after(index, made)
    if not won:
        return None
    stored = Stored(made, at.m, record.stored_at)
    receipt = Receipt(sending.receipt, stored.at)
    if records.current_slot(await actor.top(at.key)) == at.slot:
        return Taken(receipt=receipt, state="held", held_until=records.kept_until(stored))
    return await _behind(actor, sending, at, receipt)


async def _full(actor: Actor, at: PendingAt) -> bool:
    """Tell whether too many records of the slot are stored; cleared ones do not count, their numbers do not return."""
    lowest = await actor.store.list(at.key.slot(at.slot), limit=1)
    return bool(lowest) and at.m - names.number_of(lowest[0].key) >= MAX_SLOT_RECORDS


async def _behind(actor: Actor, sending: Sending, at: PendingAt, receipt: Receipt) -> Answer | None:
    """A wait opened meanwhile and may have missed this signal: settle it, which finds the signal if it applies."""
    claim = await actor.taking(at.key, at.slot)
    standing = Gone() if claim is None else await settle(actor, at.key, claim)
    if claim is None or isinstance(standing, Gone):
        # This operation has slept through the removal of the run whose wait took from the slot. A chain says what
        # became of an identified signal; of another, nobody can say any more whether that wait took it.
        if sending.chain:
            return None
        raise StoreUnavailable("the signal was stored, and what became of it was removed meanwhile", uncertain=True)
    match standing:
        case Settled(Stored(value=Accepted(receipt=sending.receipt))):
            return Taken(receipt=receipt, state="delivered", where=chains.where_of(claim.value))
        case Open():
            schema = records.text_of(claim.value.schema)
            problems = payload_problems(schema, sending.request.payload.text)
            return InvalidPayload(problems) if problems else None
        case _:
            return None


# -- by wait id ----------------------------------------------------------------------------------------------


async def signal_by_wait(actor: Actor, wait: str, request: SignalRequest) -> Answer:
    """Deliver a signal that is addressed to a wait by its id. The caller has authorised the sender."""
    address = f"-/{wait}"
    registration = await actor.registration(wait)
    value = None if registration is None else registration.value
    sending = Sending(
        request=request,
        workflow=value.workflow if value else "",
        key=Key(value.workflow, value.key) if value and value.key else None,
        receipt=receipt_of(actor, request, address),
        chain=chain_of(request, address),
    )
    return await _in_rounds(actor, sending, lambda attempt: _round_by_wait(actor, sending, registration, attempt))


async def _round_by_wait(
    actor: Actor, sending: Sending, registration: Stored[Registration] | None, attempt: int
) -> Answer | None:
    if registration is None:
        return NotDeclared()
    since = actor.source.monotonic()
    match await settle_registered(actor, registration):
        case Open():
            return await _deliver(actor, sending, registration, attempt, since)
        case Settled(Stored(value=TimedOut())):
            return WaitClosed()
        case Settled(outcome):
            return AlreadySettled(last_wait(outcome))
        case Gone():
            return NotDeclared()


def last_wait(outcome: Stored[records.Outcome] | Unreadable) -> LastWait:
    """Say how a wait was settled, for those who may read the workflow."""
    match outcome:
        case Unreadable(at=at):
            return LastWait(how="unreadable", at=at)
        case Stored(value=Accepted() as value, at=at):
            return LastWait(how="accepted", at=at, receipt=Receipt(value.receipt, value.received or at))
        case Stored(value=value, at=at):
            return LastWait(how=word_of(value), at=at)  # type: ignore[arg-type]
