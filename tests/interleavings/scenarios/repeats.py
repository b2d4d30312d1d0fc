"""Race 6: one identified signal is sent more than once."""

from __future__ import annotations

from typing import Any

from tests.interleavings.explorer import Scenario
from tests.interleavings.machine import Program
from tests.interleavings.programs import in_turn, runs_it, sends
from tests.interleavings.scenarios.setup import PLAIN, scenario

# -- race 6 ------------------------------------------------------------------------------------------------------


def same_signal_twice(**options: Any) -> Scenario:
    """An identified signal is sent twice, and a wait opens."""
    players = {**_same_twice(), "W": runs_it("w", PLAIN)}
    return scenario("6 signal/its repeat/wait", players, **{"kills": 0, **options})


def same_signal_twice_early(**options: Any) -> Scenario:
    """An identified signal is sent twice before any wait, by a sender that asks again when no answer comes."""
    return scenario("6 signal/its repeat", _same_twice(again=1), **{"losses": 1, **options})


def same_signal_twice_waiting(**options: Any) -> Scenario:
    """An identified signal is sent twice to an open wait."""
    before = [(0.0, runs_it("w", PLAIN))]
    return scenario("6 signal/its repeat, a wait open", _same_twice(again=1), before=before, **{"losses": 1, **options})


def repeat_and_next_wait(**options: Any) -> Scenario:
    """A repeat of a signal that a wait took, as the next wait opens: it must not be held for that one."""
    before = [(0.0, sends("s", PLAIN, signal_id="i")), (1.0, runs_it("v", PLAIN))]
    players = {"R": sends("s", PLAIN, signal_id="i", drives=False), "W": runs_it("w", PLAIN)}
    return scenario("6 repeat/next wait", players, before=before, moments=(2.0,), **options)


def _same_twice(again: int = 0) -> dict[str, Program]:
    sent = sends("s", PLAIN, signal_id="i", drives=False, again=again)
    return {"A": sent, "B": sent}


def repeat_while_waits_follow(**options: Any) -> Scenario:
    """A repeat of a signal that is held, as one wait takes it and the next opens."""
    players = {
        "R": sends("s", PLAIN, signal_id="i", drives=False),
        "V": in_turn(runs_it("v", PLAIN), runs_it("w", PLAIN)),
    }
    before = [(0.0, sends("s", PLAIN, signal_id="i"))]
    return scenario("6 repeat/two waits", players, before=before, **{"kills": 0, **options})


def slow_attempt_and_repeat(**options: Any) -> Scenario:
    """The first attempt of an identified signal is slow; it is sent again as one wait opens, and then the next."""
    players = {
        "A": sends("s", PLAIN, signal_id="i", drives=False),
        "V": runs_it("v", PLAIN),
        "R": in_turn(sends("s", PLAIN, signal_id="i", drives=False), runs_it("w", PLAIN)),
    }
    return scenario("6 slow attempt/wait/repeat, next wait", players, **{"kills": 0, **options})
