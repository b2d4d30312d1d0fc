"""Engine: the facade that the gateway calls. One for each process; any number of them share a store."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Self

from engine import inquiries, names, removal, runs, signals
from engine.actor import Actor, Owed
from engine.children import began_with, checked_inputs
from engine.clock import Source
from engine.deciding import Deciding
from engine.drivers import Drivers, log_fault
from engine.errors import Conflict, NotFound, StoreUnavailable, UnreadableRecord, WaysideError
from engine.events import Observer, Publisher
from engine.format import check_format
from engine.inquiries import WaitAddress
from engine.instances import Lock, Pulse
from engine.limits import HEARTBEAT_SECONDS, SWEEP_INTERVAL_SECONDS
from engine.names import Key
from engine.results import Answer, SignalRequest
from engine.store.base import Store
from engine.sweep import Sweep
from engine.waits import settle_registered
from engine.workflows.definition import Definition
from engine.workflows.loading import Catalog

_PAUSE_SECONDS = 1.0
_LOG = logging.getLogger(__name__)
# Deadlines that are closer together than this are met by one pass.
_LEAST_WAIT_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What an operator may set."""

    sweep_interval_seconds: float = SWEEP_INTERVAL_SECONDS
    heartbeat_seconds: float = HEARTBEAT_SECONDS
    retention_seconds: float | None = None
    stop_grace_seconds: float = 10.0
    # A command that works beside a gateway, or on a store that none serves, leaves other runs to the gateways.
    sweeps: bool = True


class Engine:
    """Signals, waits and runs over one store.

    `async with engine:` keeps the heartbeat, the sweep and the drivers going. On leaving, deeds that are under way get
    `stop_grace_seconds`; what does not end by then is taken up by another instance or the next start.
    """

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        *,
        observer: Observer,
        publisher: Publisher,
        source: Source,
        settings: EngineSettings | None = None,
        locks: Path | None = None,
    ) -> None:
        self.store = store
        self.catalog = catalog
        self.settings = settings or EngineSettings()
        self.instance = source.nonce()
        self.swept_at: float | None = None
        # Whether the last heartbeat was stored: a store that answers reads may still have no room.
        self.writable = True
        self._source = source
        self._observer = observer
        self._lock_directory = locks
        self._lock: Lock | None = None
        self._pulse: Pulse | None = None
        self._hint = asyncio.Event()
        self._deciding = Deciding(store, self.actor, observer, self._continue)
        self._tasks: list[asyncio.Task[None]] = []
        self._dead: dict[str, bool] = {}
        self._deadlines: dict[str, datetime] = {}
        self._next: datetime | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.drivers = Drivers(self.actor, publisher, catalog.get, self._deadline)
        self.audit_head: str = ""

    def actor(self) -> Actor:
        """Make the hands of one operation."""
        return Actor(
            self.store,
            self._source,
            self.instance,
            self._observer,
            retention_seconds=self.settings.retention_seconds,
        )

    # -- life --------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await check_format(self.store, self._source)
        if self._lock_directory is not None:
            self._lock = Lock(self._lock_directory, self.instance)
        self._pulse = Pulse(self.store, self._source, self.instance, self._lock)
        await self._pulse.beat(self.audit_head)
        if self.settings.sweeps:
            self._tasks = [
                asyncio.create_task(self._beat_forever(), name="heartbeat"),
                asyncio.create_task(self._sweep_forever(), name="sweep"),
                asyncio.create_task(self._listen_forever(), name="store changes"),
            ]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.drivers.stop(self.settings.stop_grace_seconds)
        with contextlib.suppress(WaysideError):
            await self._take_leave()
        if self._lock is not None:
            self._lock.release()

    async def _take_leave(self) -> None:
        """Delete the own beats, unless runs are left that were driven here: by the beats others learn of the death."""
        if self._pulse is not None and not await self.store.list(names.driving_by(self.instance), limit=1):
            await self._pulse.forget(self.instance)

    def poke(self) -> None:
        """Ask for a sweep now, for example because a deadline has passed."""
        self._hint.set()

    def _deadline(self, until: datetime) -> None:
        """Sweep as a deadline passes, not at the next interval."""
        if self.settings.sweeps and (self._next is None or until < self._next):
            self.drivers.spawn(self._poke_at(until), f"deadline {until:%H:%M:%S}")

    async def _poke_at(self, until: datetime) -> None:
        """Keep one timer, for the earliest deadline; the pass that it starts learns the next."""
        with contextlib.suppress(StoreUnavailable):
            left = (until - await self.store.now(until=until)).total_seconds()
            self._set_timer(until, left)

    def _set_timer(self, until: datetime, left: float) -> None:
        if self._next is not None and self._next <= until:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._next = until
        self._timer = asyncio.get_running_loop().call_later(
            max(_LEAST_WAIT_SECONDS, left) + 0.002, self._deadline_passed
        )

    def _deadline_passed(self) -> None:
        self._next = None
        self.poke()

    async def _beat_forever(self) -> None:
        assert self._pulse is not None
        while True:
            await asyncio.sleep(self.settings.heartbeat_seconds)
            self.writable = await _survive("a heartbeat", self._pulse.beat(self.audit_head))

    async def _listen_forever(self) -> None:
        """Wake local drivers that wait for something when another process may have written."""
        while True:
            if not await _survive("the hint of a change", self.store.changed()):
                await asyncio.sleep(_PAUSE_SECONDS)
            self.drivers.poke_all()

    async def _sweep_forever(self) -> None:
        while True:
            await _survive("a sweep", self.sweep())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hint.wait(), self.settings.sweep_interval_seconds)
            self._hint.clear()

    async def sweep(self) -> Sweep:
        """Do one pass now."""
        self._dead = {}
        sweep = Sweep(self.actor(), self._go_on, self._take_over, self._is_dead, known=self._deadlines)
        await sweep.run()
        self.swept_at = self._source.monotonic()
        self._deadlines = sweep.deadlines
        if sweep.deadlines:
            self._deadline(min(sweep.deadlines.values()))
        await self._forget_dead()
        self.drivers.poke_all()
        return sweep

    async def _forget_dead(self) -> None:
        """Delete the beats of instances that have died, once nothing is left that they drove."""
        assert self._pulse is not None
        for instance in await self._pulse.others():
            with contextlib.suppress(UnreadableRecord):
                if await self._is_dead(instance, "") and not await self.store.list(names.driving_by(instance), limit=1):
                    await self._pulse.forget(instance)

    async def _go_on(self, run: str) -> None:
        self.drivers.go_on(run)

    async def _is_dead(self, instance: str, run: str) -> bool:
        """Tell whether a driver is gone: its instance died, or it is one of this instance's own that failed."""
        if instance == self.instance:
            return not self.drivers.is_driving(run)
        if instance not in self._dead:
            assert self._pulse is not None
            self._dead[instance] = await self._pulse.is_dead(instance)
        return self._dead[instance]

    async def instance_is_dead(self, instance: str) -> bool:
        """Tell whether another instance that has stored anything has died or left, by its lock or its heartbeats."""
        assert self._pulse is not None
        return await self._pulse.is_gone(instance)

    async def _take_over(self, instance: str, run: str) -> None:
        self.drivers.take_over(run, frozenset({instance}))

    def _continue(self, owed: list[Owed]) -> None:
        self.drivers.continue_all(owed)

    # -- signals -----------------------------------------------------------------------------------------------

    async def signal_key(
        self, workflow: str, key: str, request: SignalRequest, *, told: Callable[[Answer], None] | None = None
    ) -> Answer:
        """Deliver or hold a signal. The caller has authorised the sender; the answer says what is stored.

        `told` hears the answer before it is given: where the store can do all of this at one moment, before it is
        durable, so that what its hearer has to store can go along (`Rider`); when this raises, it does not hold.
        """
        definition = self.catalog.get(workflow)
        keyed = None if definition is None else definition.keyed(key)
        task = None if keyed is None else keyed.task
        if task is not None and task.accept_early is not None and request.age_seconds > task.accept_early:
            task = replace(task, accept_early=None)
        address = Key(workflow, key)
        return await self._deciding.decide(
            lambda actor: signals.signal_by_key(actor, address, request, task), address, told
        )

    async def signal_wait(
        self, wait: str, request: SignalRequest, *, told: Callable[[Answer], None] | None = None
    ) -> Answer:
        """Deliver a signal that names its wait. The caller has authorised the sender. `told` as in `signal_key`."""
        return await self._deciding.decide(lambda actor: signals.signal_by_wait(actor, wait, request), None, told)

    async def address_of(self, wait: str, request: SignalRequest | None = None) -> WaitAddress | None:
        """Say which workflow and key a wait belongs to: to authorise a signal that names it.

        With the request, a wait that is gone is still known by the sender's own earlier message of the same id.
        """
        return await inquiries.address_of(self.actor(), wait, request)

    # -- runs --------------------------------------------------------------------------------------------------

    async def start_run(self, workflow: str, inputs: Mapping[str, object], *, by: str, run: str | None = None) -> str:
        """Start a run, durable when this returns, and drive it in the background; return its id.

        With `run`, the id is the caller's: the same call again is the same run, and one with other inputs raises
        `Conflict`. Raises `NotFound` and `BadInput`.
        """
        definition = self.catalog.get(workflow)
        if definition is None:
            raise NotFound(f"there is no workflow {workflow}")
        text = checked_inputs(definition, inputs)
        run = run or self._source.sortable_id()
        actor = self.actor()
        first = await runs.start(actor, runs.NewRun(run=run, definition=definition, inputs=text, by=by))
        self._continue(actor.owed)
        if not began_with(first, text):
            raise Conflict(f"the run {run} was started with other inputs")
        return run

    async def cancel(self, run: str, *, by: str) -> None:
        """Cancel a run and the child runs that it waits for; raises `NotFound`, `Conflict`."""
        for each in await inquiries.with_children(self.actor(), run):
            actor = self.actor()
            try:
                await runs.cancel(actor, each, by)
            except WaysideError:
                if each == run:
                    raise
            self.drivers.poke(each)
            self._continue(actor.owed)

    async def retry(self, run: str, *, step: str | None = None, by: str) -> None:
        """Run a run's failed steps again, or `step` and what depends on it; raises `NotFound`, `Conflict`."""
        actor = self.actor()
        await inquiries.refuse_removed(actor, run)
        await runs.retry(actor, run, step, by)
        self.drivers.poke(run)
        self._continue(actor.owed)

    async def resume(self, run: str) -> None:
        """Do for one run what the sweep does for all; raises `NotFound`."""
        actor = self.actor()
        state = await inquiries.known(actor, run)
        for step in list(state.open_waits()):
            registration = None if step.wait is None else await actor.registration(step.wait)
            if registration is not None:
                await settle_registered(actor, registration)
        self._continue(actor.owed)
        self.drivers.go_on(run)

    async def delete(self, run: str, *, by: str) -> None:
        """Begin to remove a run that has ended; raises `NotFound`, `Conflict`."""
        actor = self.actor()
        await inquiries.refuse_removed(actor, run)
        await removal.begin(actor, run, by)
        self._continue(actor.owed)

    async def gc(self, older_than_seconds: float, *, by: str) -> list[str]:
        """Begin to remove all runs that ended longer ago than that; return their ids."""
        actor = self.actor()
        horizon = await self.store.now() - timedelta(seconds=older_than_seconds)
        old = await inquiries.ended_before(actor, horizon)
        begun = []
        for run in old:
            # One that is being removed, retried or damaged meanwhile is left; the others go.
            with contextlib.suppress(NotFound, Conflict, UnreadableRecord):
                await removal.begin(actor, run, by)
                begun.append(run)
        self._continue(actor.owed)
        return begun

    async def settled(self, run: str) -> None:
        """Return when this instance does not drive the run (any more)."""
        await self.drivers.settled(run)

    # -- inquiries ---------------------------------------------------------------------------------------------

    async def run(self, run: str) -> dict[str, Any]:
        """Show a run; raises `NotFound`."""
        return await inquiries.run(self.actor(), run)

    async def definition_of(self, run: str) -> Definition:
        """Give the definition that a run started with; raises `NotFound`."""
        return (await inquiries.known(self.actor(), run)).definition

    async def runs(
        self,
        *,
        workflow: str | None = None,
        status: str | None = None,
        after: str | None = None,
        limit: int = 50,
        readable: Callable[[str], bool] | None = None,
    ) -> tuple[list[dict[str, Any]], str | None]:
        """List runs, newest first; the second value is the cursor of the next page, if there is one.

        `readable` says of which workflows. A page holds fewer than `limit` and yet has a next one only where
        `inquiries.RUNS_LOOKED_AT` runs were looked at.
        """
        return await inquiries.list_runs(
            self.actor(), workflow=workflow, status=status, after=after, limit=limit, readable=readable
        )

    async def events(self, run: str, after: int = 0) -> list[dict[str, Any]]:
        """Show a run's log from behind event `after`; raises `NotFound`."""
        return await inquiries.events(self.actor(), run, after)

    async def waits(self, *, workflow: str | None = None, key: str | None = None) -> dict[str, Any]:
        """Show the open waits and the held signals; `damaged` names the records that could not be read for it."""
        return await inquiries.waits(self.actor(), workflow=workflow, key=key)

    async def keys(self, workflow: str | None = None) -> list[dict[str, Any]]:
        """Show every declared key: its holder, how its last wait was settled, or the record that cannot be read."""
        return await inquiries.keys(self.actor(), self.catalog, workflow)

    async def wait_change(self, run: str, after: int, timeout: float) -> None:  # noqa: ASYNC109
        """Return when the run's log has grown past `after`, or at the time-out (seconds)."""
        await self.drivers.wait_change(run, after, timeout)


async def _survive(what: str, work: Awaitable[object]) -> bool:
    """Do something that is done again later; a store that does not answer, or any other fault, does not end it."""
    try:
        await work
    except StoreUnavailable as fault:
        _LOG.error("%s failed, the store does not answer: %s", what, fault.message)
        return False
    except Exception as fault:  # noqa: BLE001 - without the heartbeat or the sweep nothing would go on
        log_fault(f"{what} failed", fault)
        return False
    return True


__all__ = ["Engine", "EngineSettings", "WaitAddress"]
