"""The audit log: append-only events, one hash chain for each instance, and no field that could hold a payload.

Each event names the digest of the one before it, so that a changed, removed or reordered one shows; the head of the
chain goes into the instance's heartbeats, so that a cut-off tail shows too. A flood of one refusal becomes one event
with a count.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from devices.registry import Revised
from engine import names, records
from engine.clock import Source
from engine.errors import StoreUnavailable
from engine.events import EngineEvent
from engine.store.base import Record, Store
from engine.store.batching import again
from gateway.entries import (
    CLOSED,
    RETAINED,
    WITNESSED,
    AuditEvent,
    Batch,
    Door,
    Entry,
    Flood,
    Riding,
    digest,
    event_of,
    read_event,
    sameness,
)

FLUSH_SECONDS: Final = 0.2
FLOOD_SECONDS: Final = 10.0
MAX_FLOODS: Final = 1_000
MAX_WAITING: Final = 20_000
BATCH: Final = 500
FAR: Final = datetime(9999, 1, 1, tzinfo=UTC)

# An event and what it is made of have a module of their own; whoever writes or reads the log finds them here.
__all__ = [
    "BATCH",
    "CLOSED",
    "FAR",
    "FLOOD_SECONDS",
    "MAX_FLOODS",
    "MAX_WAITING",
    "RETAINED",
    "WITNESSED",
    "Audit",
    "AuditEvent",
    "Door",
    "Entry",
    "digest",
    "read_event",
]


class Audit:
    """Appends this instance's events. `note`, `add` and `refuse` return at once; `written` waits for the store.

    Whoever waits first writes for all who came before it, one commit for all of them. Where the store does operations
    at one moment, what is noted in them is stored by the same commit, or never was (`Rider`). `run` writes what nobody
    waits for, and the counts of floods. Events are kept while the store is away, up to `MAX_WAITING`; how many were
    lost beyond that is an event too. `heard` is told of each event once it is stored. `instance` may be set until the
    first event is written. `counted` hears of each entry as it is noted, the repeats of a flood too; `took` how many
    seconds each write took.
    """

    def __init__(
        self,
        store: Store,
        instance: str,
        source: Source,
        *,
        heard: Callable[[Record], None] | None = None,
        counted: Callable[[Entry], None] | None = None,
        took: Callable[[float], None] | None = None,
    ) -> None:
        self._store = store
        self.instance = instance
        self._source = source
        self._heard = heard
        self._counted = counted
        self._took = took
        self.lost = 0
        # None stands for an event that has turned out never to have been: those behind it keep their places.
        self._waiting: deque[Entry | None] = deque()
        self._batch: Batch | None = None
        self._noted = 0
        self._stored = 0
        self._lost = 0
        self._seq = 0
        self._prev = ""
        self._day = ""
        self._head, self._head_seq = "", 0
        # One for all: nobody else writes as this instance, and no two events of it have one number.
        self._nonce = source.nonce()
        self._writing = self._crowded = False
        # What is being noted in the operations of a moment; what goes along with one; what may or may not have arrived.
        self._staged: list[Entry] | None = None
        self._aside: list[Entry] = []
        self._riding: Riding | None = None
        self._doubtful: Riding | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._floods: OrderedDict[tuple[str, ...], Flood] = OrderedDict()

    @property
    def head(self) -> str:
        """`<seq>:<digest>` of the last event that is stored; "" before the first. For heartbeats."""
        return self._head

    # -- noting ----------------------------------------------------------------------------------------------------

    def note(self, event: EngineEvent) -> None:
        """Write down what the engine did. Single steps are in the run's log and not repeated here."""
        if event.action.startswith("step."):
            return
        self.add(
            Entry(
                action=event.action,
                result=event.result,
                principal=event.by,
                workflow=event.workflow,
                key=event.key,
                wait=event.wait,
                run=event.run,
                job=event.job,
                step=event.step,
                receipt=event.receipt,
                reason=event.reason,
            )
        )

    def revised(self, change: Revised) -> None:
        """Write down what an operator did to a device or an operator; for `Registry(noted=…)`."""
        what = "device" if change.kind == "device" else "operator"
        about = f"{change.kind}:{change.name}"
        self.add(Entry(action=f"{what}.{change.did}", result=about, principal=change.by, reason=change.detail))

    @property
    def noted(self) -> int:
        """Count the events that were ever noted: what `written` waits for."""
        return self._noted

    @property
    def waiting(self) -> int:
        """Count the events that are not stored yet."""
        return self._noted - self._stored

    def add(self, entry: Entry) -> None:
        """Write an event down."""
        if self._counted is not None:
            self._counted(entry)
        self._add(entry)

    def _add(self, entry: Entry) -> None:
        if self._staged is not None:
            self._staged.append(entry)
            self._noted += 1
            return
        if len(self._waiting) >= MAX_WAITING:
            self._lost += 1
            self.lost += 1
            return
        if self._lost:
            self._waiting.append(Entry(action="audit.lost", count=self._lost))
            self._noted += 1
            self._lost = 0
        self._waiting.append(entry)
        self._noted += 1

    def refuse(self, entry: Entry) -> bool:
        """Write a refusal down, or count it when the same one is being repeated; tell whether it was written.

        Over-rate refusals are one whatever they were about, and refused logins one for each address.
        """
        if self._counted is not None:
            self._counted(entry)
        now = self._source.monotonic()
        same = sameness(entry)
        flood = self._floods.get(same)
        if flood is not None and now - flood.since < FLOOD_SECONDS:
            flood.more += 1
            return False
        if flood is not None:
            self._close(same)
        self._floods[same] = Flood(entry, now)
        if len(self._floods) > MAX_FLOODS:
            self._close(next(iter(self._floods)))
        self._add(entry)
        return True

    def _close(self, same: tuple[str, ...]) -> None:
        flood = self._floods.pop(same)
        if flood.more:
            seconds = round(self._source.monotonic() - flood.since, 3)
            entry = msgspec.structs.replace(flood.entry, count=flood.more, seconds=seconds)
            if self._staged is None:
                self._add(entry)
            else:
                # It holds whatever becomes of the operations.
                self._aside.append(entry)

    def _close_floods(self, *, older_than: float) -> None:
        before = self._source.monotonic() - older_than
        while self._floods:
            same, flood = next(iter(self._floods.items()))
            if flood.since > before:
                return
            self._close(same)

    # -- storing -----------------------------------------------------------------------------------------------------

    async def written(self, upto: int | None = None) -> None:
        """Return when all that has been noted, or the first `upto`, is durable; raises `StoreUnavailable`."""
        target = self._noted if upto is None else upto
        while self._stored < target:
            if not self._writing and self._riding is None:
                await self._write()
            else:
                self._waiters.append(asyncio.get_running_loop().create_future())
                await self._waiters[-1]

    async def _write(self) -> None:
        """Write a batch; all who wait for it go on together, and hear of its fault, each with one of its own."""
        self._writing, fault = True, None
        try:
            if self._crowded and len(self._waiting) <= BATCH:
                # Those whose records were in the same commit of the store are about to note their events.
                await asyncio.sleep(0)
            await self._flush()
        except StoreUnavailable as error:
            fault = error
            raise
        finally:
            self._written(fault)

    def _written(self, fault: StoreUnavailable | None) -> None:
        self._writing = False
        waiters, self._waiters = self._waiters, []
        self._crowded = bool(waiters)
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None) if fault is None else waiter.set_exception(again(fault))

    async def run(self) -> None:
        """Write for ever what nobody waits for; what the store does not take now is tried again."""
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            self._close_floods(older_than=FLOOD_SECONDS)
            try:
                await self.written()
            except StoreUnavailable:
                continue

    async def end(self) -> None:
        """Close with a last event that says so, if there were any: where it is missing, a process was killed."""
        if self._noted:
            self.add(Entry(action=CLOSED))
        await self.close()

    async def close(self) -> None:
        """Write down all there is, the counts of floods included; raises `StoreUnavailable`."""
        self._close_floods(older_than=0.0)
        await self.written()

    async def _flush(self) -> None:
        # A batch keeps its keys and bytes until it is known to be stored: an attempt that was cut off and this
        # one are the same creates.
        if self._batch is None:
            await self._ask_what_arrived()
            now = await self._store.now(until=FAR)
            if self._riding is not None or self._doubtful is not None:
                # What goes along with operations comes first, and nobody knows yet whether it ever was.
                return
            self._batch = self._numbered(now, self._next())
        began = self._source.monotonic()
        stored = await self._store.create_all(self._batch.items)
        if self._took is not None:
            self._took(self._source.monotonic() - began)
        for record, (key, value) in zip(stored, self._batch.items, strict=True):
            assert record.value == value, f"another process writes as this instance: {key}"
        batch, self._batch = self._batch, None
        self._landed(batch, stored)

    def _next(self) -> list[Entry | None]:
        return [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]

    def _numbered(self, now: datetime, entries: list[Entry | None]) -> Batch:
        self._day = max(self._day, f"{now.year:04d}{now.month:02d}{now.day:02d}")
        batch = Batch(items=[], stands_for=len(entries))
        for entry in entries:
            if entry is None:
                continue
            self._seq += 1
            at = names.audit(self._day, self.instance, self._seq)
            key, value = records.encode(event_of(entry, at=at, nonce=self._nonce, prev=self._prev))
            batch.items.append((key, value))
            self._prev = digest(value)
        return batch

    def _landed(self, batch: Batch, stored: Sequence[Record]) -> None:
        self._stored += batch.stands_for
        if stored and (seq := names.number_of(stored[-1].key)) > self._head_seq:
            # An earlier batch may be heard of later.
            self._head_seq, self._head = seq, f"{seq}:{digest(stored[-1].value)}"
        if self._heard is not None:
            for record in stored:
                self._heard(record)

    # -- going along with operations (`engine.store.base.Rider`) -----------------------------------------------------

    def embark(self) -> None:
        """Keep apart what is noted from here on: it holds only if the operations do."""
        self._staged = []

    def ride(self, at: datetime) -> Sequence[tuple[str, bytes]]:
        """Number what was noted, behind what nobody has waited for so far.

        A batch that is on its way is part of it: neither is ever stored without what is before it in the chain.
        """
        staged, self._staged = self._staged or [], None
        if not staged:
            return ()
        before = (self._seq, self._prev, self._day)
        riding = self._riding = Riding(staged=staged, older=[], before=before, at=at, batch=None)
        if self._doubtful is not None or len(self._waiting) > BATCH:
            self._waiting.extend(staged)
            return ()
        riding.older = self._next()
        riding.batch = self._numbered(at, [*riding.older, *staged])
        ahead = [] if self._batch is None else self._batch.items
        return [*ahead, *riding.batch.items]

    def arrive(self, fault: StoreUnavailable | None) -> None:
        """Take note of what became of it: what was noted in operations that did not come to be, never was."""
        if self._staged is not None:
            self._end_floods_of(self._staged)
            self._waiting.extend([None] * len(self._staged))
            self._staged = None
        riding, self._riding = self._riding, None
        aside, self._aside = self._aside, []
        for entry in aside:
            self._add(entry)
        if riding is None:
            return
        if riding.batch is None:
            if fault is not None:
                self._forget(riding.staged)
        elif fault is None:
            self._landed(riding.batch, [Record(key, value, riding.at) for key, value in riding.batch.items])
        elif fault.uncertain:
            self._doubtful = riding
        else:
            self._take_back(riding)
        if not self._writing:
            self._written(None)

    def _forget(self, entries: Sequence[Entry]) -> None:
        """Have events that are still waiting never have been."""
        self._end_floods_of(entries)
        gone = {id(entry) for entry in entries}
        self._waiting = deque(None if id(entry) in gone else entry for entry in self._waiting)

    def _end_floods_of(self, entries: Sequence[Entry]) -> None:
        """Have a refusal that never was, and comes again, be the first of its kind."""
        for entry in entries:
            same = sameness(entry)
            if (flood := self._floods.get(same)) is not None and flood.entry is entry:
                del self._floods[same]

    def _take_back(self, riding: Riding) -> None:
        self._seq, self._prev, self._day = riding.before
        self._end_floods_of(riding.staged)
        self._waiting.extendleft([None] * len(riding.staged))
        self._waiting.extendleft(reversed(riding.older))

    async def _ask_what_arrived(self) -> None:
        """Find out whether a commit of which nobody could say how it ended has taken place."""
        riding = self._doubtful
        if riding is None or riding.batch is None:
            return
        # It may have been given up before it ended; the clock is read behind all that was asked of the store before.
        await self._store.now()
        found = await self._store.get(riding.batch.items[0][0])
        self._doubtful = None
        if found is None:
            self._take_back(riding)
        else:
            self._landed(riding.batch, [Record(key, value, found.stored_at) for key, value in riding.batch.items])
