"""What people and programs are shown: plain JSON values made of records. Times are RFC 3339 with milliseconds."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from engine.clock import rfc3339
from engine.decisions.fold import RunState, StepState
from engine.decisions.schedule import job_statuses, step_end
from engine.records import Created, Error, Event, Stored
from engine.workflows.definition import Job, Step

_HIDDEN = frozenset({"v", "at", "nonce", "type", "definition", "inputs", "items"})


def when(moment: datetime | None) -> str | None:
    """Write a time as RFC 3339 with milliseconds and `Z`."""
    return None if moment is None else rfc3339(moment)


def run_view(state: RunState) -> dict[str, Any]:
    """Show a run, its jobs and its steps."""
    statuses = job_statuses(state)
    return {
        **run_summary(state),
        "inputs": state.inputs,
        "parent": state.created.parent_run,
        "jobs": [
            {"name": job.name, "status": statuses[job.name], "steps": _steps(state, job)}
            for job in state.definition.jobs
        ],
    }


def run_summary(state: RunState) -> dict[str, Any]:
    """Show a run in a line."""
    return {
        "run": state.run,
        "workflow": state.workflow,
        "status": state.status,
        "created": when(state.created_at),
        "ended": when(state.ended_at),
        "by": state.created.by,
    }


def damaged_run(run: str, created_at: datetime, created: Created | None) -> dict[str, Any]:
    """Show a run whose log cannot be read in the same line; `created` is its first event where that can be."""
    return {
        "run": run,
        "workflow": "" if created is None else created.workflow,
        "status": "damaged",
        "created": when(created_at),
        "ended": None,
        "by": "" if created is None else created.by,
    }


def _steps(state: RunState, job: Job) -> list[dict[str, Any]]:
    shown = []
    for step in job.steps:
        group = state.groups.get((job.name, step.name))
        if group is not None:
            shown += [_step(state.steps[job.name, name]) for name in group]
        elif (job.name, step.name) in state.steps:
            shown.append(_step(state.steps[job.name, step.name]))
        else:
            shown.append(_unexpanded(state, job, step))
    return shown


def _step(step: StepState) -> dict[str, Any]:
    return {
        "name": step.name,
        "type": step.step.task.type,
        "status": step.status,
        "guarded": step.guarded,
        "attempt": step.attempt,
        "outputs": step.value(),
        "error": error_view(step.error),
        "wait": step.wait,
        "started": when(step.started),
        "ended": when(step.ended),
    }


def _unexpanded(state: RunState, job: Job, step: Step) -> dict[str, Any]:
    return {
        "name": step.name,
        "type": step.task.type,
        "status": step_end(state, job.name, step).status,
        "guarded": False,
        "attempt": 1,
        "outputs": None,
        "error": None,
        "wait": None,
        "started": None,
        "ended": None,
    }


def error_view(error: Error | None) -> dict[str, str] | None:
    """Show why a step failed."""
    return None if error is None else {"code": error.code, "message": error.message}


def event_view(event: Stored[Event]) -> dict[str, Any]:
    """Show one event of a run's log, without inputs; outputs of steps are in it."""
    fields = msgspec.to_builtins(event.value, builtin_types=(msgspec.Raw,))
    shown = {name: _plain(value) for name, value in fields.items() if name not in _HIDDEN}
    return {"seq": event.number, "at": when(event.at), "event": fields["type"], **shown}


def _plain(value: object) -> object:
    return msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else value
