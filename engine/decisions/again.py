"""Which steps of a run a retry runs again."""

from __future__ import annotations

from engine.decisions.fold import RunState
from engine.workflows.definition import Job


def steps_to_retry(run: RunState, step: str | None) -> tuple[tuple[str, str], ...]:
    """Name the steps to run again as (job, step): the failed and cancelled ones, or `step`, and what depends on them.

    A `forEach` step that depends on one of them is named as a whole, whichever of its elements failed: its list is made
    anew, since what it is read from may have changed. Empty when there is nothing to retry or no step has that name.
    """
    seeds: set[tuple[str, str]] = set()
    for (job, name), state in run.steps.items():
        unfinished = step is None and state.status in {"failed", "cancelled"}
        if unfinished or step in {state.step.name, name}:
            seeds.add((job, state.step.name if step == state.step.name else name))
    bases = {(job, _whole(name)) for job, name in seeds}
    downstream = _downstream(run, bases)
    return tuple(sorted({(job, name) for job, name in seeds if (job, _whole(name)) not in downstream} | downstream))


def _whole(name: str) -> str:
    """Name the `forEach` step that an element is of; any other step is its own."""
    return name.split("[", 1)[0]


def _downstream(run: RunState, bases: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Name what depends on these steps; one of them, too, where it depends on another."""
    found: set[tuple[str, str]] = set()
    jobs = _jobs_after(run, {job for job, _ in bases})
    for job in run.definition.jobs:
        if job.name in jobs:
            found |= {(job.name, step.name) for step in job.steps}
        else:
            found |= _steps_after(job, {name for job_name, name in bases if job_name == job.name})
    return found


def _jobs_after(run: RunState, jobs: set[str]) -> set[str]:
    found: set[str] = set()
    grew = True
    while grew:
        grew = False
        for job in run.definition.jobs:
            reached = any(each.name in jobs | found for each in job.depends_on)
            if reached and job.name not in found:
                found.add(job.name)
                grew = True
    return found


def _steps_after(job: Job, names: set[str]) -> set[tuple[str, str]]:
    found: set[str] = set()
    grew = bool(names)
    while grew:
        grew = False
        for step in job.steps:
            if step.name not in found and any(each.name in names | found for each in step.depends_on):
                found.add(step.name)
                grew = True
    return {(job.name, name) for name in found}
