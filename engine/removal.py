"""Removing a run, in two steps with a pause between them, and clearing away what is over.

The first step *supersedes*: chains that end in the run's records are closed with their answer, and a highest claim of
the run gets a release over it. Only when nobody can still be in the middle of an operation that read the old records
are they deleted. No number of a claim or of a pending signal ever comes back.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from engine import chains, names, records, runs
from engine.actor import Actor, number_at
from engine.decisions.fold import RunState
from engine.errors import Conflict, NotFound
from engine.events import EngineEvent
from engine.limits import CHAIN_RETENTION_SECONDS, REMOVAL_GRACE_SECONDS
from engine.names import Key, PendingAt
from engine.records import Accepted, Attempt, Cancelled, Claim, Final, Pending, Release, Stored, Void
from engine.results import Taken
from engine.store.base import Record
from engine.waits import settle

Claims = list[tuple[Key, Stored[Claim]]]


async def begin(actor: Actor, run: str, by: str) -> None:
    """Begin to remove a run that has ended; raises `NotFound`, or `Conflict` while it has not ended."""
    state = await runs.load(actor, run)
    if state is None:
        raise NotFound(f"there is no run {run}")
    if state.phase != "ended":
        raise Conflict(f"the run {run} has not ended", hint="cancel it first")
    await _put_off(actor, run)
    await actor.store.create(names.removing(run), b"")
    await supersede(actor, state)
    runs.tell(actor, state, "run.deleted", by=by)


async def _put_off(actor: Actor, run: str) -> None:
    until = await actor.about_now() + timedelta(seconds=REMOVAL_GRACE_SECONDS)
    # The minute after, so that the whole pause has passed whatever the second.
    await actor.store.create(names.due(until + timedelta(minutes=1), "removal", run), b"")


async def finish_removal(actor: Actor, run: str) -> None:
    """Do the second step of a removal that is due, or put it off while what supersedes the run's records is young.

    Whoever made that: of two who do this at once, the second finds nothing left to supersede.
    """
    state = await runs.load(actor, run)
    if state is None:
        # Removed already, or all but what follows the log's first event, by somebody who died over it.
        await _delete_log(actor, run)
        return
    if state.phase != "ended":
        await actor.store.delete([names.removing(run)])
        return
    began = await actor.store.now()
    newest = await supersede(actor, state)
    if newest is not None and began - newest <= timedelta(seconds=REMOVAL_GRACE_SECONDS):
        await _put_off(actor, run)
        return
    await _delete(actor, state)


async def supersede(actor: Actor, state: RunState) -> datetime | None:
    """Close the chains that rest on the run's records and release its claims; give the time of the last that did."""
    found: list[datetime] = []
    claims = await claims_of(actor, state.run)
    for opened in state.openings.values():
        settled = await actor.outcome(opened.wait)
        if isinstance(settled, Stored) and isinstance(settled.value, Accepted):
            outcome = settled.value
            addresses = [f"{key.workflow}/{key.key}" for key, claim in claims if claim.value.wait == opened.wait]
            for address in [*addresses, f"-/{opened.wait}"]:
                found += await _close_chain(actor, outcome.sender, address, outcome.signal_id, outcome.at)
    for key, claim in claims:
        found += await _close_slot(actor, key, claim.value.takes)
        over = await _release(actor, key, claim, state.run)
        found += [] if over is None else [over]
    return max(found, default=None)


async def _release(actor: Actor, key: Key, claim: Stored[Claim], run: str) -> datetime | None:
    """See to it that a claim is not the highest record of its key; give the time of the record over it, if there is."""
    above = key.claim(claim.number + 1)
    while True:
        since = actor.source.monotonic()
        top = await actor.top(key)
        if top is None or top.number > claim.number:
            over = await actor.store.get(above)
            return None if over is None else over.stored_at
        # Late, it could take a number that has been used and cleared away.
        if actor.fresh(since):
            release = Release(at=above, nonce=actor.source.nonce(), slot=claim.number, run=run)
            return (await actor.create(release))[1].stored_at


async def claims_of(actor: Actor, run: str) -> Claims:
    """Find the claims that a run made."""
    found: Claims = []
    for index in await actor.store.list(names.claimed_by(run)):
        key, n = names.parse_claimed(index.key)
        record = await actor.store.get(key.claim(n))
        if record is None:
            continue
        claim = records.key_record(record)
        if isinstance(claim.value, Claim) and claim.value.run == run:
            found.append((key, Stored(claim.value, claim.number, claim.at)))
    return found


async def _close_slot(actor: Actor, key: Key, slot: int) -> list[datetime]:
    closed: list[datetime] = []
    for entry in await actor.slot(key, slot):
        if isinstance(entry, Stored) and isinstance(entry.value, Pending):
            value = entry.value
            address = f"{key.workflow}/{key.key}"
            closed += await _close_chain(actor, value.sender, address, value.signal_id, value.at)
    return closed


async def _close_chain(
    actor: Actor, sender: records.Sender, address: str, signal_id: str | None, makes: str
) -> list[datetime]:
    """Close a chain whose last attempt made the record `makes`, if that is judged for good; tell when it was closed."""
    if signal_id is None:
        return []
    chain = names.chain(sender.kind, sender.id, address, signal_id)
    last = await actor.store.last(chain)
    if last is None:
        return []
    record = records.chain_record(last)
    if isinstance(record.value, Final):
        return [record.at]
    if record.value.makes != makes:
        return []
    verdict = await chains.judge(actor, record.value)
    if not isinstance(verdict, Taken) or verdict.state == "held":
        return []
    return [await chains.conclude(actor, chain, record.number + 1, record.value, verdict)]


async def _delete(actor: Actor, state: RunState) -> None:
    """Delete a superseded run's records; its log last, from the first event on."""
    keys: list[str] = []
    for key, claim in await claims_of(actor, state.run):
        keys += [record.key for record in await actor.store.list(key.slot(claim.value.takes))]
        keys += [each.replace("pending/", names.EARLY, 1) for each in keys if each.startswith("pending/")]
        keys += await _claims_to_delete(actor, key, claim)
    for wait in state.openings:
        keys += [names.outcome(wait), names.registration(wait)]
    if keys:
        await actor.store.delete(keys)
    await actor.store.delete([names.event(state.run, 1)])
    await _delete_log(actor, state.run)


async def _delete_log(actor: Actor, run: str) -> None:
    """Delete what is left of a run whose log has lost its first event: nobody appends to it any more."""
    prefixes = (names.opened(run), names.claimed_by(run), names.log(run))
    left = [record.key for prefix in prefixes for record in await actor.store.list(prefix)]
    await actor.store.delete([*left, names.removing(run)])


async def _claims_to_delete(actor: Actor, key: Key, claim: Stored[Claim]) -> list[str]:
    """Name the claim and the releases beside it, but never the highest record of the key."""
    top = await actor.top(key)
    found = []
    for number in (claim.number - 1, claim.number, claim.number + 1):
        record = await actor.store.get(key.claim(number)) if number > 0 else None
        if record is None or top is None or number >= top.number:
            continue
        value = records.key_record(record).value
        if isinstance(value, Release) or number == claim.number:
            found.append(record.key)
    return found


# -- early signals that nobody took ---------------------------------------------------------------------------


async def expire(actor: Actor, at: PendingAt) -> bool:
    """Expire an early signal whose limit has passed; false while there is something left to do, or to look at again.

    The time is read before the claims: a claim that is stored after that time cannot take the signal any more.
    """
    since = actor.source.monotonic()
    raw = await actor.store.get(at.key.pending(at.slot, at.m))
    entry = None if raw is None else records.slot_record(raw)
    if not isinstance(entry, Stored) or not isinstance(entry.value, Pending):
        return True
    pending = Stored(entry.value, entry.number, entry.at)
    until = records.kept_until(pending)
    if await actor.store.now(until=until) <= until:
        # A claim that is stored in this very microsecond still takes the signal.
        return False
    if records.current_slot(await actor.top(at.key)) != at.slot:
        claim = await actor.taking(at.key, at.slot)
        if claim is not None:
            await settle(actor, at.key, claim)
        return True
    return await _expire_current(actor, at, pending, since)


async def _expire_current(actor: Actor, at: PendingAt, pending: Stored[Pending], since: float) -> bool:
    """Close the signal's chain, see to a record above it, tell of it, and delete its `early` record: the last of all.

    While `early` is there nobody may have told. Of passes that find it at once the maker of `clear` goes on, and the
    others leave both index records to a later pass: that one may die before it has told.
    """
    value = pending.value
    address = f"{at.key.workflow}/{at.key.key}"
    await _close_chain(actor, value.sender, address, value.signal_id, value.at)
    early = at.key.early(at.slot, at.m)
    untold = await actor.store.get(early) is not None
    newest = await actor.newest(at.key, at.slot)
    above = newest is not None and number_at(newest) > at.m
    if above and not untold:
        return True
    until = await actor.about_now() + timedelta(seconds=REMOVAL_GRACE_SECONDS)
    target = f"{address}/{names.number(at.slot)}/{names.number(at.m)}"
    mine = actor.source.nonce().encode()
    if not actor.fresh(since):
        return False
    if (await actor.store.create(names.due(until + timedelta(minutes=1), "clear", target), mine)).value != mine:
        return False
    if not above:
        void = Void(at=at.key.pending(at.slot, at.m + 1), nonce=actor.source.nonce(), why="expired")
        won, stored = await actor.create(void)
        if not won and _is_void(stored):
            # As the minute changed, another pass made a `clear` of its own, and this void: it tells.
            return False
    actor.note(EngineEvent(action="signal.expired", workflow=at.key.workflow, key=at.key.key, receipt=value.receipt))
    await actor.store.delete([early])
    return True


def _is_void(record: Record) -> bool:
    found = records.slot_record(record)
    return isinstance(found, Stored) and isinstance(found.value, Void)


async def clear(actor: Actor, at: PendingAt) -> None:
    """Delete what an expired signal left, up to and without the highest record of its slot."""
    slot = await actor.slot(at.key, at.slot)
    horizon = await actor.store.now() - timedelta(seconds=REMOVAL_GRACE_SECONDS)
    over = []
    for entry in slot[:-1]:
        if not isinstance(entry, Stored):
            continue
        match entry.value:
            case Pending() as value if records.kept_until(Stored(value, entry.number, entry.at)) < horizon:
                over.append(value.at)
            case Void() as value if entry.at < horizon:
                over.append(value.at)
            case _:
                pass
    if over and records.current_slot(await actor.top(at.key)) == at.slot:
        await actor.store.delete(over)


# -- chains ----------------------------------------------------------------------------------------------------


async def sweep_chain(actor: Actor, chain: str) -> None:
    """Delete a chain that has been final, or has failed for good, for the retention; with the voids that it caused."""
    found = await actor.store.list(chain)
    if not found:
        return
    last = records.chain_record(found[-1])
    horizon = await actor.store.now() - timedelta(seconds=CHAIN_RETENTION_SECONDS)
    if last.at > horizon:
        return
    if isinstance(last.value, Attempt) and await chains.judge(actor, last.value) != "failed":
        # Delivered, and the outcome is still there: the chain is closed when its run is removed.
        return
    voids = []
    for record in found:
        value = records.chain_record(record).value
        if isinstance(value, Final):
            continue
        voids += await _void_of(actor, value)
    await actor.store.delete([*voids, *(record.key for record in found)])


async def _void_of(actor: Actor, attempt: Attempt) -> list[str]:
    raw = await actor.store.get(attempt.makes)
    if raw is None:
        return []
    if attempt.wait is not None:
        found = records.outcome(raw)
        is_void = isinstance(found, Stored) and isinstance(found.value, Cancelled) and found.value.why == "void"
        return [raw.key] if is_void else []
    entry = records.slot_record(raw)
    is_void = isinstance(entry, Stored) and isinstance(entry.value, Void) and entry.value.why == "attempt"
    return [raw.key] if is_void else []
