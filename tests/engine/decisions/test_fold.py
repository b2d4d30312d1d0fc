"""A run is the fold of its log: nothing else says what a run is, and a log that begins elsewhere says nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import names
from engine.decisions.fold import RunState, fold
from engine.errors import UnreadableRecord
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
    Stored,
    Suspended,
    raw,
)
from tests.support.bench import definition
from tests.support.records import START

RUN = "r" * 26
TEXT = """
name: door
inputs: { type: object }
jobs:
  - name: main
    steps:
      - name: ask
        task: { type: wait_for_signal, timeout: 60 }
      - name: send
        task: { type: publish, topic: a, payload: {} }
      - name: each
        forEach: { item: n, in: [1, 2] }
        task: { type: assert, that: "${{ self.n > 0 }}", message: no }
"""
DEFINITION = definition(TEXT)


def log(*values: dict[str, Any]) -> list[Stored[Event]]:
    """Number events as a log does."""
    found: list[Stored[Event]] = []
    for seq, fields in enumerate(values, start=1):
        rest = {name: value for name, value in fields.items() if name != "kind"}
        value = fields["kind"](at=names.event(RUN, seq), nonce=f"n{seq}", **rest)
        found.append(Stored(value, seq, START + timedelta(seconds=seq)))
    return found


def created() -> dict[str, Any]:
    return {
        "kind": Created,
        "workflow": "door",
        "definition": msgspec.Raw(DEFINITION.source),
        "inputs": msgspec.Raw(b'{"a":1}'),
        "by": "test",
        "parent_run": None,
        "parent_wait": None,
        "depth": 0,
    }


def resumed(instance: str = "one") -> dict[str, Any]:
    return {"kind": Resumed, "instance": instance}


def started(step: str) -> dict[str, Any]:
    return {"kind": StepStarted, "job": "main", "step": step, "attempt": 1}


def opening(wait: str, step: str = "ask", attempt: int = 1) -> dict[str, Any]:
    return {"kind": Opening, "job": "main", "step": step, "attempt": attempt, "wait": wait}


def ended(step: str, status: str = "succeeded", *, guarded: bool = False, attempt: int = 1) -> dict[str, Any]:
    error = Error(code="task_failed", message="no") if status == "failed" else None
    return {
        "kind": StepEnded,
        "job": "main",
        "step": step,
        "attempt": attempt,
        "status": status,
        "guarded": guarded,
        "outputs": raw(b'{"x":1}'),
        "error": error,
    }


def state_of(*values: dict[str, Any]) -> RunState:
    state = fold(RUN, log(*values))
    assert state is not None
    return state


def test_an_empty_log_and_one_without_its_beginning_are_no_run() -> None:
    assert fold(RUN, []) is None
    assert fold(RUN, log(created(), resumed())[1:]) is None


def test_a_created_run_waits_for_a_driver_with_every_step_pending() -> None:
    state = state_of(created())
    assert (state.phase, state.status, state.seq) == ("waiting_for_driver", "pending", 1)
    assert {name: step.status for (_, name), step in state.steps.items()} == {"ask": "pending", "send": "pending"}
    assert state.inputs == {"a": 1}


def test_the_last_resumed_names_the_driver() -> None:
    state = state_of(created(), resumed("one"), resumed("two"))
    assert (state.phase, state.status, state.instance, state.driver) == ("driven", "running", "two", "n3")


def test_a_wait_is_open_from_its_opening_to_its_steps_end() -> None:
    before = state_of(created(), resumed(), opening("w1"))
    assert [step.wait for step in before.open_waits()] == ["w1"]
    assert not before.steps["main", "ask"].registered
    suspended = state_of(created(), resumed(), opening("w1"), {"kind": Suspended, "waits": ("w1",)})
    assert (suspended.phase, suspended.steps["main", "ask"].status) == ("suspended", "suspended")
    assert suspended.steps["main", "ask"].registered
    after = state_of(created(), resumed(), opening("w1"), ended("ask"))
    assert list(after.open_waits()) == []
    assert after.applied == {"w1"}
    assert after.steps["main", "ask"].value() == {"x": 1}


def test_elements_are_steps_of_their_own() -> None:
    items = {"kind": Expanded, "job": "main", "step": "each", "items": msgspec.Raw(b'["a","b"]')}
    state = state_of(created(), resumed(), items, ended("each[1]", "failed"))
    assert state.groups == {("main", "each"): ["each[0]", "each[1]"]}
    assert [(state.steps["main", name].item, state.steps["main", name].status) for name in ("each[0]", "each[1]")] == [
        ("a", "pending"),
        ("b", "failed"),
    ]


def test_cancelling_ends_what_had_not_ended() -> None:
    state = state_of(created(), resumed(), opening("w1"), ended("send"), {"kind": RunCancelled, "by": "eve"})
    assert (state.phase, state.status) == ("ended", "cancelled")
    assert state.steps["main", "ask"].status == "cancelled"
    assert state.steps["main", "send"].status == "succeeded"
    assert state.ended_at == START + timedelta(seconds=5)


def test_a_retry_makes_the_named_steps_new_and_keeps_the_others() -> None:
    retried = {"kind": Retried, "steps": (("main", "ask"),), "by": "eve"}
    ending = {"kind": Ended, "status": "failed"}
    state = state_of(created(), resumed(), opening("w1"), ended("ask", "failed"), ended("send"), ending, retried)
    ask, send = state.steps["main", "ask"], state.steps["main", "send"]
    assert (state.phase, state.status, state.ended_at) == ("waiting_for_driver", "pending", None)
    assert (ask.status, ask.attempt, ask.wait, ask.error) == ("pending", 2, None, None)
    assert (send.status, send.attempt) == ("succeeded", 1)
    assert set(state.openings) == {"w1"}


def test_a_retry_of_a_group_forgets_its_elements_and_of_one_element_keeps_the_others() -> None:
    items = {"kind": Expanded, "job": "main", "step": "each", "items": msgspec.Raw(b'["a","b"]')}
    begun = [created(), resumed(), items, ended("each[0]"), ended("each[1]", "failed")]
    one = state_of(*begun, {"kind": Retried, "steps": (("main", "each[1]"),), "by": "eve"})
    assert [(one.steps["main", name].status, one.steps["main", name].attempt) for name in ("each[0]", "each[1]")] == [
        ("succeeded", 1),
        ("pending", 2),
    ]
    assert one.steps["main", "each[1]"].item == "b"
    whole = state_of(*begun, {"kind": Retried, "steps": (("main", "each"),), "by": "eve"})
    assert whole.groups == {}
    assert not any(name.startswith("each") for _, name in whole.steps)


def test_a_hole_in_the_log_is_never_folded_over() -> None:
    events = log(created(), resumed(), opening("w1"))
    with pytest.raises(UnreadableRecord, match=names.event(RUN, 2)):
        fold(RUN, [events[0], events[2]])


def test_a_log_of_a_definition_that_is_not_accepted_or_lacks_its_steps_is_damaged() -> None:
    unknown = msgspec.Raw(DEFINITION.source.replace(b'"publish"', b'"shout"'))
    events = log(created() | {"definition": unknown}, resumed())
    with pytest.raises(UnreadableRecord, match="does not accept"):
        fold(RUN, events)
    with pytest.raises(UnreadableRecord, match=names.event(RUN, 3)):
        fold(RUN, log(created(), resumed(), opening("w1") | {"step": "other"}))


KINDS = ["resumed", "opening", "ended", "suspended", "cancelled", "retried", "over"]


@given(st.lists(st.sampled_from(KINDS), max_size=12))
def test_a_fold_in_two_parts_is_the_fold_of_the_whole(kinds: list[str]) -> None:
    """Whoever appends an event and applies it knows what whoever folds the log anew knows."""

    def make() -> list[Stored[Event]]:
        made: list[dict[str, Any]] = [created()]
        for at, kind in enumerate(kinds):
            match kind:
                case "resumed":
                    made.append(resumed(f"i{at}"))
                case "opening":
                    made.append(opening(f"w{at}", attempt=at + 1))
                case "ended":
                    made.append(ended("ask", "failed" if at % 2 else "succeeded", attempt=at + 1))
                case "suspended":
                    made.append({"kind": Suspended, "waits": ()})
                case "cancelled":
                    made.append({"kind": RunCancelled, "by": "eve"})
                case "retried":
                    made.append({"kind": Retried, "steps": (("main", "ask"), ("main", "each")), "by": "eve"})
                case _:
                    made.append({"kind": Ended, "status": "failed"})
        return log(*made)

    whole = fold(RUN, make())
    assert whole is not None
    grown = fold(RUN, make()[:1])
    assert grown is not None
    for entry in make()[1:]:
        grown.apply(entry.number, entry.value, entry.at)
    assert grown == whole
    assert whole.seq == len(kinds) + 1
    assert all(step.wait is not None and not step.is_over for step in whole.open_waits())
    assert whole.applied <= set(whole.openings)
