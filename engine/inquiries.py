"""Inquiries: what is open, held, running and past. They only read."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from engine import names, records, runs
from engine.actor import Actor
from engine.decisions.fold import RunState
from engine.decisions.moot import children
from engine.errors import NotFound, UnreadableRecord
from engine.names import Key, PendingAt
from engine.records import Attempt, Claim, Created, Final, Pending, Registration, Stored, Unreadable
from engine.results import SignalRequest
from engine.signals import chain_of, last_wait
from engine.views import damaged_run, event_view, run_summary, run_view, when
from engine.workflows.loading import Catalog

_PAGE = 200
# By one listing: two reads of the store each. A filter that passes over more of them gives a page that is not full.
RUNS_LOOKED_AT = 1_000
_UNFINISHED = frozenset({"pending", "running", "suspended"})


@dataclass(frozen=True, slots=True)
class WaitAddress:
    """Which workflow and key a wait belongs to."""

    workflow: str
    key: str | None


async def known(actor: Actor, run: str) -> RunState:
    """Load a run; raises `NotFound` when there is none or its removal has begun."""
    state = await runs.load(actor, run) if names.is_record_id(run) else None
    if state is None or await actor.store.get(names.removing(run)) is not None:
        raise NotFound(f"there is no run {run}", hint="`wayside run list` shows the runs")
    return state


async def refuse_removed(actor: Actor, run: str) -> None:
    """Raise `NotFound` unless the run is there and not being removed."""
    await known(actor, run)


async def run(actor: Actor, run_id: str) -> dict[str, Any]:
    """Show a run."""
    return run_view(await known(actor, run_id))


async def events(actor: Actor, run_id: str, after: int) -> list[dict[str, Any]]:
    """Show a run's log from behind event `after`."""
    found = await actor.store.list(names.log(run_id), after=names.event(run_id, after))
    if not found:
        await known(actor, run_id)
    return [event_view(records.event(record)) for record in found]


async def run_ids(actor: Actor, after: str | None, *, unfinished: bool = False) -> list[str]:
    """Name the next runs behind `after`, one short look-up each; `unfinished`: only those that may be open."""
    prefix, of = (names.OPEN, names.opened) if unfinished else (names.RUNS, names.log)
    found: list[str] = []
    behind = prefix if after is None else of(after) + names.HIGHEST
    while len(found) < _PAGE:
        page = await actor.store.list(prefix, after=behind, limit=1)
        if not page:
            break
        run_id = names.run_of(page[0].key)
        found.append(run_id)
        behind = of(run_id) + names.HIGHEST
    return found


async def list_runs(
    actor: Actor,
    *,
    workflow: str | None,
    status: str | None,
    after: str | None,
    limit: int,
    readable: Callable[[str], bool] | None = None,
) -> tuple[list[dict[str, Any]], str | None]:
    """List runs, newest first: `limit` of those that match, or what there is among the next `RUNS_LOOKED_AT`.

    One whose log cannot be read has the status `damaged`, and no workflow where not even its first event can be. The
    second value is where to go on: None when nothing is left.
    """
    shown: list[dict[str, Any]] = []
    looked_at = 0
    while looked_at < RUNS_LOOKED_AT:
        page = await run_ids(actor, after, unfinished=status in _UNFINISHED)
        for run_id in page:
            row = await _row(actor, run_id)
            fits = row is not None and workflow in {None, row["workflow"]} and status in {None, row["status"]}
            if row is not None and fits and (readable is None or readable(row["workflow"])):
                if len(shown) == limit:
                    return shown, shown[-1]["run"]
                shown.append(row)
            after = run_id
        looked_at += len(page)
        if len(page) < _PAGE:
            return shown, None
    return shown, after


async def _row(actor: Actor, run_id: str) -> dict[str, Any] | None:
    try:
        return run_summary(await known(actor, run_id))
    except NotFound:
        return None
    except UnreadableRecord:
        return await _damaged_run(actor, run_id)


async def _damaged_run(actor: Actor, run_id: str) -> dict[str, Any] | None:
    """Show a run whose log cannot be read by what its first event says, if that can be."""
    first = await actor.store.get(names.event(run_id, 1))
    if first is None or await actor.store.get(names.removing(run_id)) is not None:
        return None
    try:
        event = records.event(first).value
    except UnreadableRecord:
        event = None
    return damaged_run(run_id, first.stored_at, event if isinstance(event, Created) else None)


async def ended_before(actor: Actor, horizon: datetime) -> list[str]:
    """Name the runs that ended before `horizon`, but for damaged ones: nobody can say whether they have ended."""
    old: list[str] = []
    after: str | None = None
    while page := await run_ids(actor, after):
        for run_id in page:
            with contextlib.suppress(NotFound, UnreadableRecord):
                state = await known(actor, run_id)
                if state.ended_at is not None and state.ended_at <= horizon:
                    old.append(run_id)
        after = page[-1]
    return old


async def with_children(actor: Actor, run_id: str) -> list[str]:
    """Name a run and the child runs that it waits for, the run itself first."""
    state = await known(actor, run_id)
    found = [run_id]
    for child in children(state, state.openings.values()):
        if await runs.load(actor, child) is not None:
            found += await with_children(actor, child)
    return found


async def address_of(actor: Actor, wait: str, request: SignalRequest | None) -> WaitAddress | None:
    """Say which workflow and key a wait belongs to."""
    if not names.is_record_id(wait):
        return None
    registration = await actor.registration(wait)
    if registration is not None:
        return WaitAddress(registration.value.workflow, registration.value.key)
    chain = "" if request is None else chain_of(request, f"-/{wait}")
    last = await actor.store.last(chain) if chain else None
    if last is None:
        return None
    match records.chain_record(last).value:
        case Attempt(workflow=workflow, key=key) | Final(workflow=workflow, key=key):
            return WaitAddress(workflow, key)


# -- waits, held signals, keys -------------------------------------------------------------------------------


# The keys of records that cannot be read, each with its workflow, "" where only the record would say.
_Damaged = dict[str, str]


async def waits(actor: Actor, *, workflow: str | None, key: str | None) -> dict[str, Any]:
    """Show the open waits and the held signals, and which records on the way could not be read.

    A record that alone would say whose it is counts as damaged under every filter.
    """
    shown = []
    damaged: _Damaged = {}
    for record in await actor.store.list(names.WAITS):
        try:
            registration = records.registration(record)
        except UnreadableRecord as damage:
            damaged[damage.key] = ""
            continue
        value = registration.value
        if (workflow and value.workflow != workflow) or (key and value.key != key):
            continue
        if await actor.outcome(value.wait) is None:
            shown.append(await _open_wait(actor, registration, damaged))
    held = await _held(actor, workflow, key, damaged)
    told = [{"record": record, "workflow": of} for record, of in sorted(damaged.items())]
    return {"waits": shown, "pending": held, "damaged": told}


async def _open_wait(actor: Actor, registration: Stored[Registration], damaged: _Damaged) -> dict[str, Any]:
    value = registration.value
    opened, until = registration.at, records.deadline(registration)
    accept_early = None
    try:
        claim = await _claim_of(actor, value)
    except UnreadableRecord as damage:
        # The registration is a moment younger: its times are nearly the claim's.
        claim = None
        damaged[damage.key] = value.workflow
    if claim is not None:
        opened, until = claim.at, records.deadline(claim)
        accept_early = claim.value.accept_early
    return {
        "wait": value.wait,
        "workflow": value.workflow,
        "key": value.key,
        "run": value.run,
        "job": value.job,
        "step": value.step,
        "opened": when(opened),
        "deadline": when(until),
        "accept_early": accept_early,
    }


async def _claim_of(actor: Actor, value: Registration) -> Stored[Claim] | None:
    if value.key is None or value.claim is None:
        return None
    found = await actor.store.get(Key(value.workflow, value.key).claim(value.claim))
    claim = None if found is None else records.key_record(found)
    if claim is None or not isinstance(claim.value, Claim):
        return None
    return Stored(claim.value, claim.number, claim.at)


async def _held(actor: Actor, workflow: str | None, key: str | None, damaged: _Damaged) -> list[dict[str, Any]]:
    shown = []
    for record in await actor.store.list(names.EARLY):
        try:
            at = names.parse_pending(record.key)
        except (ValueError, IndexError):
            damaged[record.key] = ""
            continue
        if (workflow and at.key.workflow != workflow) or (key and at.key.key != key):
            continue
        try:
            held = await _held_signal(actor, at)
        except UnreadableRecord as damage:
            damaged[damage.key] = at.key.workflow
            continue
        if held is not None:
            shown.append(held)
    return shown


async def _held_signal(actor: Actor, at: PendingAt) -> dict[str, Any] | None:
    """Show an early signal that a wait could still take."""
    raw = await actor.store.get(at.key.pending(at.slot, at.m))
    entry = None if raw is None else records.slot_record(raw)
    if isinstance(entry, Unreadable):
        raise UnreadableRecord(entry.key, entry.reason)
    if entry is None or not isinstance(entry.value, Pending):
        return None
    if records.current_slot(await actor.top(at.key)) != at.slot:
        return None
    until = records.kept_until(Stored(entry.value, entry.number, entry.at))
    if await actor.store.now(until=until) > until:
        return None
    sender = entry.value.sender
    return {
        "workflow": at.key.workflow,
        "key": at.key.key,
        "receipt": entry.value.receipt,
        "received": when(entry.at),
        "until": when(until),
        "sender": f"{sender.kind}:{sender.id}",
    }


async def keys(actor: Actor, catalog: Catalog, workflow: str | None) -> list[dict[str, Any]]:
    """Show every declared key: its holder, or how its last wait was settled, or which record keeps it shut."""
    definitions = [catalog.get(name) for name in ([workflow] if workflow else catalog.names())]
    declared = [(each.name, each.keys()) for each in definitions if each is not None]
    return [await _key(actor, Key(name, key)) for name, keys_of in declared for key in keys_of]


async def _key(actor: Actor, key: Key) -> dict[str, Any]:
    shown: dict[str, Any] = {"workflow": key.workflow, "key": key.key, "holder": None, "last": None, "damaged": None}
    try:
        top = await actor.top(key)
    except UnreadableRecord as damage:
        return shown | {"damaged": damage.key}
    if top is None or not isinstance(top.value, Claim):
        return shown
    claim = top.value
    outcome = await actor.outcome(claim.wait)
    where = {"wait": claim.wait, "run": claim.run, "job": claim.job, "step": claim.step}
    if outcome is None:
        deadline = records.deadline(Stored(claim, top.number, top.at))
        shown["holder"] = {**where, "opened": when(top.at), "deadline": when(deadline)}
    else:
        last = last_wait(outcome)
        receipt = None if last.receipt is None else last.receipt.id
        unread = isinstance(outcome, Unreadable)
        shown["last"] = {**where, "how": last.how, "at": when(last.at), "receipt": receipt, "unreadable": unread}
    return shown
