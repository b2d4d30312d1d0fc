"""Which waits, and which child runs, the end, the cancelling or the retry of a run makes moot."""

from __future__ import annotations

from collections.abc import Iterable

from engine.clock import derived_id
from engine.decisions.fold import OpenedWait, RunState
from engine.names import Key
from engine.records import Event, Retried
from engine.workflows.definition import Step, WaitTask, WorkflowTask


def moot(run: RunState, seq: int, event: Event) -> list[OpenedWait]:
    """Name the waits that were opened before event `seq` and that it made moot, whether or not they were claimed."""
    return [opened for opened in run.openings.values() if opened.seq < seq and _is_moot(opened, event)]


def _is_moot(opened: OpenedWait, event: Event) -> bool:
    if not isinstance(event, Retried):
        return True
    # A retried `forEach` step is named without its index, and stands for all of its elements.
    return any(
        opened.job == job and (opened.step == name or opened.step.startswith(name + "[")) for job, name in event.steps
    )


def key_of(run: RunState, opened: OpenedWait) -> Key | None:
    """Name the key that a wait is claimed under, if it has one."""
    task = _step_of(run, opened).task
    return Key(run.workflow, task.key) if isinstance(task, WaitTask) and task.key is not None else None


def child_of(wait: str) -> str:
    """Derive the id of the child run that a `workflow` step's wait stands for."""
    return derived_id("child", wait, like=wait)


def children(run: RunState, openings: Iterable[OpenedWait]) -> list[str]:
    """Name the child runs behind those of the waits that the log has not applied."""
    return [
        child_of(opened.wait)
        for opened in openings
        if opened.wait not in run.applied and isinstance(_step_of(run, opened).task, WorkflowTask)
    ]


def _step_of(run: RunState, opened: OpenedWait) -> Step:
    base = opened.step.split("[", 1)[0]
    return next(step for step in run.job(opened.job).steps if step.name in {opened.step, base})
