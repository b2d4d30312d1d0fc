"""Whether a run may go on: what its log and the outcomes of its open waits say, and nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.decisions.continuation import Blocked, Resumable, continuation
from engine.records import Ended, Outcome, RunCancelled, Stored, Suspended, Unreadable
from tests.engine.decisions.test_fold import created, ended, opening, resumed, state_of
from tests.support.records import outcomes


def suspended() -> list[dict[str, object]]:
    return [created(), resumed(), opening("w1"), {"kind": Suspended, "waits": ("w1",)}]


@given(outcomes("w1"))
def test_a_suspended_run_goes_on_by_an_outcome_of_any_kind(outcome: Stored[Outcome] | Unreadable) -> None:
    state = state_of(*suspended())
    assert continuation(state, {"w1": outcome}) == Resumable()
    assert continuation(state, {}) == Blocked("waiting")
    assert continuation(state, {"another": outcome}) == Blocked("waiting")


@given(outcomes("w1"))
def test_an_outcome_that_the_log_has_applied_continues_nothing(outcome: Stored[Outcome] | Unreadable) -> None:
    state = state_of(*suspended(), resumed(), ended("ask"), {"kind": Suspended, "waits": ()})
    assert continuation(state, {"w1": outcome}) == Blocked("waiting")


@given(st.sets(st.sampled_from(["one", "two", "three"])))
def test_a_driven_run_is_left_alone_unless_its_driver_is_dead(dead: set[str]) -> None:
    state = state_of(created(), resumed("one"))
    expected = Resumable() if "one" in dead else Blocked("driven")
    assert continuation(state, {}, dead=frozenset(dead)) == expected


def test_a_run_that_was_created_waits_for_a_driver() -> None:
    assert continuation(state_of(created()), {}) == Resumable()


@given(outcomes("w1"), st.booleans())
def test_only_the_log_says_that_a_run_has_ended(outcome: Stored[Outcome] | Unreadable, cancelled: bool) -> None:
    last = {"kind": RunCancelled, "by": "eve"} if cancelled else {"kind": Ended, "status": "failed"}
    state = state_of(*suspended(), last)
    assert continuation(state, {"w1": outcome}, dead=frozenset({"one"})) == Blocked("ended")
