"""What happens, as it happens, for whoever watches: WebSockets and the page. It costs nothing while nobody does.

What this instance does is told at once. What other instances do is read from their audit events and, while a run of
theirs is driven, from its log, twice a second. A watcher that does not keep up loses what it has not taken, is told
so, and reads afresh how things stand; it never holds anybody up.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Final, get_args

from engine import names, records
from engine.errors import StoreUnavailable, UnreadableRecord
from engine.events import Action, EngineEvent
from engine.records import Created, Event, Resumed, Retried, StepEnded, StepStarted, Unreadable
from engine.store.base import Record, Store
from gateway import trail
from gateway.audit import AuditEvent, read_event

FOLLOW_SECONDS: Final = 0.5
MAX_QUEUED: Final = 256
# Runs of other instances whose steps are told one by one; of those beyond, only what the audit log says is told.
MAX_FOLLOWED_RUNS: Final = 256
_ENGINE: Final = frozenset(get_args(Action))
_BEGINS: Final = frozenset({"run.created", "run.resumed", "run.retried"})
_RESTS: Final = frozenset({"run.suspended", "run.ended", "run.cancelled", "run.deleted", "run.damaged"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """One thing that happened, by names and ids alone; `principal` did it, `result` and `reason` are stable words."""

    action: str
    result: str = ""
    workflow: str = ""
    key: str = ""
    wait: str = ""
    run: str = ""
    job: str = ""
    step: str = ""
    receipt: str = ""
    reason: str = ""
    principal: str = ""

    def said(self) -> dict[str, str]:
        """Give the fields that say something."""
        return {name: value for name in self.__slots__ if (value := getattr(self, name))}


Wanted = Callable[[Happening], bool]


@dataclass(frozen=True, slots=True)
class News:
    """What came since the last look, in order. `missed`: there was more, which is lost: read how things stand."""

    happenings: tuple[Happening, ...]
    missed: bool = False


@dataclass(eq=False)
class Subscription:
    """One watcher's queue, bounded."""

    wanted: Wanted
    capacity: int = MAX_QUEUED
    _queue: deque[Happening] = field(default_factory=deque)
    _missed: bool = False
    _some: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, happening: Happening) -> None:
        """Take one happening if it is wanted; when the queue is full, all of it is lost, and that is remembered."""
        if not self.wanted(happening):
            return
        if len(self._queue) >= self.capacity:
            self.lose()
            return
        self._queue.append(happening)
        self._some.set()

    def lose(self) -> None:
        """Have the watcher read afresh."""
        self._queue.clear()
        self._missed = True
        self._some.set()

    async def news(self) -> News:
        """Wait until there is something, and take all of it."""
        await self._some.wait()
        self._some.clear()
        taken = News(tuple(self._queue), self._missed)
        self._queue.clear()
        self._missed = False
        return taken


@dataclass(slots=True)
class _Followed:
    """How far the log of another instance's run has been told."""

    run: str
    workflow: str
    seq: int
    driven: bool = False


class Live:
    """The hub. It is one of the engine's observers, and hears of each audit event once it is stored."""

    def __init__(self, store: Store, instance: str, *, every_seconds: float = FOLLOW_SECONDS) -> None:
        self._store = store
        self._instance = instance
        self._every_seconds = every_seconds
        self._subscriptions: set[Subscription] = set()
        self._watched = asyncio.Event()
        self._following = asyncio.Event()
        self._runs: dict[str, _Followed] = {}

    # -- telling -----------------------------------------------------------------------------------------------------

    def note(self, event: EngineEvent) -> None:
        """Tell what this instance's engine did."""
        if self._subscriptions:
            self._tell(
                Happening(
                    action=event.action,
                    result=event.result,
                    workflow=event.workflow,
                    key=event.key,
                    wait=event.wait,
                    run=event.run,
                    job=event.job,
                    step=event.step,
                    receipt=event.receipt,
                    reason=event.reason,
                    principal=event.by,
                )
            )

    def stored(self, record: Record) -> None:
        """Tell of an audit event of this instance; what the engine did has been told."""
        if not self._subscriptions:
            return
        found = read_event(record)
        if not isinstance(found, Unreadable) and found.value.action not in _ENGINE:
            self._tell(_happening(found.value))

    def _tell(self, happening: Happening) -> None:
        for subscription in self._subscriptions:
            subscription.put(happening)

    # -- watching ----------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def watch(self, wanted: Wanted, *, capacity: int = MAX_QUEUED) -> AsyncIterator[Subscription]:
        """Watch for as long as the context lasts.

        Whatever is stored after this has been entered is told; what the watcher reads then, it reads early enough.
        """
        subscription = Subscription(wanted, capacity)
        self._subscriptions.add(subscription)
        self._watched.set()
        try:
            with contextlib.suppress(TimeoutError):
                # Where nobody follows, as in a command that acts by itself, there is nothing to wait for.
                await asyncio.wait_for(self._following.wait(), 4 * self._every_seconds)
            yield subscription
        finally:
            self._subscriptions.discard(subscription)
            if not self._subscriptions:
                self._watched.clear()

    @property
    def watchers(self) -> int:
        """Count who watches."""
        return len(self._subscriptions)

    # -- other instances ---------------------------------------------------------------------------------------------

    async def follow(self) -> None:
        """Tell for ever what other instances do, while somebody watches."""
        while True:
            await self._watched.wait()
            with contextlib.suppress(StoreUnavailable):
                await self._follow_while_watched()
            self._following.clear()
            self._runs.clear()
            if self._subscriptions:  # the store was away: whatever happened meanwhile is not known
                for subscription in self._subscriptions:
                    subscription.lose()
                await asyncio.sleep(self._every_seconds)

    async def _follow_while_watched(self) -> None:
        cursor = await trail.end(self._store)
        self._following.set()
        while self._subscriptions:
            await asyncio.sleep(self._every_seconds)
            more = True
            while more and self._subscriptions:
                page = await trail.read(self._store, trail.Filter(), cursor=cursor, unless=self._instance)
                cursor, more = page.cursor, page.more
                for entry in page.entries:
                    if entry.event is not None:
                        await self._relay(entry.event)
            for followed in list(self._runs.values()):
                if followed.driven:
                    await self._read_on(followed)

    async def _relay(self, event: AuditEvent) -> None:
        """Tell one event of another instance, among the steps of its run in their order."""
        rests = event.action in _RESTS
        if rests and event.run in self._runs:
            await self._read_on(self._runs[event.run])
        self._tell(_happening(event))
        if event.run and event.action in _BEGINS:
            followed = self._runs.pop(event.run, None)
            if followed is None:
                followed = _Followed(event.run, event.workflow, await self._beginning(event.run))
            followed.driven = True
            self._runs[event.run] = followed
            if len(self._runs) > MAX_FOLLOWED_RUNS:
                del self._runs[next(iter(self._runs))]
        elif rests and event.run in self._runs:
            self._runs[event.run].driven = False

    async def _beginning(self, run: str) -> int:
        """Find the number of the event with which a run's present driver began."""
        seen = 0
        for record in await self._store.list(names.log(run)):
            if isinstance(_log_event(record), Created | Resumed | Retried):
                seen = names.number_of(record.key)
        return seen

    async def _read_on(self, followed: _Followed) -> None:
        """Tell of the steps that a run's log has gained."""
        after = names.event(followed.run, followed.seq)
        for record in await self._store.list(names.log(followed.run), after=after):
            followed.seq = names.number_of(record.key)
            if (happening := _step_of(_log_event(record), followed)) is not None:
                self._tell(happening)


def _happening(event: AuditEvent) -> Happening:
    return Happening(
        action=event.action,
        result=event.result,
        workflow=event.workflow,
        key=event.key,
        wait=event.wait,
        run=event.run,
        job=event.job,
        step=event.step,
        receipt=event.receipt,
        reason=event.reason,
        principal=event.principal,
    )


def _step_of(event: Event | None, followed: _Followed) -> Happening | None:
    match event:
        case StepStarted(job=job, step=step):
            return Happening(action="step.started", workflow=followed.workflow, run=followed.run, job=job, step=step)
        case StepEnded(job=job, step=step, status=status, error=error):
            return Happening(
                action="step.ended",
                result=status,
                workflow=followed.workflow,
                run=followed.run,
                job=job,
                step=step,
                reason=error.code if error is not None else "",
            )
        case _:
            return None


def _log_event(record: Record) -> Event | None:
    try:
        return records.event(record).value
    except UnreadableRecord:
        return None
