"""What becomes of a signal that is sent to a key, for everything that a key and its slot can hold."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.decisions.admission import AlreadyHeld, Deliver, Hold, NoWait, SlotBehind, Undeclared, admission
from engine.decisions.holder import Free, Held
from engine.records import KeyRecord, Pending, Seal, SlotRecord, Stored, Unreadable, current_slot, kept_until
from engine.workflows.definition import WaitTask
from tests.support.records import claims, moments, releases, seconds, slots

tasks = st.builds(
    WaitTask,
    key=st.just("verdict"),
    timeout=seconds,
    accept_early=st.none() | seconds,
    early_policy=st.sampled_from(["first", "latest"]),
)
tops = st.none() | claims() | releases()


@given(claims(), st.none() | tasks, moments)
def test_an_open_wait_takes_it_whatever_the_definition_says_now(
    claim: Any, task: WaitTask | None, now: datetime
) -> None:
    held = Held(claim)
    assert admission(held, claim, None, task, now) == Deliver(held)


@given(tops, moments)
def test_a_key_that_no_definition_declares_and_no_wait_holds_is_unknown(
    top: Stored[KeyRecord] | None, now: datetime
) -> None:
    assert admission(Free(), top, None, None, now) == Undeclared()


@given(tops, tasks, slots(), moments)
def test_a_free_key_holds_at_most_one_signal_that_is_in_its_age_under_first(
    top: Stored[KeyRecord] | None, task: WaitTask, slot: list[Stored[SlotRecord] | Unreadable], now: datetime
) -> None:
    newest = slot[-1] if slot else None
    decided = admission(Free(), top, newest, task, now)
    if task.accept_early is None:
        assert decided == NoWait()
        return
    match decided:
        case AlreadyHeld(pending):
            assert task.early_policy == "first"
            assert pending == newest
            assert now <= kept_until(pending)
        case SlotBehind():
            assert isinstance(newest, Stored)
            assert isinstance(newest.value, Seal)
        case Hold(number, m):
            assert number == current_slot(top)
            assert m == len(slot) + 1
            if isinstance(newest, Stored) and isinstance(newest.value, Pending) and task.early_policy == "first":
                assert now > kept_until(Stored(newest.value, newest.number, newest.at))
            assert not (isinstance(newest, Stored) and isinstance(newest.value, Seal))
        case _:
            raise AssertionError(decided)
