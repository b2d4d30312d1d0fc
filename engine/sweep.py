"""The sweep: one pass finds all that is due and does it. Its cost grows with what is due, not with what is open.

Everything it does may be done by anybody at any time; a pass that dies half-way is finished by the next one, here or
on another instance. One damaged record never stops a pass.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from engine import names, outbox, records, removal, runs
from engine.actor import Actor, Owed
from engine.decisions.fold import RunState
from engine.errors import Conflict, NotFound, StoreUnavailable, UnreadableRecord
from engine.events import EngineEvent
from engine.limits import REMOVAL_GRACE_SECONDS
from engine.names import Key
from engine.records import Created, Pending, Retried, Stored
from engine.store.base import Record
from engine.waits import Open, Settled, settle, settle_registered

GoOn = Callable[[str], Awaitable[None]]
TakeOver = Callable[[str, str], Awaitable[None]]
IsDead = Callable[[str, str], Awaitable[bool]]
_FIRST_PAGE = 16
_PAGE = 500


@dataclass(slots=True)
class Sweep:
    """One pass.

    `go_on(run)` lets a run go on if it may; `is_dead(instance, run)` tells whether that driver of the run is gone, and
    `take_over(instance, run)` claims a run that a dead one drove. `known` are the deadlines that earlier passes have
    read, by the key of their index record: until one has passed there is nothing to look at behind it.
    """

    actor: Actor
    go_on: GoOn
    take_over: TakeOver
    is_dead: IsDead
    looked_at: int = 0
    damaged: int = 0
    known: dict[str, datetime] = field(default_factory=dict)
    deadlines: dict[str, datetime] = field(default_factory=dict)
    _began: datetime | None = None
    _slot: tuple[Key, int] | None = None

    async def run(self) -> None:
        """Do one whole pass."""
        await self._begin()
        async for record in self._each(names.EARLY):
            await self._guarded(record, self._early)
        async for record in self._each(names.READY):
            await self._guarded(record, self._ready)
        await self._due()
        await self._driving()
        await outbox.prune(self.actor.store)

    async def _each(self, prefix: str) -> AsyncIterator[Record]:
        after: str | None = None
        size = _FIRST_PAGE  # and then ever larger ones: what is read grows with what is looked at
        while True:
            page = await self.actor.store.list(prefix, after=after, limit=size)
            for record in page:
                self.looked_at += 1
                yield record
            if len(page) < size:
                return
            after, size = page[-1].key, min(2 * size, _PAGE)

    async def _guarded(self, record: Record, look: Callable[[Record], Awaitable[None]]) -> None:
        """Look at one index record; a damaged record behind it is told of, and the pass goes on."""
        try:
            await look(record)
            await self._settle_owed()
        except StoreUnavailable:
            raise
        except UnreadableRecord as damage:
            self._tell_of_damage(damage.key)
        except Exception as fault:  # noqa: BLE001 - whatever is wrong with one record, the others are looked at
            # Not the fault's own words: they may quote a record, and records hold payloads.
            self._tell_of_damage(f"{record.key} ({type(fault).__name__})")

    def _tell_of_damage(self, what: str) -> None:
        self.damaged += 1
        self.actor.owed.clear()
        self.actor.note(EngineEvent(action="run.damaged", reason=what))

    async def _settle_owed(self) -> None:
        """Let the runs go on that this pass gave a reason to; what was applied needs its `ready` record no more."""
        owed, self.actor.owed = self.actor.owed, []
        for each in owed:
            await self.go_on(each.run)
            await clear_ready(self.actor, each)

    async def _begin(self) -> datetime:
        self._began = await self.actor.store.now()
        return self._began

    def _was_old(self, record: Record) -> bool:
        """Tell whether an index record had waited for its target for longer than any operation takes, at the beginning.

        By a time that was read before its target: a pass that falls asleep between the two sees a target missing that
        was stored since, by somebody who was in time.
        """
        assert self._began is not None
        return self._began - record.stored_at > timedelta(seconds=REMOVAL_GRACE_SECONDS)

    # -- early signals ---------------------------------------------------------------------------------------

    async def _early(self, record: Record) -> None:
        at = names.parse_pending(record.key)
        if await self._current_slot(at.key) == at.slot and not self._was_old(record):
            # Nothing takes from its slot yet.
            return
        raw = await self.actor.store.get(at.key.pending(at.slot, at.m))
        if raw is None:
            if self._was_old(record):
                await self.actor.store.delete([record.key])
            return
        entry = records.slot_record(raw)
        if not isinstance(entry, Stored) or not isinstance(entry.value, Pending):
            await self.actor.store.delete([record.key])
            return
        if await self._current_slot(at.key) == at.slot:
            return
        claim = await self.actor.taking(at.key, at.slot)
        if claim is not None and not isinstance(await settle(self.actor, at.key, claim), Settled):
            until = records.kept_until(Stored(entry.value, entry.number, entry.at))
            if await self.actor.store.now(until=until) <= until:
                return
        await self.actor.store.delete([record.key])

    async def _current_slot(self, key: Key) -> int:
        """Read which slot is current, once for the early signals of one key, which follow one another.

        A slot that is behind stays so; one that was current is looked at again in the next pass.
        """
        if self._slot is None or self._slot[0] != key:
            self._slot = key, records.current_slot(await self.actor.top(key))
        return self._slot[1]

    # -- runs that may go on ---------------------------------------------------------------------------------

    async def _ready(self, record: Record) -> None:
        run, wait = names.parse_ready(record.key)
        if wait == "-":
            await self._ready_by_log(record, run)
            return
        owed = Owed(run, wait, record.key)
        if await clear_ready(self.actor, owed):
            return
        if await self.actor.store.get(names.event(run, 1)) is not None and await self.actor.outcome(wait) is not None:
            await self.go_on(run)
            await clear_ready(self.actor, owed)
        elif self._was_old(record):
            await self.actor.store.delete([record.key])

    async def _ready_by_log(self, record: Record, run: str) -> None:
        seq = records.ready(record).value.event
        state = await runs.load(self.actor, run)
        if state is None or state.seq < seq:
            if self._was_old(record):
                # Its maker died before the event: nothing has been open since then.
                await self.actor.store.delete([names.open_since(run, seq), record.key])
            return
        await finish_ready(self.actor, state, seq, record.key, self.go_on)

    # -- what time brings ------------------------------------------------------------------------------------

    async def _due(self) -> None:
        now = await self._begin()
        horizon = names.minute(now + timedelta(minutes=1))
        async for record in self._each(names.DUE):
            if record.key > f"{names.DUE}{horizon}{names.HIGHEST}":
                return
            if (until := self.known.get(record.key)) is not None and now < until:
                self.deadlines[record.key] = until
                continue
            await self._guarded(record, self._look)

    async def _look(self, record: Record) -> None:
        kind, target = names.parse_due(record.key)
        minute = record.key.split("/", 2)[1]
        passed = minute < names.minute(await self.actor.about_now())
        done = passed
        match kind:
            case "deadline":
                done = await self._deadline(record, target)
            case "signal":
                done = await self._signal(record, names.parse_pending(target))
            case "removal" if passed:
                await removal.finish_removal(self.actor, target)
            case "clear" if passed:
                await removal.clear(self.actor, names.parse_pending(target))
            case "chain" if passed:
                await removal.sweep_chain(self.actor, target)
            case "retire" if passed:
                await self._retire(target)
            case _:
                pass
        if done:
            await self.actor.store.delete([record.key])

    async def _deadline(self, record: Record, wait: str) -> bool:
        registration = await self.actor.registration(wait)
        if registration is None:
            return self._was_old(record)
        standing = await settle_registered(self.actor, registration)
        if isinstance(standing, Open):
            self.deadlines[record.key] = standing.until
            return False
        return True

    async def _signal(self, record: Record, at: names.PendingAt) -> bool:
        if await self.actor.store.get(at.key.pending(at.slot, at.m)) is None:
            # Its sender may be about to store it, and it must not be left without this record.
            return self._was_old(record)
        return await removal.expire(self.actor, at)

    async def _retire(self, run: str) -> None:
        state = await runs.load(self.actor, run)
        retention = self.actor.retention_seconds
        if state is None or state.ended_at is None or retention is None:
            return
        until = state.ended_at + timedelta(seconds=retention)
        if await self.actor.store.now(until=until) < until:
            # The retention is longer than it was when the run ended.
            await self.actor.store.create(names.due(until, "retire", run), b"")
            return
        try:
            await removal.begin(self.actor, run, "retention")
        except (NotFound, Conflict):
            return

    # -- drivers that died -----------------------------------------------------------------------------------

    async def _driving(self) -> None:
        async for record in self._each(names.DRIVING):
            await self._guarded(record, self._driver)

    async def _driver(self, record: Record) -> None:
        instance, run = names.parse_driving(record.key)
        if not await self.is_dead(instance, run):
            return
        await self.take_over(instance, run)
        state = await runs.load(self.actor, run)
        if state is None or state.phase == "ended" or (state.phase == "driven" and state.instance != instance):
            await self.actor.store.delete([record.key])
        elif state.phase != "driven" and self._was_old(record):
            # Until then whoever made it may be about to append its `resumed`; and while the log says that it drives,
            # this record is all that says that the run must be taken over.
            await self.actor.store.delete([record.key])


async def clear_ready(actor: Actor, owed: Owed) -> bool:
    """Delete a `ready` record whose reason is gone: the log has applied the wait, or the run has ended."""
    state = await runs.load(actor, owed.run)
    if owed.wait == "-":
        return False
    if state is None:
        return False
    if state.phase != "ended" and owed.wait not in state.applied:
        return False
    await actor.store.delete([owed.ready])
    return True


async def finish_ready(actor: Actor, state: RunState, seq: int, ready: str, go_on: GoOn) -> None:
    """Do what follows from event `seq` of a run, start it if that is called for, and delete the `ready` record then."""
    found = await actor.store.get(names.event(state.run, seq))
    if found is None:
        return
    event = records.event(found).value
    await runs.finish(actor, state, seq, event)
    if isinstance(event, Created | Retried) and state.phase == "waiting_for_driver":
        await go_on(state.run)
        again = await runs.load(actor, state.run)
        if again is not None and again.phase == "waiting_for_driver":
            return
    await actor.store.delete([ready])


__all__ = ["Sweep", "clear_ready", "finish_ready"]
