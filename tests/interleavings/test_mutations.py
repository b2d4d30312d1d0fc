"""Proves that the explorer would notice: each way of getting the protocol wrong that looks right makes it fail."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from devices.registry import Registry
from engine import chains, executor, names, records, removal, runs, signals, waits
from engine.actor import Actor
from engine.decisions import settlement as rules
from engine.events import EngineEvent
from engine.limits import REMOVAL_GRACE_SECONDS
from engine.names import Key, PendingAt
from engine.records import Cancelled, Claim, Opening, Pending, Release, Stored, Suspended, Void
from engine.results import Receipt, Taken
from engine.store.base import Record
from engine.sweep import Sweep
from tests.interleavings.explorer import Explorer, Scenario, ViolationFound
from tests.interleavings.scenarios import arrivals, drivers, removals, repeats, revocation

Patch = pytest.MonkeyPatch
Mutation = Callable[[Patch], None]


# -- the variants that the protocol's page warns of ---------------------------------------------------------------


def v1(patch: Patch) -> None:
    """A wait times out without the seal."""
    patch.setattr(waits, "sealed", lambda _slot: True)


def v2(patch: Patch) -> None:
    """A release starts a new slot."""
    encode = records.encode

    def moved(value: Any) -> tuple[str, bytes]:
        return encode(msgspec.structs.replace(value, slot=value.slot + 1) if isinstance(value, Release) else value)

    patch.setattr(records, "encode", moved)


def v3(patch: Patch) -> None:
    """An attempt that can no longer take effect is only read, not made void."""
    pending, outcome = chains._complete_pending, chains._complete_outcome

    async def read_pending(actor: Actor, sending: Any, attempt: Any, since: float) -> bool:
        at = names.parse_pending(attempt.makes)
        if records.current_slot(await actor.top(at.key)) != at.slot:
            return True
        return await pending(actor, sending, attempt, since)

    async def read_outcome(actor: Actor, sending: Any, attempt: Any, wait: str, since: float) -> bool:
        top = await actor.top(sending.key)
        if top is None or not isinstance(top.value, Claim) or top.value.wait != wait:
            return True
        return await outcome(actor, sending, attempt, wait, since)

    patch.setattr(chains, "_complete_pending", read_pending)
    patch.setattr(chains, "_complete_outcome", read_outcome)


def v4(patch: Patch) -> None:
    """An attempt is completed with its signal although its wait is gone."""

    async def complete(actor: Actor, sending: Any, attempt: Any, wait: str, since: float) -> bool:
        await actor.create(chains.accepted(actor, sending, wait))
        return True

    patch.setattr(chains, "_complete_outcome", complete)


def v5(patch: Patch) -> None:
    """The records of a removed run are deleted without the pause."""
    begin = removal.begin

    async def at_once(actor: Actor, run: str, by: str) -> None:
        await begin(actor, run, by)
        state = await runs.load(actor, run)
        assert state is not None
        await removal._delete(actor, state)

    patch.setattr(removal, "begin", at_once)


def v6(patch: Patch) -> None:
    """The answer is taken from what was attempted, not from what is stored."""
    create_after = Actor.create_after

    async def sure(self: Actor, index: Sequence[Any], value: Any) -> tuple[bool, Record]:
        return True, (await create_after(self, index, value))[1]

    patch.setattr(Actor, "create_after", sure)


def v7(patch: Patch) -> None:
    """An age is judged against the reader's time instead of the claim's."""
    judge = rules.settlement

    def settlement(claim: Stored[Claim], slot: Any, outcome: Any, now: Any) -> Any:
        limit = timedelta(seconds=claim.value.accept_early or 0)
        young = [
            entry
            for entry in slot
            if not isinstance(entry, Stored) or not isinstance(entry.value, Pending) or now - entry.at <= limit
        ]
        return judge(claim, young, outcome, now)

    patch.setattr(waits, "settlement", settlement)


def v8_not_read_again(patch: Patch) -> None:
    """The outcomes are not read again after the suspension."""

    async def suspend(driver: runs.Driver) -> bool:
        open_waits = tuple(step.wait for step in driver.state.open_waits() if step.wait is not None)
        event = Suspended(at=driver.at(), nonce=driver.actor.source.nonce(), waits=open_waits)
        await driver.append(event)
        await driver.leave()
        return True

    patch.setattr(runs, "suspend", suspend)


def v8_ready_after(patch: Patch) -> None:
    """`ready`, and every other index record, is created after what it points to."""

    async def create_before(self: Actor, index: Sequence[Any], value: Any) -> tuple[bool, Record]:
        won, stored = await self.create(value)
        for entry in index:
            await self.store.create(*((entry, b"") if isinstance(entry, str) else records.encode(entry)))
        return won, stored

    patch.setattr(Actor, "create_after", create_before)


def v9(patch: Patch) -> None:
    """A claim that is not the highest is judged by one read of its outcome."""
    settle = waits.settle

    async def once(actor: Actor, key: Key, claim: Stored[Claim]) -> Any:
        if (found := await actor.outcome(claim.value.wait)) is not None:
            return waits.Settled(found)
        top = await actor.top(key)
        if top is None or top.number != claim.number:
            return waits.Gone()
        return await settle(actor, key, claim)

    for module in (waits, chains, signals, removal):
        patch.setattr(module, "settle", once)


def v10(patch: Patch) -> None:
    """The wait id is not fixed by the log before the claim."""

    async def late(driver: Any, around: Any, step: Any, wait: str | None) -> None:
        wait = wait or driver.actor.source.sortable_id()
        request = executor._request(driver.state, step, wait)
        opened = await waits.open_wait(driver.actor, request)
        nonce = driver.actor.source.nonce()
        event = Opening(at=driver.at(), nonce=nonce, job=step.job, step=step.name, attempt=step.attempt, wait=wait)
        await driver.append(event)
        if isinstance(opened, waits.Settled):
            await executor._end_by(driver, step, opened.outcome)
        else:
            await waits.register(driver.actor, request, opened.claim)

    patch.setattr(executor, "_open", late)


def v11(patch: Patch) -> None:
    """A step that finds its key held leaves its own wait without an outcome."""

    async def give_up(actor: Actor, request: waits.WaitRequest, why: Any) -> waits.Settled:
        value = Cancelled(at=names.outcome(request.wait), nonce="", why=why, by=request.run)
        return waits.Settled(Stored(value, 0, await actor.store.now()))

    patch.setattr(waits, "_give_up", give_up)


def v12_driving(patch: Patch) -> None:
    """`driving` records have no nonce."""
    patch.setattr(names, "driving", lambda instance, run, _nonce: f"{names.driving_by(instance)}{run}/-")


def v12_ready(patch: Patch) -> None:
    """`ready` records have no nonce."""
    patch.setattr(names, "ready", lambda run, wait, _nonce: f"{names.ready_of(run)}{wait}/-")


def v13_voided(patch: Patch) -> None:
    """A signal is expired by claims read before the time."""

    async def expire(actor: Actor, at: PendingAt) -> bool:
        raw = await actor.store.get(at.key.pending(at.slot, at.m))
        entry = None if raw is None else records.slot_record(raw)
        if not isinstance(entry, Stored) or not isinstance(entry.value, Pending):
            return True
        pending = Stored(entry.value, entry.number, entry.at)
        since = actor.source.monotonic()
        current = records.current_slot(await actor.top(at.key)) == at.slot
        until = records.kept_until(pending)
        if await actor.store.now(until=until) <= until:
            return False
        return not current or await removal._expire_current(actor, at, pending, since)

    patch.setattr(removal, "expire", expire)


def v13_told(patch: Patch) -> None:
    """A repeat is told that its signal expired, by claims read before the time."""
    judge = chains.judge_pending

    async def judge_pending(actor: Actor, at: PendingAt, held: Stored[Pending]) -> Any:
        current = records.current_slot(await actor.top(at.key)) == at.slot
        until = records.kept_until(held)
        if current and await actor.store.now(until=until) > until:
            receipt = Receipt(held.value.receipt, held.at)
            return Taken(receipt=receipt, state="expired", duplicate=True, held_until=until)
        return await judge(actor, at, held)

    patch.setattr(chains, "judge_pending", judge_pending)


# -- more of them -------------------------------------------------------------------------------------------------


def m1(patch: Patch) -> None:
    """Under `first` the newest signal is taken."""
    applicable = rules.applicable

    def newest(claim: Stored[Claim], slot: Any) -> Any:
        return applicable(claim, list(reversed(slot)))

    patch.setattr(rules, "applicable", newest)


def m2(patch: Patch) -> None:
    """A signal that was stored is answered as held without another look at the claims."""
    behind = signals._behind

    async def held(actor: Actor, sending: Any, at: PendingAt, receipt: Any) -> Any:
        return Taken(receipt=receipt, state="held")

    assert behind is not held
    patch.setattr(signals, "_behind", held)


def m3(patch: Patch) -> None:
    """A run ends without a `ready` record before its last event."""
    encode = records.encode

    def nothing(value: Any) -> tuple[str, bytes]:
        key, data = encode(value)
        return (key.replace("ready/", "outbox/"), data) if isinstance(value, records.Ready) else (key, data)

    patch.setattr(records, "encode", nothing)


def m4(patch: Patch) -> None:
    """A claim is created without a look at the own wait's outcome."""

    async def blind(actor: Actor, request: waits.WaitRequest) -> Any:
        top = await actor.top(request.keyed)
        if top is not None and isinstance(top.value, Claim) and top.value.wait == request.wait:
            return await waits._take(actor, request.keyed, Stored(top.value, top.number, top.at))
        value = waits._claim_of(actor, request, top)
        won, stored = await actor.create_after([], value)
        claim = Stored(value, names.number_of(stored.key), stored.stored_at)
        return await waits._take(actor, request.keyed, claim) if won else None

    patch.setattr(waits, "_claim", blind)


def m5(patch: Patch) -> None:
    """An attempt whose record is stored is taken for failed."""

    async def failed(actor: Actor, attempt: Any) -> str:
        return "failed"

    patch.setattr(chains, "judge", failed)


def m6(patch: Patch) -> None:
    """The wait's own driver leaves no `ready` record before an outcome: it may have been taken over."""
    decide, take = waits._decide, waits._take
    own: set[tuple[str, str]] = set()

    async def taken(actor: Actor, key: Key, claim: Stored[Claim]) -> Any:
        own.add((actor.instance, claim.value.wait))
        return await take(actor, key, claim)

    async def quiet(actor: Actor, target: Any, key: Any, value: Any) -> Any:
        if (actor.instance, target.value.wait) in own:
            return records.outcome((await actor.create(value))[1])
        return await decide(actor, target, key, value)

    patch.setattr(waits, "_take", taken)
    patch.setattr(waits, "_decide", quiet)


def m7(patch: Patch) -> None:
    """The sweep judges an index record's age by a time that it reads after the record's target."""

    async def old(sweep: Sweep, record: Record) -> bool:
        return await sweep.actor.store.now() - record.stored_at > timedelta(seconds=REMOVAL_GRACE_SECONDS)

    async def signal(sweep: Sweep, record: Record, at: PendingAt) -> bool:
        if await sweep.actor.store.get(at.key.pending(at.slot, at.m)) is None:
            return await old(sweep, record)
        return await removal.expire(sweep.actor, at)

    patch.setattr(Sweep, "_signal", signal)


def m8(patch: Patch) -> None:
    """A revision is announced after it is stored: whoever dies in between has revoked nothing."""

    async def nothing(registry: Registry, kind: Any, name: str, rev: int) -> None:
        """Announce nothing yet."""

    announce, revise_first = Registry._announce, Registry._revise

    async def revise(registry: Registry, kind: Any, name: str, *more: Any) -> Any:
        entry = await revise_first(registry, kind, name, *more)
        await announce(registry, kind, name, entry.rev)
        return entry

    patch.setattr(Registry, "_announce", nothing)
    patch.setattr(Registry, "_revise", revise)


def _expiring(teller: Callable[[Actor, PendingAt, bool, bool], Awaitable[bool]]) -> Mutation:
    """Make an expiry of which `teller` says whether its pass tells, by whether its void won and was tried."""

    async def expire_current(actor: Actor, at: PendingAt, pending: Stored[Pending], since: float) -> bool:
        newest = await actor.newest(at.key, at.slot)
        tried = newest is not None and newest.number == at.m  # type: ignore[union-attr]
        target = f"{at.key.workflow}/{at.key.key}/{names.number(at.slot)}/{names.number(at.m)}"
        until = await actor.about_now() + timedelta(seconds=REMOVAL_GRACE_SECONDS + 60)
        clear = names.due(until, "clear", target)
        won = False
        if tried:
            void = Void(at=at.key.pending(at.slot, at.m + 1), nonce=actor.source.nonce(), why="expired")
            won, _ = await actor.create_after([clear], void)
        else:
            await actor.store.create(clear, b"")
        if await teller(actor, at, won, tried):
            actor.note(EngineEvent(action="signal.expired", receipt=pending.value.receipt))
        await actor.store.delete([at.key.early(at.slot, at.m)])
        return True

    return lambda patch: patch.setattr(removal, "_expire_current", expire_current)


async def _if_void(actor: Actor, at: PendingAt, won: bool, tried: bool) -> bool:
    return won or (not tried and await actor.store.get(at.key.early(at.slot, at.m)) is not None)


async def _if_no_void_of_another(actor: Actor, at: PendingAt, won: bool, tried: bool) -> bool:
    above = await actor.store.get(at.key.pending(at.slot, at.m + 1))
    return won or above is None or not isinstance(records.slot_record(above).value, Void)  # type: ignore[union-attr]


def m9(patch: Patch) -> None:
    """An expiry whose void finds its number taken tells nobody: a new signal may have it."""
    _expiring(_if_void)(patch)


def m10(patch: Patch) -> None:
    """An expiry that finds another's void deletes `early`: that other may have died before it told."""
    _expiring(_if_no_void_of_another)(patch)


CAUGHT: dict[str, tuple[Mutation, Callable[..., Scenario], set[str]]] = {
    "V1": (v1, arrivals.signal_and_brief_wait, {"I5"}),
    "V2": (v2, lambda: removals.removal_and_next_wait(kills=0), {"I3"}),
    "V3": (v3, repeats.slow_attempt_and_repeat, {"I4"}),
    "V4": (v4, removals.dead_attempt_after_removal, {"I3"}),
    "V5": (v5, removals.removal_and_late_answer, {"I3", "I4"}),
    "V6": (v6, arrivals.two_signals, {"I3"}),
    "V7": (v7, lambda: arrivals.signal_and_aged_wait(moments=(0.0, 10.5)), {"I3", "I5"}),
    "V8 not read again": (v8_not_read_again, arrivals.signal_and_suspension, {"I6"}),
    "V8 ready after": (v8_ready_after, arrivals.signal_and_suspension, {"I6"}),
    "V9": (v9, repeats.repeat_while_waits_follow, {"I4"}),
    "V10": (v10, drivers.takeover, {"I1", "I3", "I6"}),
    "V11": (v11, drivers.held_and_signal, {"I1"}),
    "V12 driving": (v12_driving, drivers.two_of_one_instance, {"I6"}),
    "V12 ready": (v12_ready, drivers.two_retries, {"I6"}),
    "V13 voided": (v13_voided, removals.expiry_and_wait, {"I3"}),
    "V13 told": (v13_told, removals.expiry_and_repeat, {"I3"}),
    "first takes the newest": (m1, drivers.latest_held_then_first, {"I3"}),
    "no second look at the claims": (m2, arrivals.two_signals_and_wait, {"I3"}),
    "no ready before the end": (m3, drivers.two_instances, {"I6"}),
    "no look at the own outcome": (m4, drivers.held_and_signal, {"I2", "I3"}),
    "stored and taken for failed": (m5, repeats.repeat_while_waits_follow, {"I4"}),
    "no ready of the own driver": (m6, drivers.takeover_and_signal, {"I6"}),
    "announced after it is stored": (m8, revocation.revocation_and_signal, {"R"}),
    "a void is lost to a signal": (m9, removals.expiry_and_signal, {"I3"}),
    "a void is lost to one who dies": (m10, removals.expiry_by_two, {"I3"}),
    "the target before the time": (m7, removals.signal_and_sleepy_sweep, {"I6"}),
}


@pytest.mark.parametrize("name", CAUGHT)
def test_a_wrong_variant_of_the_protocol_is_caught(name: str, monkeypatch: Patch) -> None:
    mutation, build, expected = CAUGHT[name]
    scenario = build()
    mutation(monkeypatch)
    three = len(scenario.players) > 2
    with pytest.raises(ViolationFound) as found:
        Explorer(scenario, preemptions=3 if three else None).explore()
    print(f"{name}: {mutation.__doc__} {found.value}")
    assert found.value.violation.invariant in expected
