"""Which steps start, which are skipped and when a run is over: laws over any graph, any results and any limits."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import names
from engine.decisions.again import steps_to_retry
from engine.decisions.fold import RunState
from engine.decisions.schedule import StepEnd, holds, job_status, plan, step_end
from engine.records import Created, Event, Expanded, Retried, StepEnded, StepStarted, raw
from engine.workflows.definition import (
    AssertTask,
    Condition,
    Definition,
    Dependency,
    Expression,
    ForEach,
    Job,
    Step,
)
from tests.support.records import START

CONDITIONS: list[Condition] = ["succeeded", "failed", "completed", "always", "skipped"]
TASK = AssertTask(that=Expression("true"), message="")
RUN = "r" * 26


class Log:
    """A run's state that grows event by event, as a driver's does."""

    def __init__(self, definition: Definition) -> None:
        created = Created(
            at=names.event(RUN, 1),
            nonce="n",
            workflow="w",
            definition=msgspec.Raw(b"{}"),
            inputs=msgspec.Raw(b"{}"),
            by="test",
            parent_run=None,
            parent_wait=None,
            depth=0,
        )
        self.state = RunState(RUN, created, definition, {}, START)
        self.state.apply(1, created, START)

    def append(self, kind: Any, **fields: Any) -> None:
        seq = self.state.seq + 1
        event: Event = kind(at=names.event(RUN, seq), nonce=f"n{seq}", **fields)
        self.state.apply(seq, event, START + timedelta(seconds=seq))

    def end(self, job: str, step: str, status: str, *, guarded: bool = False) -> None:
        self.append(
            StepEnded,
            job=job,
            step=step,
            attempt=1,
            status=status,
            guarded=guarded,
            outputs=raw(None),
            error=None,
        )


@st.composite
def definitions(draw: st.DrawFn) -> Definition:
    """A workflow of up to four jobs and up to five steps a job, each depending on any before it in any way."""
    jobs: list[Job] = []
    for j in range(draw(st.integers(1, 4))):
        steps: list[Step] = []
        for s in range(draw(st.integers(1, 5))):
            before = draw(st.lists(st.sampled_from(steps), unique_by=lambda each: each.name) if steps else st.just([]))
            depends = tuple(Dependency(name=each.name, condition=draw(st.sampled_from(CONDITIONS))) for each in before)
            each = ForEach(item="n", values=[]) if draw(st.integers(0, 4)) == 0 else None
            steps.append(
                Step(
                    name=f"s{j}{s}",
                    task=TASK,
                    depends_on=depends,
                    allow_failure=draw(st.booleans()),
                    for_each=each,
                )
            )
        earlier = draw(st.lists(st.sampled_from(jobs), unique_by=lambda each: each.name) if jobs else st.just([]))
        after = tuple(Dependency(name=each.name, condition=draw(st.sampled_from(CONDITIONS))) for each in earlier)
        limit = draw(st.none() | st.integers(1, 3))
        jobs.append(Job(name=f"j{j}", steps=tuple(steps), depends_on=after, concurrency=limit))
    return Definition(name="w", jobs=tuple(jobs), source=b"", concurrency=draw(st.none() | st.integers(1, 4)))


def simulate(definition: Definition, data: st.DataObject, log: Log | None = None) -> RunState:
    """Drive a run to its end with drawn results, checking at each turn what must hold."""
    log = log or Log(definition)
    state = log.state
    running: list[tuple[str, str]] = []
    for _ in range(2_000):
        todo = plan(state)
        assert not (todo.end and (todo.start or todo.skip or todo.expand or running))
        if todo.end is not None:
            failed = {job_status(state, job) for job in definition.jobs} & {"failed", "cancelled"}
            assert todo.end == ("failed" if failed else "succeeded")
            return state
        for job, name in todo.skip:
            log.end(job, name, "skipped")
        for job, step in todo.expand:
            items = msgspec.Raw(msgspec.json.encode(list(range(data.draw(st.integers(0, 3))))))
            log.append(Expanded, job=job, step=step.name, items=items)
        for each in todo.start:
            assert allowed(state, each.job, each.step)
            if data.draw(st.integers(0, 5)) == 0:
                log.end(each.job, each.name, "skipped", guarded=True)
            else:
                log.append(StepStarted, job=each.job, step=each.name, attempt=each.attempt)
                running.append((each.job, each.name))
        assert len(running) <= (definition.concurrency or 1_000)
        for job_def in definition.jobs:
            mine = [each for each in running if each[0] == job_def.name]
            assert len(mine) <= (job_def.concurrency or 1_000)
        if not (todo.skip or todo.expand or todo.start):
            assert running, "nothing to do, nothing under way, and not over: the run would stand still for ever"
            job, name = running.pop(data.draw(st.integers(0, len(running) - 1)))
            log.end(job, name, data.draw(st.sampled_from(["succeeded", "failed"])))
    raise AssertionError("the run never ends")


def allowed(state: RunState, job: str, step: Step) -> bool:
    """Say in the plainest words whether a step may start."""
    whole = state.job(job)
    jobs = [(StepEnd(job_status(state, state.job(each.name))), each.condition) for each in whole.depends_on]
    by_name = {each.name: each for each in whole.steps}
    steps = [(step_end(state, job, by_name[each.name]), each.condition) for each in step.depends_on]
    return all(holds(condition, end) for end, condition in [*jobs, *steps])


@settings(max_examples=60)
@given(definitions(), st.data())
def test_every_run_ends_and_every_step_ends_once(definition: Definition, data: st.DataObject) -> None:
    state = simulate(definition, data)
    for job in definition.jobs:
        for step in job.steps:
            assert step_end(state, job.name, step).status in {"succeeded", "failed", "skipped"}
    assert all(step.is_over for step in state.steps.values())


@settings(max_examples=60)
@given(definitions(), st.data())
def test_a_job_fails_exactly_by_a_failure_that_is_not_allowed(definition: Definition, data: st.DataObject) -> None:
    state = simulate(definition, data)
    for job in definition.jobs:
        ends = [(step, step_end(state, job.name, step).status) for step in job.steps]
        failed = any(status == "failed" and not step.allow_failure for step, status in ends)
        assert (job_status(state, job) == "failed") == failed


@settings(max_examples=60)
@given(definitions(), st.data())
def test_a_skipped_step_had_a_condition_that_did_not_hold(definition: Definition, data: st.DataObject) -> None:
    state = simulate(definition, data)
    for job in definition.jobs:
        for step in job.steps:
            end = step_end(state, job.name, step)
            if end.status == "skipped" and not end.guarded and step.for_each is None:
                assert not allowed(state, job.name, step)


@settings(max_examples=60)
@given(definitions(), st.data())
def test_a_retried_run_ends_again_whatever_is_retried(definition: Definition, data: st.DataObject) -> None:
    log = Log(definition)
    simulate(definition, data, log)
    named = data.draw(st.none() | st.sampled_from([step.name for job in definition.jobs for step in job.steps]))
    steps = steps_to_retry(log.state, named)
    over = {each for each, step in log.state.steps.items() if step.status == "succeeded"}
    if steps:
        log.append(Retried, steps=steps, by="eve")
        kept = {each for each, step in log.state.steps.items() if step.status == "succeeded"}
        assert kept <= over
        simulate(definition, data, log)


@settings(max_examples=60)
@given(definitions(), st.data())
def test_a_retry_names_the_failed_steps_and_what_comes_after_them(definition: Definition, data: st.DataObject) -> None:
    state = simulate(definition, data)
    named = set(steps_to_retry(state, None))
    failed = {each for each, step in state.steps.items() if step.status == "failed"}
    # An element is named itself, or with the whole of its `forEach` step where that depends on what runs again.
    assert all({(job, name), (job, name.split("[", 1)[0])} & named for job, name in failed)
    if not failed:
        assert named == set()
    bases = {(job, name.split("[", 1)[0]) for job, name in named}
    failed_bases = {(job, name.split("[", 1)[0]) for job, name in failed}
    for job in definition.jobs:
        touched = {name for where, name in bases if where == job.name}
        for step in job.steps:
            if any(each.name in touched for each in step.depends_on):
                assert (job.name, step.name) in named
        if any(
            (before.name, step.name) in failed_bases
            for before in definition.jobs
            for step in before.steps
            if any(each.name == before.name for each in job.depends_on)
        ):
            assert {(job.name, step.name) for step in job.steps} <= named


# -- the table of conditions ---------------------------------------------------------------------------------------

ENDS = {
    "succeeded": StepEnd("succeeded"),
    "failed": StepEnd("failed"),
    "skipped": StepEnd("skipped"),
    "done already": StepEnd("skipped", guarded=True),
    "cancelled": StepEnd("cancelled"),
    "running": StepEnd("running"),
    "pending": StepEnd("pending"),
    "suspended": StepEnd("suspended"),
}
SATISFIED: dict[str, set[str]] = {
    "succeeded": {"succeeded", "done already"},
    "failed": {"failed"},
    "completed": {"succeeded", "failed", "done already"},
    "always": {"succeeded", "failed", "skipped", "done already", "cancelled"},
    "skipped": {"skipped", "done already"},
}


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("end", ENDS)
def test_a_condition_is_satisfied_by_the_ends_that_it_names(condition: Condition, end: str) -> None:
    assert holds(condition, ENDS[end]) == (end in SATISFIED[condition])


def chain_of_jobs(length: int) -> Definition:
    """Jobs that each depend on the two before them."""
    jobs: list[Job] = []
    for at in range(length):
        after = tuple(Dependency(name=f"j{at - back}", condition="failed") for back in (1, 2) if at >= back)
        jobs.append(Job(name=f"j{at}", steps=(Step(name=f"s{at}", task=TASK),), depends_on=after))
    return Definition(name="w", jobs=tuple(jobs), source=b"")


def test_a_long_chain_of_skipped_jobs_is_planned_in_no_time() -> None:
    log = Log(chain_of_jobs(90))
    log.append(StepStarted, job="j0", step="s0", attempt=1)
    log.end("j0", "s0", "succeeded")
    for _ in range(100):
        todo = plan(log.state)
        if todo.end:
            break
        for job, name in todo.skip:
            log.end(job, name, "skipped")
    assert plan(log.state).end == "succeeded"
    assert {job_status(log.state, job) for job in log.state.definition.jobs} == {"succeeded", "skipped"}
