"""The executor: drives one run from where its log stands until it suspends or ends.

One coroutine per run does everything that touches the store, in order; only deeds outside the store (a program, a
request, a command) run beside it, and it hears of their end through `Effects`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import msgspec

from engine import runs
from engine.actor import Owed
from engine.children import start_child
from engine.decisions.fold import RunState, StepState
from engine.decisions.schedule import plan
from engine.environment import environment
from engine.errors import LostRace
from engine.events import EngineEvent, Publisher, Whose
from engine.limits import (
    MAX_FOR_EACH,
    MAX_ITEMS_BYTES,
    MAX_MESSAGE_CHARACTERS,
    MAX_TIMEOUT_SECONDS,
)
from engine.records import (
    Accepted,
    Cancelled,
    Error,
    Expanded,
    Opening,
    Outcome,
    StepEnded,
    StepStarted,
    Stored,
    TimedOut,
    Unreadable,
    raw,
)
from engine.runs import Driver
from engine.steps import Deed, Effect, prepare
from engine.waits import Settled, Waiting, WaitRequest, open_wait, register
from engine.workflows.definition import AssertTask, Definition, Step, WaitTask, WorkflowTask
from engine.workflows.expressions import ExpressionFailed, captured_schema, evaluate, render, render_text


class Effects(Protocol):
    """The deeds of one run that are under way outside the store."""

    def start(self, job: str, step: str, deed: Deed) -> None:
        """Begin a deed."""
        ...

    @property
    def running(self) -> bool:
        """Whether a deed is under way or its end has not been collected."""
        ...

    async def collect(self) -> list[tuple[str, str, Effect]]:
        """Return the deeds that have ended, waiting for one; also returns, empty, when the run may have moved on."""
        ...

    async def stop(self) -> None:
        """Abandon what is under way."""
        ...


@dataclass(frozen=True, slots=True)
class Around:
    """What a driver needs of its surroundings."""

    effects: Effects
    publisher: Publisher
    definition: Callable[[str], Definition | None]
    go_on: Callable[[list[Owed]], None]
    deadline: Callable[[datetime], None]


async def drive(driver: Driver, around: Around) -> RunState | None:
    """Drive a run until it suspends or ends; return what it came to, or None when it was lost to another driver."""
    state = driver.state
    try:
        await runs.refuse_orphan(driver)
        await _re_enter(driver, around)
        while not await _advance(driver, around):
            pass
    except LostRace:
        await driver.leave()
        return None
    finally:
        await around.effects.stop()
        _hand_over(driver, around)
    return state


async def _advance(driver: Driver, around: Around) -> bool:
    """Do all that can be done now, then wait, suspend or end; true when this driver has finished."""
    state, effects = driver.state, around.effects
    await _apply_outcomes(driver)
    todo = plan(state)
    for job, name in todo.skip:
        await _end_step(driver, job, name, "skipped")
    for job, definition in todo.expand:
        await _expand(driver, job, definition)
    for step in todo.start:
        await _start(driver, around, step)
    await _own_debts(driver)
    _hand_over(driver, around)
    if todo.skip or todo.expand or todo.start:
        return False
    if effects.running:
        for end in await effects.collect():
            await _end_effect(driver, *end)
        await driver.check()
        return False
    if todo.end is not None:
        await runs.end(driver, todo.end)
        return True
    if await runs.suspend(driver):
        return True
    await runs.resume_here(driver)
    return False


async def _own_debts(driver: Driver) -> None:
    """Delete the `ready` records of this run's own waits that the log has applied."""
    state, owed = driver.state, driver.actor.owed
    own = [each for each in owed if each.run == state.run and each.wait in state.applied]
    if own:
        driver.actor.owed = [each for each in owed if each not in own]
        await driver.actor.store.delete([each.ready for each in own])


def _hand_over(driver: Driver, around: Around) -> None:
    """Let other runs go on that this driver gave a reason to."""
    if driver.actor.owed:
        owed, driver.actor.owed = driver.actor.owed, []
        around.go_on(owed)


# -- ends of steps -------------------------------------------------------------------------------------------


async def _end_step(
    driver: Driver,
    job: str,
    name: str,
    status: str,
    *,
    outputs: bytes | None = None,
    error: Error | None = None,
    guarded: bool = False,
) -> None:
    state = driver.state.steps.get((job, name))
    value = StepEnded(
        at=driver.at(),
        nonce=driver.actor.source.nonce(),
        job=job,
        step=name,
        attempt=state.attempt if state else 1,
        status=status,  # type: ignore[arg-type]
        guarded=guarded,
        outputs=raw(outputs),
        error=error,
    )
    await driver.append(value)
    event = EngineEvent(
        action="step.ended",
        result=status,
        workflow=driver.state.workflow,
        run=driver.state.run,
        job=job,
        step=name,
        reason=error.code if error else "",
    )
    driver.actor.note(event)


async def _fail(driver: Driver, step: StepState, code: str, message: str) -> None:
    error = Error(code=code, message=message[:MAX_MESSAGE_CHARACTERS])
    await _end_step(driver, step.job, step.name, "failed", error=error)


async def _end_effect(driver: Driver, job: str, name: str, effect: Effect) -> None:
    status = "succeeded" if effect.error is None else "failed"
    await _end_step(driver, job, name, status, outputs=effect.outputs, error=effect.error)


async def _apply_outcomes(driver: Driver) -> None:
    """Let the steps end whose waits have an outcome."""
    outcomes = await runs.outcomes_of(driver.actor, driver.state)
    for step in list(driver.state.open_waits()):
        if step.wait in outcomes:
            await _end_by(driver, step, outcomes[step.wait])


_CANCELLED = {
    "key_held": ("wait_key_held", "another open wait holds the key"),
    "contended": ("wait_key_contended", "others claimed the key too many times in a row"),
    "replaced": ("wait_replaced", "a newer wait took the key"),
}


async def _end_by(driver: Driver, step: StepState, outcome: Stored[Outcome] | Unreadable) -> None:
    """End a waiting step by what is stored."""
    match outcome:
        case Unreadable():
            await _fail(driver, step, "wait_unreadable", "the wait's outcome cannot be read")
        case Stored(value=Accepted() as value) if isinstance(step.step.task, WorkflowTask):
            await _end_by_child(driver, step, value)
        case Stored(value=Accepted() as value):
            receipt = json.dumps(value.receipt).encode()
            outputs = b'{"payload":' + bytes(value.payload) + b',"receipt":' + receipt + b"}"
            await _end_step(driver, step.job, step.name, "succeeded", outputs=outputs)
        case Stored(value=TimedOut()):
            await _fail(driver, step, "wait_timeout", "no signal came before the deadline")
        case Stored(value=Cancelled() as value):
            code, message = _CANCELLED.get(value.why, ("wait_cancelled", "the wait was closed"))
            await _fail(driver, step, code, message)


async def _end_by_child(driver: Driver, step: StepState, value: Accepted) -> None:
    child = msgspec.json.decode(value.payload)
    outputs = bytes(value.payload)
    if child["status"] == "succeeded":
        await _end_step(driver, step.job, step.name, "succeeded", outputs=outputs)
    else:
        error = Error(code="task_failed", message=f"the run {child['run']} ended as {child['status']}")
        await _end_step(driver, step.job, step.name, "failed", outputs=outputs, error=error)


# -- starting ------------------------------------------------------------------------------------------------


async def _re_enter(driver: Driver, around: Around) -> None:
    """Take up what an earlier driver left: waits with the same wait id; deeds only if they may be done twice."""
    for step in list(driver.state.steps.values()):
        if step.status != "running" or step.registered:
            continue
        if step.wait is not None:
            try:
                await _open(driver, around, step, step.wait)
            except ExpressionFailed as failure:
                await _fail(driver, step, "expression_failed", str(failure))
        elif step.step.idempotent or isinstance(step.step.task, AssertTask):
            await _begin(driver, around, step)
        else:
            await _fail(driver, step, "step_interrupted", "the gateway stopped while the step ran")


async def _expand(driver: Driver, job: str, step: Step) -> None:
    assert step.for_each is not None
    try:
        items = render(step.for_each.values, environment(driver.state))
    except ExpressionFailed as failure:
        await _end_step(driver, job, step.name, "failed", error=Error(code="expression_failed", message=str(failure)))
        return
    if not isinstance(items, list) or len(items) > MAX_FOR_EACH:
        message = f"forEach needs a list of at most {MAX_FOR_EACH} elements"
        await _end_step(driver, job, step.name, "failed", error=Error(code="expression_failed", message=message))
        return
    text = msgspec.json.encode(items)
    if len(text) > MAX_ITEMS_BYTES:
        message = f"the elements of forEach have more than {MAX_ITEMS_BYTES} bytes"
        await _end_step(driver, job, step.name, "failed", error=Error(code="expression_failed", message=message))
        return
    event = Expanded(
        at=driver.at(), nonce=driver.actor.source.nonce(), job=job, step=step.name, items=msgspec.Raw(text)
    )
    await driver.append(event)


async def _start(driver: Driver, around: Around, step: StepState) -> None:
    """Start a step whose dependencies allow it, unless its guard says that it is done already."""
    try:
        if step.step.guard is not None and evaluate(step.step.guard, environment(driver.state, step)) is True:
            await _end_step(driver, step.job, step.name, "skipped", guarded=True)
            return
    except ExpressionFailed as failure:
        await _fail(driver, step, "expression_failed", str(failure))
        return
    await _begin(driver, around, step)


async def _begin(driver: Driver, around: Around, step: StepState) -> None:
    env = environment(driver.state, step)
    try:
        match step.step.task:
            case WaitTask() as task:
                captured_schema(task, env)
                await _open(driver, around, step, None)
            case WorkflowTask():
                await _open(driver, around, step, None)
            case AssertTask() as task:
                held = evaluate(task.that, env) is True
                message = "" if held else render_text(task.message, env)
                await _log_start(driver, step)
                if held:
                    await _end_step(driver, step.job, step.name, "succeeded")
                else:
                    await _fail(driver, step, "task_failed", message)
            case task:
                await _begin_deed(driver, around, step, prepare(task, env, around.publisher, _whose(driver, step)))
    except ExpressionFailed as failure:
        await _fail(driver, step, "expression_failed", str(failure))


def _whose(driver: Driver, step: StepState) -> Whose:
    return Whose(workflow=driver.state.workflow, run=driver.state.run, job=step.job, step=step.name)


async def _begin_deed(driver: Driver, around: Around, step: StepState, deed: Deed) -> None:
    await _log_start(driver, step)
    around.effects.start(step.job, step.name, deed)


async def _log_start(driver: Driver, step: StepState) -> None:
    event = StepStarted(
        at=driver.at(),
        nonce=driver.actor.source.nonce(),
        job=step.job,
        step=step.name,
        attempt=step.attempt,
    )
    await driver.append(event)
    state = driver.state
    driver.actor.note(
        EngineEvent(action="step.started", workflow=state.workflow, run=state.run, job=step.job, step=step.name)
    )


async def _open(driver: Driver, around: Around, step: StepState, wait: str | None) -> None:
    """Open a step's wait, or go on with the one that an earlier driver opened under the same id."""
    if wait is None:
        wait = driver.actor.source.sortable_id()
        event = Opening(
            at=driver.at(),
            nonce=driver.actor.source.nonce(),
            job=step.job,
            step=step.name,
            attempt=step.attempt,
            wait=wait,
        )
        await driver.append(event)
    request = _request(driver.state, step, wait)
    if isinstance(step.step.task, WorkflowTask):
        problem = await start_child(driver, around.definition, step, step.step.task, wait)
        if problem is not None:
            await _fail(driver, step, "task_failed", problem)
            return
    match await open_wait(driver.actor, request):
        case Settled(outcome):
            await _end_by(driver, step, outcome)
        case Waiting(claim):
            around.deadline(await register(driver.actor, request, claim))


def _request(state: RunState, step: StepState, wait: str) -> WaitRequest:
    task = step.step.task
    if not isinstance(task, WaitTask):
        return WaitRequest(
            wait=wait,
            run=state.run,
            workflow=state.workflow,
            job=step.job,
            step=step.name,
            attempt=step.attempt,
            timeout=float(MAX_TIMEOUT_SECONDS),
            # Only the child's end settles this wait: a signal that names it is refused.
            schema=b"false",
        )
    return WaitRequest(
        wait=wait,
        run=state.run,
        workflow=state.workflow,
        job=step.job,
        step=step.name,
        attempt=step.attempt,
        timeout=task.timeout,
        key=task.key,
        accept_early=task.accept_early,
        policy=task.early_policy,
        replace_holder=task.on_held == "replace",
        schema=captured_schema(task, environment(state, step)),
    )
