"""Waits: opening one, and the one rule by which everybody settles one (`settle`)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from engine import names, records
from engine.actor import Actor, number_at
from engine.decisions.settlement import (
    Apply,
    Open,
    Settled,
    Settlement,
    TimeOut,
    keyless_settlement,
    sealed,
    settlement,
)
from engine.events import EngineEvent
from engine.limits import MAX_ROUNDS
from engine.names import Key
from engine.records import Accepted, Cancelled, CancelReason, Claim, Outcome, Registration, Seal, Stored, TimedOut

__all__ = ["Gone", "Open", "Opened", "Settled", "WaitRequest", "Waiting", "close", "open_wait", "register", "settle"]


@dataclass(frozen=True, slots=True)
class Gone:
    """The wait's records were removed with its run; nothing may be created for it."""


Standing = Settled | Open | Gone


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitRequest:
    """What a step asks for when it opens its wait. The wait id is fixed by the run's log."""

    wait: str
    run: str
    workflow: str
    job: str
    step: str
    attempt: int
    timeout: float
    key: str | None = None
    accept_early: float | None = None
    policy: records.Policy = "first"
    replace_holder: bool = False
    schema: bytes | None = None

    @property
    def keyed(self) -> Key:
        assert self.key is not None
        return Key(self.workflow, self.key)


@dataclass(frozen=True, slots=True)
class Waiting:
    """The wait holds its key (or needs none) and has no outcome yet."""

    claim: Stored[Claim] | None


Opened = Settled | Waiting


# -- settling ------------------------------------------------------------------------------------------------


async def settle(actor: Actor, key: Key, claim: Stored[Claim]) -> Standing:
    """Find out how a claimed wait stands, applying an early signal or the deadline where it is due.

    Everybody who looks at a wait goes through here, and leaves a `ready` record before an outcome, so that the run goes
    on even if this actor dies next. The wait's own driver does too: it may have been taken over without knowing.
    """
    wait = claim.value.wait
    while True:
        since = actor.source.monotonic()
        if (found := await actor.outcome(wait)) is not None:
            return Settled(found)
        top = await actor.top(key)
        if top is None or top.number != claim.number:
            # One read is not enough: an outcome may have been stored between it and the removal of the claim.
            found = await actor.outcome(wait)
            return Gone() if found is None else Settled(found)
        slot = [] if claim.value.accept_early is None else await actor.slot(key, claim.value.takes)
        now = await actor.store.now(until=records.deadline(claim))
        decided: Settlement = settlement(claim, slot, None, now)
        if isinstance(decided, Open):
            return decided
        if isinstance(decided, TimeOut) and claim.value.accept_early is not None and not sealed(slot):
            number = number_at(slot[-1]) + 1 if slot else 1
            seal = Seal(at=key.pending(claim.value.takes, number), nonce=actor.source.nonce(), wait=wait)
            # Either the seal has the number, or a signal has it that must be looked at first.
            if not actor.fresh(since) or not (await actor.create(seal))[0]:
                continue
        if not actor.fresh(since):
            continue
        return Settled(await _decide(actor, claim, key, _outcome_of(actor, wait, decided)))


def _outcome_of(actor: Actor, wait: str, decided: Apply | TimeOut | Settled) -> Outcome:
    match decided:
        case Apply(pending):
            return Accepted(
                at=names.outcome(wait),
                nonce=actor.source.nonce(),
                receipt=pending.value.receipt,
                sender=pending.value.sender,
                signal_id=pending.value.signal_id,
                payload=pending.value.payload,
                received=pending.at,
            )
        case _:
            return TimedOut(at=names.outcome(wait), nonce=actor.source.nonce())


async def _decide(
    actor: Actor, claim: Stored[Claim] | Stored[Registration], key: Key | None, value: Outcome
) -> Stored[Outcome] | records.Unreadable:
    """Create a wait's outcome; answer with the one that is stored."""
    won, stored = await actor.create_after([actor.owe(claim.value.run, claim.value.wait)], value)
    if won:
        note_settled(actor, claim, key, value)
    return records.outcome(stored)


def note_settled(actor: Actor, claim: Stored[Claim] | Stored[Registration], key: Key | None, value: Outcome) -> None:
    """Tell how a wait was settled, and of an early signal that it took."""
    workflow = claim.value.workflow if isinstance(claim.value, Registration) else (key.workflow if key else "")
    receipt = value.receipt if isinstance(value, Accepted) else ""
    event = EngineEvent(
        action="wait.settled",
        result=word_of(value),
        workflow=workflow,
        key=key.key if key else "",
        wait=claim.value.wait,
        run=claim.value.run,
        job=claim.value.job,
        step=claim.value.step,
        receipt=receipt,
        reason=value.why if isinstance(value, Cancelled) else "",
    )
    actor.note(event)
    if isinstance(value, Accepted) and value.received is not None:
        actor.note(EngineEvent(**{**_fields(event), "action": "signal.taken"}))  # type: ignore[arg-type]


def _fields(event: EngineEvent) -> dict[str, object]:
    return {name: getattr(event, name) for name in event.__dataclass_fields__}


def word_of(value: Outcome) -> str:
    """Name the kind of an outcome."""
    match value:
        case Accepted():
            return "accepted"
        case TimedOut():
            return "timed_out"
        case Cancelled():
            return "cancelled"


async def settle_registered(actor: Actor, registration: Stored[Registration]) -> Standing:
    """Settle a wait that is found by its registration, with or without a key."""
    value = registration.value
    if value.key is not None and value.claim is not None:
        key = Key(value.workflow, value.key)
        found = await actor.store.get(key.claim(value.claim))
        claim = None if found is None else records.key_record(found)
        if claim is None or not isinstance(claim.value, Claim):
            outcome = await actor.outcome(value.wait)
            return Gone() if outcome is None else Settled(outcome)
        return await settle(actor, key, Stored(claim.value, claim.number, claim.at))
    return await _settle_keyless(actor, registration)


async def _settle_keyless(actor: Actor, registration: Stored[Registration]) -> Standing:
    while True:
        since = actor.source.monotonic()
        found = await actor.outcome(registration.value.wait)
        if found is None and await actor.registration(registration.value.wait) is None:
            found = await actor.outcome(registration.value.wait)
            return Gone() if found is None else Settled(found)
        now = await actor.store.now(until=records.deadline(registration))
        decided = keyless_settlement(registration, found, now)
        if not isinstance(decided, TimeOut):
            return decided
        if not actor.fresh(since):
            continue
        value = TimedOut(at=names.outcome(registration.value.wait), nonce=actor.source.nonce())
        return Settled(await _decide(actor, registration, None, value))


# -- opening -------------------------------------------------------------------------------------------------


async def open_wait(actor: Actor, request: WaitRequest) -> Opened:
    """Open a wait for its own driver: claim the key, then take an early signal if one applies.

    `Settled`: the step ends by that outcome (an early signal was taken, or the key is held: `cancelled`).
    `Waiting`: the driver registers the wait and suspends on it. Safe to enter again with the same wait id.
    """
    if request.key is None:
        found = await actor.outcome(request.wait)
        return Waiting(None) if found is None else Settled(found)
    for _ in range(MAX_ROUNDS):
        opened = await _claim(actor, request)
        if opened is not None:
            return opened
    return await _give_up(actor, request, "contended")


async def _claim(actor: Actor, request: WaitRequest) -> Opened | None:
    """Try once to claim the key; None: something changed meanwhile, look again."""
    key = request.keyed
    since = actor.source.monotonic()
    top = await actor.top(key)
    # After the claims, not before: an earlier self may have claimed, and that claim may have been settled.
    if (own := await actor.outcome(request.wait)) is not None:
        return Settled(own)
    if top is not None and isinstance(top.value, Claim):
        claim = Stored(top.value, top.number, top.at)
        if claim.value.wait == request.wait:
            return await _take(actor, key, claim)
        match await settle(actor, key, claim):
            case Gone():
                return None
            case Open():
                if _is_of_earlier_attempt(claim.value, request):
                    await _cancel_holder(actor, key, claim, "retried", request.run)
                    return None
                if not request.replace_holder:
                    return await _give_up(actor, request, "key_held")
                await _cancel_holder(actor, key, claim, "replaced", request.run)
                return None
            case Settled():
                pass
    value = _claim_of(actor, request, top)
    if not actor.fresh(since):
        return None
    index = names.claimed(request.run, key, (top.number if top else 0) + 1)
    won, stored = await actor.create_after([index], value)
    if not won:
        return None
    actor.note(_event(request, "wait.opened"))
    return await _take(actor, key, Stored(value, names.number_of(stored.key), stored.stored_at))


def _claim_of(actor: Actor, request: WaitRequest, top: Stored[records.KeyRecord] | None) -> Claim:
    return Claim(
        at=request.keyed.claim((top.number if top else 0) + 1),
        nonce=actor.source.nonce(),
        wait=request.wait,
        run=request.run,
        job=request.job,
        step=request.step,
        step_attempt=request.attempt,
        timeout=request.timeout,
        accept_early=request.accept_early,
        policy=request.policy,
        schema=records.raw(request.schema),
        takes=records.current_slot(top),
    )


async def _take(actor: Actor, key: Key, claim: Stored[Claim]) -> Opened | None:
    match await settle(actor, key, claim):
        case Settled() as settled:
            return settled
        case Open():
            return Waiting(claim)
        case Gone():
            return None


def _is_of_earlier_attempt(holder: Claim, request: WaitRequest) -> bool:
    """Tell whether the key is held by the same step, before a retry: who retries closes that wait only later."""
    same = (holder.run, holder.job, holder.step) == (request.run, request.job, request.step)
    return same and holder.step_attempt < request.attempt


async def _cancel_holder(actor: Actor, key: Key, claim: Stored[Claim], why: CancelReason, by: str) -> None:
    value = Cancelled(at=names.outcome(claim.value.wait), nonce=actor.source.nonce(), why=why, by=by)
    await _decide(actor, claim, key, value)


async def _give_up(actor: Actor, request: WaitRequest, why: CancelReason) -> Settled:
    """Close the own wait without ever having opened it, so that no slower self can claim for it later."""
    value = Cancelled(at=names.outcome(request.wait), nonce=actor.source.nonce(), why=why, by=request.run)
    won, stored = await actor.create_after([actor.owe(request.run, request.wait)], value)
    if won:
        actor.note(_event(request, "wait.key_held", result=why))
    return Settled(records.outcome(stored))


def _event(request: WaitRequest, action: str, result: str = "") -> EngineEvent:
    return EngineEvent(
        action=action,  # type: ignore[arg-type]
        result=result,
        workflow=request.workflow,
        key=request.key or "",
        wait=request.wait,
        run=request.run,
        job=request.job,
        step=request.step,
    )


async def register(actor: Actor, request: WaitRequest, claim: Stored[Claim] | None) -> datetime:
    """Register an open wait, its `due` record first; return its deadline, or one a moment early without a key."""
    if claim is not None:
        until = records.deadline(claim)
    else:
        until = await actor.about_now() + timedelta(seconds=request.timeout)
    due = names.due(until, "deadline", request.wait)
    value = Registration(
        at=names.registration(request.wait),
        nonce=actor.source.nonce(),
        wait=request.wait,
        run=request.run,
        workflow=request.workflow,
        job=request.job,
        step=request.step,
        step_attempt=request.attempt,
        key=request.key,
        claim=None if claim is None else claim.number,
        timeout=request.timeout,
        schema=records.raw(request.schema),
        due=due,
    )
    won, _ = await actor.create_after([due], value)
    if won and claim is None:
        actor.note(_event(request, "wait.opened"))
    return until


# -- closing -------------------------------------------------------------------------------------------------


async def close(actor: Actor, run: str, wait: str, key: Key | None, *, why: CancelReason, by: str) -> None:
    """Close a wait that has become moot, whether it was ever claimed or not: afterwards it has an outcome."""
    value = Cancelled(at=names.outcome(wait), nonce=actor.source.nonce(), why=why, by=by)
    if key is not None:
        top = await actor.top(key)
        if top is not None and isinstance(top.value, Claim) and top.value.wait == wait:
            claim = Stored(top.value, top.number, top.at)
            match await settle(actor, key, claim):
                case Open():
                    await _decide(actor, claim, key, value)
                case Settled() | Gone():
                    pass
            return
    if await actor.outcome(wait) is None:
        await actor.create_after([actor.owe(run, wait)], value)
