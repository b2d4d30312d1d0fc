"""Which waits and child runs an event makes moot: all before an end, the named ones before a retry, none after it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine import names
from engine.decisions.fold import RunState
from engine.decisions.moot import child_of, children, key_of, moot
from engine.names import Key
from engine.records import Ended, Event, Expanded, Opening, Retried, RunCancelled, StepEnded, raw
from tests.engine.decisions.test_schedule import Log
from tests.support.bench import definition

TEXT = """
name: door
inputs: { type: object }
jobs:
  - name: main
    steps:
      - name: keyed
        task: { type: wait_for_signal, key: verdict, timeout: 60 }
      - name: ask
        forEach: { item: n, in: [1, 2] }
        task: { type: wait_for_signal, timeout: 60 }
      - name: ask-again
        task: { type: wait_for_signal, timeout: 60 }
      - name: child
        task: { type: workflow, workflow: other, inputs: {} }
"""
DEFINITION = definition(TEXT)
STEPS = ["keyed", "ask[0]", "ask[1]", "ask-again", "child"]


def opened(steps: list[str]) -> RunState:
    """Give a run whose log opened a wait for each of the steps, `w3` at event 3, `w4` at event 4 and so on."""
    log = Log(DEFINITION)
    log.append(Expanded, job="main", step="ask", items=raw(b"[1,2]"))
    for step in steps:
        log.append(Opening, job="main", step=step, attempt=1, wait=f"w{log.state.seq + 1}")
    return log.state


def event(kind: Any, seq: int, **fields: Any) -> Event:
    made: Event = kind(at=names.event("r" * 26, seq), nonce="n", **fields)
    return made


@given(st.lists(st.sampled_from(STEPS), max_size=8), st.integers(2, 12), st.booleans())
def test_an_end_makes_every_wait_before_it_moot(steps: list[str], seq: int, cancelled: bool) -> None:
    run = opened(steps)
    last = event(RunCancelled, seq, by="eve") if cancelled else event(Ended, seq, status="failed")
    assert [each.wait for each in moot(run, seq, last)] == [f"w{at}" for at in range(3, 3 + len(steps)) if at < seq]


@given(st.lists(st.sampled_from(STEPS), max_size=8), st.sets(st.sampled_from([*STEPS, "ask"])))
def test_a_retry_makes_the_waits_of_the_named_steps_moot_and_a_group_stands_for_its_elements(
    steps: list[str], named: set[str]
) -> None:
    run = opened(steps)
    seq = run.seq + 1
    retried = event(Retried, seq, steps=tuple(("main", name) for name in sorted(named)), by="eve")
    found = [each.step for each in moot(run, seq, retried)]
    assert found == [step for step in steps if step in named or (step.startswith("ask[") and "ask" in named)]


def test_only_a_declared_key_is_a_waits_key() -> None:
    run = opened(STEPS)
    assert [key_of(run, each) for each in run.openings.values()] == [Key("w", "verdict"), None, None, None, None]


def test_a_child_is_named_by_its_wait_until_the_log_has_applied_it() -> None:
    run = opened(["child", "keyed"])
    assert children(run, run.openings.values()) == [child_of("w3")]
    ending = event(
        StepEnded,
        run.seq + 1,
        job="main",
        step="child",
        attempt=1,
        status="failed",
        guarded=False,
        outputs=raw(None),
        error=None,
    )
    run.apply(run.seq + 1, ending, run.created_at)
    assert children(run, run.openings.values()) == []
