"""Identified signals: one signal is applied at most once, whatever is repeated and whoever dies.

Before a record is created for an identified signal, the attempt is fixed: `sent/…/<a>` names the exact record. Whoever
comes later completes that attempt first, by creating the very record it names, and judges by what is stored; only when
it has failed for good may the next attempt be fixed.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

import msgspec
from msgspec import Struct

from engine import names, records
from engine.actor import Actor, number_at
from engine.decisions.settlement import Settled, in_age
from engine.errors import UnreadableRecord
from engine.limits import CHAIN_RETENTION_SECONDS
from engine.names import Key, PendingAt
from engine.records import Accepted, Attempt, Cancelled, Claim, Final, Pending, State, Stored, Unreadable, Void
from engine.results import Answer, Receipt, SignalIdReused, SignalRequest, Taken, Where
from engine.waits import note_settled, settle

Failed = Literal["failed"]


class Sending(Struct, frozen=True, kw_only=True):
    """One signal on its way: what every round of it shares. `chain` is empty for a signal without an id."""

    request: SignalRequest
    workflow: str
    key: Key | None
    receipt: str
    chain: str


def accepted(actor: Actor, sending: Sending, wait: str) -> Accepted:
    """Make the outcome by which a wait takes this signal."""
    return Accepted(
        at=names.outcome(wait),
        nonce=actor.source.nonce(),
        receipt=sending.receipt,
        sender=sending.request.sender,
        signal_id=sending.request.signal_id,
        payload=msgspec.Raw(sending.request.payload.text),
        received=None,
    )


def pending(actor: Actor, sending: Sending, at: str, limit: float) -> Pending:
    """Make the record by which this signal is held."""
    return Pending(
        at=at,
        nonce=actor.source.nonce(),
        receipt=sending.receipt,
        sender=sending.request.sender,
        signal_id=sending.request.signal_id,
        payload=msgspec.Raw(sending.request.payload.text),
        limit=limit,
    )


async def index_of(actor: Actor, at: PendingAt, limit: float) -> list[str]:
    """Name the index records that come before a pending signal."""
    until = await actor.about_now() + timedelta(seconds=limit)
    target = f"{at.key.workflow}/{at.key.key}/{names.number(at.slot)}/{names.number(at.m)}"
    return [at.key.early(at.slot, at.m), names.due(until, "signal", target)]


async def fix(
    actor: Actor, sending: Sending, a: int, *, makes: str, wait: str | None, limit: float | None = None
) -> bool:
    """Fix attempt `a` of an identified signal; false when another message of the same signal was first."""
    if not sending.chain:
        return True
    value = Attempt(
        at=names.attempt(sending.chain, a),
        nonce=actor.source.nonce(),
        makes=makes,
        wait=wait,
        workflow=sending.workflow,
        key=None if sending.key is None else sending.key.key,
        receipt=sending.receipt,
        digest=sending.request.payload.digest,
        limit=limit,
    )
    won, _ = await actor.create_after([await _swept(actor, sending.chain)], value)
    return won


async def resume(actor: Actor, sending: Sending) -> Answer | int:
    """Look what became of earlier messages of this signal: an answer, or the number of the attempt to fix next."""
    if not sending.chain:
        return 1
    found = await actor.store.last(sending.chain)
    if found is None:
        return 1
    record = records.chain_record(found)
    if record.value.digest != sending.request.payload.digest:
        return SignalIdReused()
    match record.value:
        case Final() as final:
            return _repeat(final)
        case Attempt() as attempt:
            await complete(actor, sending, attempt)
            verdict = await judge(actor, attempt)
            if isinstance(verdict, Taken):
                if verdict.state in ("expired", "superseded"):
                    await conclude(actor, sending.chain, record.number + 1, attempt, verdict)
                return verdict
            return await _after_failure(actor, sending, record.number)


async def unchanged(actor: Actor, sending: Sending, a: int) -> bool:
    """Tell whether nobody has fixed attempt `a` of this signal yet, nor a later one."""
    if not sending.chain:
        return True
    found = await actor.store.last(sending.chain)
    return found is None or names.number_of(found.key) < a


async def _after_failure(actor: Actor, sending: Sending, a: int) -> Answer | int:
    """Look once more: what the attempt rested on may have been removed after its chain was closed."""
    found = await actor.store.last(sending.chain)
    if found is not None:
        last = records.chain_record(found).value
        if isinstance(last, Final):
            return _repeat(last)
    return a + 1


def _repeat(final: Final) -> Taken:
    return Taken(receipt=Receipt(final.receipt, final.received), state=final.state, duplicate=True)


# -- completing ----------------------------------------------------------------------------------------------


async def complete(actor: Actor, sending: Sending, attempt: Attempt) -> None:
    """Create the record that the attempt names, unless it is there: nobody who is still about to can do so later.

    It is created with the signal while the attempt can still take effect, else as a void.
    """
    while await actor.store.get(attempt.makes) is None:
        since = actor.source.monotonic()
        if attempt.wait is not None:
            done = await _complete_outcome(actor, sending, attempt, attempt.wait, since)
        else:
            done = await _complete_pending(actor, sending, attempt, since)
        if done:
            return


async def _complete_outcome(actor: Actor, sending: Sending, attempt: Attempt, wait: str, since: float) -> bool:
    claim: Stored[Claim] | Stored[records.Registration] | None = None
    if sending.key is None:
        claim = await actor.registration(wait)
    else:
        top = await actor.top(sending.key)
        if top is not None and isinstance(top.value, Claim) and top.value.wait == wait:
            claim = Stored(top.value, top.number, top.at)
    if not actor.fresh(since):
        return False
    if claim is None:
        void = Cancelled(at=attempt.makes, nonce=actor.source.nonce(), why="void", by="")
        await actor.create(void)
        return True
    value = accepted(actor, sending, wait)
    won, _ = await actor.create_after([actor.owe(claim.value.run, wait)], value)
    if won:
        note_settled(actor, claim, sending.key, value)
    return True


async def _complete_pending(actor: Actor, sending: Sending, attempt: Attempt, since: float) -> bool:
    at = names.parse_pending(attempt.makes)
    newest = await actor.newest(at.key, at.slot)
    if newest is not None and number_at(newest) >= at.m:
        # What had this number has been cleared away: the attempt has failed, and its number does not come back.
        return True
    current = records.current_slot(await actor.top(at.key)) == at.slot
    if not current:
        if not actor.fresh(since):
            return False
        await actor.create(Void(at=attempt.makes, nonce=actor.source.nonce(), why="attempt"))
        return True
    assert attempt.limit is not None
    index = await index_of(actor, at, attempt.limit)
    if not actor.fresh(since):
        return False
    await actor.create_after(index, pending(actor, sending, attempt.makes, attempt.limit))
    return True


# -- judging -------------------------------------------------------------------------------------------------


async def judge(actor: Actor, attempt: Attempt) -> Taken | Failed:
    """Say what became of an attempt, by what is stored. Failed is for good."""
    if attempt.wait is not None:
        found = await actor.outcome(attempt.wait)
        if isinstance(found, Unreadable):
            raise UnreadableRecord(found.key, found.reason)
        if isinstance(found, Stored) and isinstance(found.value, Accepted) and found.value.receipt == attempt.receipt:
            return await delivered(actor, Stored(found.value, 0, found.at), attempt)
        return "failed"
    at = names.parse_pending(attempt.makes)
    raw = await actor.store.get(attempt.makes)
    stored = None if raw is None else records.slot_record(raw)
    if isinstance(stored, Unreadable):
        raise UnreadableRecord(stored.key, stored.reason)
    if not isinstance(stored, Stored) or not isinstance(stored.value, Pending):
        return "failed"
    if stored.value.receipt != attempt.receipt:
        return "failed"
    return await judge_pending(actor, at, Stored(stored.value, stored.number, stored.at))


async def judge_pending(actor: Actor, at: PendingAt, held: Stored[Pending]) -> Taken | Failed:
    """Say what became of a pending signal that is stored."""
    until = records.kept_until(held)
    receipt = Receipt(held.value.receipt, held.at)
    # The time before the claims: a claim that opens after the limit cannot take the signal any more.
    now = await actor.store.now(until=until)
    if records.current_slot(await actor.top(at.key)) == at.slot:
        state: State = "held" if now <= until else "expired"
        return Taken(receipt=receipt, state=state, duplicate=True, held_until=until)
    claim = await actor.taking(at.key, at.slot)
    if claim is None:
        return "failed"
    return _by_claim(held, claim, await settle(actor, at.key, claim), await actor.slot(at.key, at.slot))


def _by_claim(
    held: Stored[Pending], claim: Stored[Claim], standing: object, slot: list[Stored[records.SlotRecord] | Unreadable]
) -> Taken | Failed:
    receipt = Receipt(held.value.receipt, held.at)
    taken = ""
    if isinstance(standing, Settled) and isinstance(standing.outcome, Stored):
        outcome = standing.outcome.value
        taken = outcome.receipt if isinstance(outcome, Accepted) else ""
    if taken == held.value.receipt:
        return Taken(receipt=receipt, state="delivered", duplicate=True, where=where_of(claim.value))
    if claim.value.accept_early is not None and not in_age(claim, held):
        return Taken(receipt=receipt, state="expired", duplicate=True, held_until=records.kept_until(held))
    if taken and claim.value.policy == "latest" and _newer(slot, taken, held.number):
        return Taken(receipt=receipt, state="superseded", duplicate=True)
    return "failed"


def _newer(slot: list[Stored[records.SlotRecord] | Unreadable], receipt: str, than: int) -> bool:
    return any(
        isinstance(entry, Stored)
        and isinstance(entry.value, Pending)
        and entry.value.receipt == receipt
        and entry.number > than
        for entry in slot
    )


async def delivered(actor: Actor, outcome: Stored[Accepted], attempt: Attempt) -> Taken:
    """Answer for a signal that is the outcome of a wait."""
    receipt = Receipt(outcome.value.receipt, outcome.value.received or outcome.at)
    where = None
    if attempt.wait is not None:
        where = await find_where(actor, attempt.workflow, attempt.key, attempt.wait)
    return Taken(receipt=receipt, state="delivered", duplicate=True, where=where)


async def find_where(actor: Actor, workflow: str, key: str | None, wait: str) -> Where | None:
    """Find where a settled wait lived, while its records are there; nothing depends on it."""
    found = await actor.registration(wait)
    if found is not None:
        return where_of(found.value)
    if key is None:
        return None
    top = await actor.top(Key(workflow, key))
    if top is not None and isinstance(top.value, Claim) and top.value.wait == wait:
        return where_of(top.value)
    return None


def where_of(value: Claim | records.Registration) -> Where:
    """Say where a wait lives."""
    return Where(wait=value.wait, run=value.run, job=value.job, step=value.step)


# -- concluding ----------------------------------------------------------------------------------------------


async def conclude(actor: Actor, chain: str, a: int, attempt: Attempt, verdict: Taken) -> datetime:
    """Close a chain with its answer, before anything that the answer rests on is removed; tell when it was closed."""
    value = Final(
        at=names.attempt(chain, a),
        nonce=actor.source.nonce(),
        state=verdict.state,
        workflow=attempt.workflow,
        key=attempt.key,
        receipt=attempt.receipt,
        received=verdict.receipt.at,
        digest=attempt.digest,
    )
    _, stored = await actor.create_after([await _swept(actor, chain)], value)
    return stored.stored_at


async def _swept(actor: Actor, chain: str) -> str:
    """Name the record that says when the chain can go, a minute late: what is created next bears a later stamp."""
    until = await actor.about_now() + timedelta(seconds=CHAIN_RETENTION_SECONDS, minutes=1)
    return names.due(until, "chain", chain)
