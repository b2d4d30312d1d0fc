"""Child runs: a `workflow` step starts one and waits for its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from engine import records, runs
from engine.decisions.fold import StepState
from engine.decisions.moot import child_of
from engine.environment import environment
from engine.errors import BadInput, UnreadableRecord
from engine.limits import MAX_CHILD_DEPTH, MAX_INPUTS_BYTES
from engine.records import Created
from engine.runs import Driver
from engine.store.base import Record
from engine.workflows.definition import Definition, WorkflowTask, canonical
from engine.workflows.expressions import render
from engine.workflows.schema import compile_schema


async def start_child(
    driver: Driver, definition_of: Callable[[str], Definition | None], step: StepState, task: WorkflowTask, wait: str
) -> str | None:
    """Start the child run whose id follows from the wait's; return what is wrong, if something is."""
    state, child = driver.state, child_of(wait)
    if await runs.exists(driver.actor, child) or await driver.actor.outcome(wait) is not None:
        # An earlier self started it; it may have ended since, and even have been removed.
        return None
    definition = definition_of(task.workflow)
    if definition is None:
        return f"there is no workflow {task.workflow}"
    if state.created.depth >= MAX_CHILD_DEPTH:
        return f"runs may start runs at most {MAX_CHILD_DEPTH} deep"
    inputs = render(task.inputs, environment(state, step))
    if not isinstance(inputs, dict):
        return f"the inputs of {definition.name} are not an object"
    try:
        text = checked_inputs(definition, inputs)
    except BadInput as problem:
        return problem.message
    new = runs.NewRun(
        run=child,
        definition=definition,
        inputs=text,
        by=f"run:{state.run}",
        parent_run=state.run,
        parent_wait=wait,
        depth=state.created.depth + 1,
    )
    await runs.start(driver.actor, new)
    return None


def checked_inputs(definition: Definition, inputs: Mapping[str, object]) -> bytes:
    """Check a run's inputs against the definition's schema; raises `BadInput` with every problem."""
    text = msgspec.json.encode(dict(inputs))
    if len(text) > MAX_INPUTS_BYTES:
        raise BadInput(f"the inputs of {definition.name} have more than {MAX_INPUTS_BYTES} bytes")
    if definition.inputs_schema is not None:
        problems = compile_schema(definition.inputs_schema).problems(text)
        if problems:
            lines = tuple(f"inputs{problem.pointer}: {problem.rule}" for problem in problems)
            raise BadInput(f"the inputs of {definition.name} are not valid: {lines[0]}", problems=lines)
    return text


def began_with(first: Record, inputs: bytes) -> bool:
    """Tell whether a run has these inputs, by its first event; of one that cannot be read nothing else is said."""
    try:
        created = records.event(first).value
    except UnreadableRecord:
        return True
    decode = msgspec.json.decode
    return isinstance(created, Created) and canonical(decode(created.inputs)) == canonical(decode(inputs))
