"""A run is the fold of its log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import msgspec

from engine import names
from engine.errors import BadInput, UnreadableRecord
from engine.records import (
    Created,
    Ended,
    Error,
    Event,
    Expanded,
    Opening,
    Resumed,
    Retried,
    RunCancelled,
    StepEnded,
    StepStarted,
    StepStatus,
    Stored,
    Suspended,
    text_of,
)
from engine.workflows.definition import Definition, Job, Step, WaitTask, WorkflowTask
from engine.workflows.validation import parse_definition

Phase = Literal["waiting_for_driver", "driven", "suspended", "ended"]
RunStatus = Literal["pending", "running", "suspended", "succeeded", "failed", "cancelled"]
END_STATUSES = frozenset({"succeeded", "failed", "cancelled", "skipped"})


@dataclass(slots=True)
class StepState:
    """One step of a run; a `forEach` step's elements are steps of their own, `name[0]`, `name[1]` and so on."""

    job: str
    name: str
    step: Step
    item: Any = None
    status: StepStatus = "pending"
    guarded: bool = False
    attempt: int = 1
    wait: str | None = None
    registered: bool = False
    outputs: bytes | None = None
    error: Error | None = None
    started: datetime | None = None
    ended: datetime | None = None
    _value: Any = None

    @property
    def is_over(self) -> bool:
        return self.status in END_STATUSES

    @property
    def is_wait(self) -> bool:
        """Whether the step suspends its run: a signal's wait, or a child run's."""
        return isinstance(self.step.task, WaitTask | WorkflowTask)

    def value(self) -> Any:  # noqa: ANN401 - JSON of any shape
        """Decode the outputs, once."""
        if self._value is None and self.outputs is not None:
            self._value = msgspec.json.decode(self.outputs)
        return self._value


@dataclass(frozen=True, slots=True)
class OpenedWait:
    """An `opening` of the log: the wait id that was fixed for one attempt of a step."""

    seq: int
    job: str
    step: str
    attempt: int
    wait: str


@dataclass(slots=True)
class RunState:
    """What a run's log says."""

    run: str
    created: Created
    definition: Definition
    inputs: dict[str, Any]
    created_at: datetime
    seq: int = 0
    phase: Phase = "waiting_for_driver"
    status: RunStatus = "pending"
    driver: str = ""
    instance: str = ""
    steps: dict[tuple[str, str], StepState] = field(default_factory=dict)
    groups: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    openings: dict[str, OpenedWait] = field(default_factory=dict)
    applied: set[str] = field(default_factory=set)
    ended_at: datetime | None = None

    @property
    def workflow(self) -> str:
        return self.created.workflow

    def job(self, name: str) -> Job:
        """Find a job of the definition."""
        return next(job for job in self.definition.jobs if job.name == name)

    def open_waits(self) -> Iterator[StepState]:
        """Give the steps whose wait was opened and that have not ended."""
        return (step for step in self.steps.values() if step.wait is not None and not step.is_over)

    def deeds_under_way(self) -> bool:
        """Whether the log says that a step is doing something outside the store."""
        return any(step.status == "running" and not step.is_wait for step in self.steps.values())

    def apply(self, seq: int, event: Event, at: datetime) -> None:
        """Take the next event of the log into account."""
        assert seq == self.seq + 1
        self.seq = seq
        match event:
            case Created():
                self._create_steps()
            case Resumed():
                self.phase, self.status = "driven", "running"
                self.driver, self.instance = event.nonce, event.instance
                self._set_waiting("running")
            case Expanded():
                self._expand(event)
            case StepStarted():
                step = self.steps[event.job, event.step]
                step.status, step.attempt, step.started = "running", event.attempt, step.started or at
            case Opening():
                self._open(seq, event, at)
            case StepEnded():
                self._end_step(event, at)
            case Suspended():
                self.phase, self.status = "suspended", "suspended"
                for waiting in self.open_waits():
                    waiting.registered = True
                self._set_waiting("suspended")
            case Retried():
                self._retry(event)
            case RunCancelled():
                self._cancel(at)
            case Ended():
                self.phase, self.status, self.ended_at = "ended", event.status, at

    def _defined(self, job: str, name: str) -> Step:
        return next(step for step in self.job(job).steps if step.name == name)

    def _create_steps(self) -> None:
        for job in self.definition.jobs:
            for step in job.steps:
                if step.for_each is None:
                    self.steps[job.name, step.name] = StepState(job.name, step.name, step)

    def _set_waiting(self, status: StepStatus) -> None:
        for step in self.open_waits():
            step.status = status

    def _expand(self, event: Expanded) -> None:
        step = self._defined(event.job, event.step)
        items = msgspec.json.decode(event.items)
        names = [f"{event.step}[{index}]" for index in range(len(items))]
        self.groups[event.job, event.step] = names
        for name, item in zip(names, items, strict=True):
            self.steps[event.job, name] = StepState(event.job, name, step, item)

    def _open(self, seq: int, event: Opening, at: datetime) -> None:
        step = self.steps[event.job, event.step]
        step.status, step.attempt, step.wait, step.started = "running", event.attempt, event.wait, at
        self.openings[event.wait] = OpenedWait(seq, event.job, event.step, event.attempt, event.wait)

    def _end_step(self, event: StepEnded, at: datetime) -> None:
        step = self.steps.get((event.job, event.step))
        if step is None:
            # A `forEach` step that ended as a whole, before it was expanded.
            step = StepState(event.job, event.step, self._defined(event.job, event.step))
            self.steps[event.job, event.step] = step
        step.status, step.guarded, step.ended = event.status, event.guarded, at
        step.outputs, step.error = text_of(event.outputs), event.error
        if step.wait is not None:
            self.applied.add(step.wait)

    def _retry(self, event: Retried) -> None:
        self.phase, self.status, self.ended_at = "waiting_for_driver", "pending", None
        for job, name in event.steps:
            if (job, name) in self.groups:
                # An element list is made anew: what it is read from may have changed.
                for element in self.groups.pop((job, name)):
                    self.steps.pop((job, element), None)
                continue
            old = self.steps.pop((job, name), None)
            if old is not None and (old.step.for_each is None or name != old.step.name):
                self.steps[job, name] = StepState(job, name, old.step, old.item, attempt=old.attempt + 1)

    def _cancel(self, at: datetime) -> None:
        self.phase, self.status, self.ended_at = "ended", "cancelled", at
        for step in self.steps.values():
            if not step.is_over:
                step.status, step.ended = "cancelled", at


def fold(run: str, events: Iterable[Stored[Event]]) -> RunState | None:
    """Fold a log into a run's state; None for an empty log, or one whose beginning has been removed.

    Raise `UnreadableRecord` for a log that no driver has written, or none that this build understands.
    """
    state: RunState | None = None
    for entry in events:
        if state is None:
            if not isinstance(entry.value, Created):
                return None
            state = _begun(run, entry.value, entry.at)
        if entry.number != state.seq + 1:
            raise UnreadableRecord(names.event(run, state.seq + 1), "it is missing, and the log goes on behind it")
        try:
            state.apply(entry.number, entry.value, entry.at)
        except (LookupError, StopIteration):
            reason = "it names what the run's definition does not have"
            raise UnreadableRecord(names.event(run, entry.number), reason) from None
    return state


def _begun(run: str, created: Created, at: datetime) -> RunState:
    try:
        definition = parse_definition(bytes(created.definition))
    except BadInput as refused:
        raise UnreadableRecord(names.event(run, 1), refused.message) from None
    return RunState(run, created, definition, msgspec.json.decode(created.inputs), at)
