"""Proves that the listener's one timer gives every item in time, once, and holds on to none that is cancelled."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.listener.wheel import Wheel

times = st.floats(0, 1_000)


@given(st.lists(st.tuples(st.integers(0, 5), times), max_size=20), st.lists(times, min_size=1, max_size=20))
def test_an_item_is_given_once_not_before_its_time_and_at_most_a_tick_late(
    entries: list[tuple[int, float]], looks: list[float]
) -> None:
    wheel: Wheel[int] = Wheel(0.5)
    earliest: dict[int, float] = {}
    for item, at in entries:
        wheel.add(item, at)
        earliest[item] = min(at, earliest.get(item, at))
    given_at: dict[int, float] = {}
    for now in sorted([*looks, 1_001.0]):
        for item in wheel.due(now):
            assert item not in given_at
            given_at[item] = now
            assert now >= earliest[item]
        for item, at in earliest.items():
            assert item in given_at or at > now - 0.5
    assert given_at.keys() == earliest.keys()
    assert len(wheel) == 0


@given(st.lists(st.tuples(st.integers(0, 5), times, st.booleans()), max_size=20))
def test_a_cancelled_item_is_neither_given_nor_held(entries: list[tuple[int, float, bool]]) -> None:
    wheel: Wheel[int] = Wheel(0.5)
    left: set[int] = set()
    for item, at, cancelled in entries:
        wheel.add(item, at)
        left.add(item)
        if cancelled:
            wheel.cancel(item)
            left.discard(item)
    assert len(wheel) == len(left)
    assert set(wheel.due(2_000)) == left


def test_an_item_added_for_a_time_that_has_passed_is_given_at_the_next_tick() -> None:
    wheel: Wheel[str] = Wheel(0.5)
    assert wheel.due(100.0) == []
    wheel.add("late", 3.0)
    assert wheel.due(100.5) == ["late"]


def test_a_clock_that_jumps_costs_no_walk_over_every_tick() -> None:
    wheel: Wheel[str] = Wheel(0.5)
    wheel.due(0.0)
    wheel.add("one", 7.0)
    assert wheel.due(1e12) == ["one"]
