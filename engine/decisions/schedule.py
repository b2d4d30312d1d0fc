"""Which steps of a run may start, which are skipped, and when it is over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from typing import Literal

from engine.decisions.fold import RunState, StepState
from engine.records import StepStatus
from engine.workflows.definition import Condition, Dependency, Job, Step

JobStatus = StepStatus
Ready = Literal["yes", "no", "never"]


@dataclass(frozen=True, slots=True)
class StepEnd:
    """How a step, a `forEach` group or a job stands, as its dependants see it."""

    status: StepStatus
    guarded: bool = False


@dataclass(slots=True)
class Plan:
    """What a driver may do next, in the order of the definition."""

    start: list[StepState] = field(default_factory=list)
    expand: list[tuple[str, Step]] = field(default_factory=list)
    skip: list[tuple[str, str]] = field(default_factory=list)
    end: Literal["succeeded", "failed"] | None = None


def holds(condition: Condition, end: StepEnd) -> bool:
    """Tell whether an end satisfies a condition. A step skipped as already done counts as succeeded."""
    succeeded = end.status == "succeeded" or (end.status == "skipped" and end.guarded)
    match condition:
        case "succeeded":
            return succeeded
        case "failed":
            return end.status == "failed"
        case "completed":
            return succeeded or end.status == "failed"
        case "skipped":
            return end.status == "skipped"
        case "always":
            return end.status in {"succeeded", "failed", "skipped", "cancelled"}


def _is_over(end: StepEnd) -> bool:
    return end.status in {"succeeded", "failed", "skipped", "cancelled"}


def _readiness(ends: list[tuple[Dependency, StepEnd]]) -> Ready:
    if any(_is_over(end) and not holds(dependency.condition, end) for dependency, end in ends):
        return "never"
    return "yes" if all(_is_over(end) for _, end in ends) else "no"


def step_end(run: RunState, job: str, step: Step) -> StepEnd:
    """Say how a step stands; a `forEach` step stands for all of its elements."""
    single = run.steps.get((job, step.name))
    if single is not None:
        return StepEnd(single.status, single.guarded)
    names = run.groups.get((job, step.name))
    if names is None:
        return StepEnd("pending")
    elements = [run.steps[job, name] for name in names]
    if not all(element.is_over for element in elements):
        statuses = {element.status for element in elements}
        return StepEnd("suspended" if "suspended" in statuses and "running" not in statuses else "running")
    if any(element.status == "failed" for element in elements):
        return StepEnd("failed")
    if any(element.status == "cancelled" for element in elements):
        return StepEnd("cancelled")
    guarded = bool(elements) and all(element.status == "skipped" for element in elements)
    return StepEnd("skipped", guarded=True) if guarded else StepEnd("succeeded")


def job_statuses(run: RunState) -> dict[str, JobStatus]:
    """Say how each job stands: it failed if a step failed that was not allowed to."""
    order = TopologicalSorter({job.name: [each.name for each in job.depends_on] for job in run.definition.jobs})
    by_name = {job.name: job for job in run.definition.jobs}
    known: dict[str, JobStatus] = {}
    for name in order.static_order():
        known[name] = _job_status(run, by_name[name], known)
    return known


def job_status(run: RunState, job: Job) -> JobStatus:
    """Say how one job stands."""
    return job_statuses(run)[job.name]


def _job_status(run: RunState, job: Job, before: Mapping[str, JobStatus]) -> JobStatus:
    ends = [(step, step_end(run, job.name, step)) for step in job.steps]
    if all(_is_over(end) for _, end in ends):
        if any(end.status == "failed" and not step.allow_failure for step, end in ends):
            return "failed"
        if any(end.status == "cancelled" for _, end in ends):
            return "cancelled"
        skipped = all(end.status == "skipped" and not end.guarded for _, end in ends)
        return "skipped" if skipped and _job_readiness(job, before) == "never" else "succeeded"
    statuses = {end.status for _, end in ends}
    if statuses == {"pending"}:
        return "pending"
    waiting = "suspended" in statuses and not statuses & {"running"}
    return "suspended" if waiting and run.status == "suspended" else "running"


def _job_readiness(job: Job, statuses: Mapping[str, JobStatus]) -> Ready:
    """Tell whether a job's dependencies allow it to start."""
    return _readiness([(dependency, StepEnd(statuses[dependency.name])) for dependency in job.depends_on])


def plan(run: RunState) -> Plan:
    """Decide what a driver does next: it starts everything that is ready, up to the concurrency limits."""
    result = Plan()
    active = Counter(step.job for step in run.steps.values() if step.status in {"running", "suspended"})
    room = _Room(run.definition.concurrency, active.total())
    statuses = job_statuses(run)
    for job in run.definition.jobs:
        match _job_readiness(job, statuses):
            case "never":
                result.skip.extend((job.name, name) for step in job.steps for name in _pending(run, job.name, step))
            case "yes":
                _plan_job(run, job, result, (room, _Room(job.concurrency, active[job.name])))
            case "no":
                pass
    ended = {"succeeded", "failed", "skipped", "cancelled"}
    if not (result.start or result.skip or result.expand) and set(statuses.values()) <= ended:
        # A step that an earlier cancelling stopped, and that a retry did not name, was not done.
        failed = any(status in {"failed", "cancelled"} for status in statuses.values())
        result.end = "failed" if failed else "succeeded"
    return result


@dataclass(slots=True)
class _Room:
    """How many steps may be under way, and how many are."""

    limit: int | None
    taken: int

    @property
    def is_left(self) -> bool:
        return self.limit is None or self.taken < self.limit


def _pending(run: RunState, job: str, step: Step) -> list[str]:
    elements = run.groups.get((job, step.name), [step.name])
    return [name for name in elements if _is_pending(run, job, name)]


def _is_pending(run: RunState, job: str, name: str) -> bool:
    state = run.steps.get((job, name))
    return state is None or state.status == "pending"


def _plan_job(run: RunState, job: Job, result: Plan, rooms: tuple[_Room, _Room]) -> None:
    by_name = {step.name: step for step in job.steps}
    for step in job.steps:
        ends = [(each, step_end(run, job.name, by_name[each.name])) for each in step.depends_on]
        match _readiness(ends):
            case "never":
                result.skip.extend((job.name, name) for name in _pending(run, job.name, step))
            case "yes" if step.for_each is not None and (job.name, step.name) not in run.groups:
                if (job.name, step.name) not in run.steps:
                    result.expand.append((job.name, step))
            case "yes":
                _start(run, job.name, run.groups.get((job.name, step.name), [step.name]), result, rooms)
            case "no":
                pass


def _start(run: RunState, job: str, step_names: list[str], result: Plan, rooms: tuple[_Room, _Room]) -> None:
    for name in step_names:
        state = run.steps[job, name]
        if state.status == "pending" and all(room.is_left for room in rooms):
            result.start.append(state)
            for room in rooms:
                room.taken += 1
