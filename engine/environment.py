"""What the expressions of a run may read: its inputs, its steps as they stand, and the element of a `forEach`."""

from __future__ import annotations

from typing import Any

from engine.decisions.fold import RunState, StepState
from engine.decisions.schedule import step_end
from engine.records import Error
from engine.workflows.definition import Step, WaitTask


def environment(state: RunState, step: StepState | None = None) -> dict[str, object]:
    """Give what expressions may read: `inputs`, `steps` and, for an element of a `forEach`, `self`."""
    own: dict[str, Any] = {}
    if step is not None and step.step.for_each is not None:
        own[step.step.for_each.item] = step.item
    steps = {each.name: _seen(state, job.name, each) for job in state.definition.jobs for each in job.steps}
    return {"inputs": state.inputs, "steps": steps, "self": own}


def _seen(state: RunState, job: str, step: Step) -> dict[str, Any]:
    group = state.groups.get((job, step.name))
    if group is not None:
        elements = [state.steps[job, name] for name in group]
        errors = [element.error for element in elements if element.error is not None]
        return {
            "status": step_end(state, job, step).status,
            "payload": None,
            "receipt": None,
            "outputs": [element.value() for element in elements],
            "error": _error(errors[0] if errors else None),
        }
    single = state.steps.get((job, step.name))
    if single is None:
        return {"status": "pending", "payload": None, "receipt": None, "outputs": None, "error": None}
    outputs = single.value()
    signalled = isinstance(step.task, WaitTask) and isinstance(outputs, dict)
    return {
        "status": single.status,
        "payload": outputs.get("payload") if signalled else None,
        "receipt": outputs.get("receipt") if signalled else None,
        "outputs": outputs,
        "error": _error(single.error),
    }


def _error(error: Error | None) -> dict[str, str] | None:
    return None if error is None else {"code": error.code, "message": error.message}
