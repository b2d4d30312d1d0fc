"""The drivers of one process: a task for each run that it drives now, and the deeds that are under way for it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from engine import names, runs
from engine.actor import Actor, Owed
from engine.decisions.fold import RunState
from engine.errors import StoreUnavailable, UnreadableRecord
from engine.events import EngineEvent, Publisher
from engine.executor import Around, drive
from engine.records import Error
from engine.steps import Deed, Effect
from engine.workflows.definition import Definition

_LOG = logging.getLogger(__name__)
_LOOK_EVERY_SECONDS = 0.1
# A run that cannot be driven for a fault of this build's own is left alone then, until the next start.
_MAX_FAULTS = 3


class RunningEffects:
    """The deeds of one run, each a task."""

    def __init__(self, run: str, wake: asyncio.Event) -> None:
        self._run = run
        self._wake = wake
        self._tasks: dict[asyncio.Task[Effect], tuple[str, str]] = {}

    def start(self, job: str, step: str, deed: Deed) -> None:
        task = asyncio.create_task(_performed(deed), name=f"run {self._run} step {step}")
        self._tasks[task] = (job, step)
        task.add_done_callback(lambda _: self._wake.set())

    @property
    def running(self) -> bool:
        return bool(self._tasks)

    async def collect(self) -> list[tuple[str, str, Effect]]:
        await self._wake.wait()
        self._wake.clear()
        ended = [task for task in self._tasks if task.done()]
        return [(*self._tasks.pop(task), task.result()) for task in ended]

    async def stop(self) -> None:
        tasks, self._tasks = list(self._tasks), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _performed(deed: Deed) -> Effect:
    try:
        return await deed()
    except StoreUnavailable:
        return Effect(None, Error(code="task_failed", message="the store did not answer"))
    except Exception as fault:  # noqa: BLE001 - a step's fault is the step's failure, whatever it is
        log_fault("a step failed by a fault of its own", fault)
        return Effect(None, Error(code="task_failed", message=f"an internal fault: {type(fault).__name__}"))


def log_fault(what: str, fault: BaseException) -> None:
    """Log where a fault came from. Its own words may quote a payload, so they are left out."""
    place = fault.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place is not None else "an unknown place"
    _LOG.error("%s: %s at %s", what, type(fault).__name__, where)


@dataclass(slots=True)
class _Active:
    run: str
    dead: frozenset[str] = frozenset()
    owed: list[Owed] = field(default_factory=list)
    again: bool = False
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Drivers:
    """Drives runs in the background. At most one task a run."""

    def __init__(
        self,
        actor: Callable[[], Actor],
        publisher: Publisher,
        definition: Callable[[str], Definition | None],
        deadline: Callable[[datetime], None],
    ) -> None:
        self._actor = actor
        self._publisher = publisher
        self._definition = definition
        self._deadline = deadline
        self._active: dict[str, _Active] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stopping = False
        self._faults: Counter[str] = Counter()

    def is_driving(self, run: str) -> bool:
        """Tell whether a task of this process has the run."""
        return run in self._active

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Do something in the background, under this owner."""
        if self._stopping:
            work.close()
            return
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def go_on(self, run: str, owed: Owed | None = None, dead: frozenset[str] = frozenset()) -> None:
        """Let a run go on, if it may. A run that is driven here already looks again."""
        active = self._active.get(run)
        if active is not None:
            active.again = True
            active.dead |= dead
            active.wake.set()
        elif not self._stopping and self._faults[run] < _MAX_FAULTS:
            active = self._active[run] = _Active(run, dead)
            self.spawn(self._work(active), f"run {run}")
        if active is not None and owed is not None:
            active.owed.append(owed)

    def continue_all(self, owed: list[Owed]) -> None:
        """Let all runs go on that were given a reason to."""
        for each in owed:
            self.go_on(each.run, each)

    def take_over(self, run: str, dead: frozenset[str]) -> None:
        """Let a run go on that a dead instance drove. The log says when it has been taken over."""
        # Through the run's one task: a second taker in this process could win the claim that the first one waits for.
        self.go_on(run, dead=dead)

    def poke(self, run: str) -> None:
        """Let a driver of this process look at its run's log and waits."""
        if (active := self._active.get(run)) is not None:
            active.wake.set()

    def poke_all(self) -> None:
        """Let every driver of this process look."""
        for active in self._active.values():
            active.wake.set()

    async def settled(self, run: str) -> None:
        """Return when no task of this process has the run."""
        while (active := self._active.get(run)) is not None:
            await active.over.wait()

    async def wait_change(self, run: str, after: int, timeout: float) -> None:  # noqa: ASYNC109
        """Return when the run's log has an event behind `after`, or at the time-out."""
        store = self._actor().store
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while await store.get(names.event(run, after + 1)) is None:  # noqa: ASYNC110 - another process writes
                    await asyncio.sleep(_LOOK_EVERY_SECONDS)

    async def stop(self, grace_seconds: float) -> None:
        """Take nothing new; let what is under way finish, then abandon it: the log says where it stands."""
        self._stopping = True
        tasks = set(self._tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=grace_seconds)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- one run ---------------------------------------------------------------------------------------------

    async def _work(self, active: _Active) -> None:
        try:
            while True:
                active.again = False
                await self._once(active)
                if not active.again or self._stopping:
                    return
        except StoreUnavailable:
            # The sweep finds the run again: its index records are in the store.
            return
        except UnreadableRecord as damage:
            self._actor().note(EngineEvent(action="run.damaged", run=active.run, reason=damage.key))
        except Exception as fault:  # noqa: BLE001 - one run's fault must not stop the others
            self._faults[active.run] += 1
            log_fault(f"the run {active.run} could not be driven", fault)
            self._actor().note(EngineEvent(action="run.damaged", run=active.run, reason=type(fault).__name__))
        finally:
            del self._active[active.run]
            active.over.set()

    async def _once(self, active: _Active) -> None:
        actor = self._actor()
        # This is the run's only task here: what the log says that this instance drives, an earlier one has left.
        driver = await runs.take(actor, active.run, dead=active.dead | {actor.instance})
        state: RunState | None = None
        if driver is not None:
            effects = RunningEffects(active.run, active.wake)
            around = Around(effects, self._publisher, self._definition, self._hand_on, self._deadline)
            state = await drive(driver, around)
        owed, active.owed = active.owed, []
        await runs.pay(self._actor(), active.run, owed, state)

    def _hand_on(self, owed: list[Owed]) -> None:
        self.continue_all(owed)
