"""Expiry and removal: what is over is cleared away while somebody still uses it."""

from __future__ import annotations

from typing import Any

from tests.interleavings.explorer import Scenario
from tests.interleavings.programs import cancels, half, in_turn, looks_at_what_is_due, removes, runs_it, sends, sweeps
from tests.interleavings.scenarios.setup import BRIEF, PLAIN, scenario

# -- expiry and removal ------------------------------------------------------------------------------------------


def expiry_and_wait(**options: Any) -> Scenario:
    """A held signal expires as a wait opens."""
    players = {"T": looks_at_what_is_due(), "W": runs_it("w", PLAIN)}
    options = {"moments": (10.0, 10.5), "kills": 0, **options}
    return scenario("expiry/wait", players, before=[(0.0, sends("s", PLAIN, signal_id="i"))], **options)


def expiry_and_repeat(**options: Any) -> Scenario:
    """A held signal expires as it is sent again, and a wait opens."""
    players = {"R": sends("s", PLAIN, signal_id="i", drives=False), "W": runs_it("w", PLAIN)}
    options = {"moments": (10.0, 10.5), **options}
    return scenario("expired repeat/wait", players, before=[(0.0, sends("s", PLAIN, signal_id="i"))], **options)


def expiry_and_signal(**options: Any) -> Scenario:
    """A held signal expires as another is sent, which takes the number that the void would have had."""
    players = {"T": looks_at_what_is_due(), "S": sends("n", PLAIN, drives=False)}
    before = [(0.0, sends("s", PLAIN))]
    return scenario("expiry/signal", players, before=before, **{"moments": (10.5,), **options})


def expiry_by_two(**options: Any) -> Scenario:
    """A held signal expires, by two, one of which may die or have no answer to its void."""
    players = {"T": looks_at_what_is_due(), "U": looks_at_what_is_due()}
    before = [(0.0, sends("s", PLAIN, signal_id="i"))]
    return scenario("expiry/expiry", players, before=before, **{"moments": (10.5,), "losses": 1, **options})


def expiry_and_next_signal(**options: Any) -> Scenario:
    """A held signal expires, by two, as another is sent."""
    players = {
        "T": looks_at_what_is_due(),
        "U": looks_at_what_is_due(),
        "S": sends("n", PLAIN, drives=False),
    }
    before = [(0.0, sends("s", PLAIN, signal_id="i"))]
    return scenario("expiry/expiry/signal", players, before=before, **{"moments": (10.5,), **options})


def signal_and_sleepy_sweep(**options: Any) -> Scenario:
    """A signal is stored as a sweep looks at what is due, and falls asleep over it for longer than the grace."""
    players = {"S": sends("s", PLAIN, drives=False), "T": sweeps()}
    return scenario("signal/sweep that sleeps", players, **{"moments": (0.0, 450.0), **options})


def wait_and_sleepy_sweep(**options: Any) -> Scenario:
    """A wait opens as a sweep looks at what is due, and falls asleep over it for longer than the grace."""
    players = {"W": runs_it("w", BRIEF), "T": sweeps()}
    return scenario("wait/sweep that sleeps", players, **{"moments": (0.0, 450.0), "kills": 0, **options})


TOOK = [(0.0, runs_it("v", PLAIN)), (1.0, sends("s", PLAIN, signal_id="i"))]
_DEAD = half(sends("s", PLAIN, signal_id="i"), 6)
HELD_AND_TOOK = [(0.0, sends("s", PLAIN, signal_id="i")), (1.0, runs_it("v", PLAIN))]


def removal_and_repeat(**options: Any) -> Scenario:
    """A run is removed as a signal that its wait took is sent again."""
    players = {
        "R": sends("s", PLAIN, signal_id="i", drives=False),
        "X": in_turn(removes("v"), looks_at_what_is_due()),
    }
    return scenario("removal/repeat", players, before=HELD_AND_TOOK, **{"moments": (2.0, 450.0), **options})


def removal_and_delivered_repeat(**options: Any) -> Scenario:
    """A run is removed as a signal that was delivered to its wait is sent again."""
    players = {
        "R": sends("s", PLAIN, signal_id="i", drives=False),
        "X": in_turn(removes("v"), looks_at_what_is_due()),
    }
    return scenario("removal/delivered repeat", players, before=TOOK, **{"moments": (2.0, 450.0), **options})


def removal_and_late_answer(**options: Any) -> Scenario:
    """A sender stores a signal and sleeps; a wait takes it, its run ends and is removed; the sender wakes."""
    players = {
        "S": sends("s", PLAIN, drives=False),
        "V": in_turn(runs_it("v", PLAIN), removes("v"), looks_at_what_is_due(), runs_it("w", PLAIN)),
    }
    return scenario("removal/late answer", players, **{"moments": (0.0, 450.0), "kills": 0, **options})


def removal_and_early_signal(**options: Any) -> Scenario:
    """A run is removed as an early signal comes."""
    players = {"X": removes("v"), "S": sends("n", PLAIN, drives=False)}
    return scenario("release/early signal", players, before=TOOK, **{"moments": (2.0,), **options})


def removal_and_next_wait(**options: Any) -> Scenario:
    """A run is removed as the next wait opens, with a signal held for it."""
    players = {"X": removes("v"), "W": runs_it("w", PLAIN)}
    before = [*TOOK, (2.0, sends("n", PLAIN))]
    return scenario("release/next wait, one signal held", players, before=before, **{"moments": (2.0,), **options})


def removal_early_signal_and_next_wait(**options: Any) -> Scenario:
    """A run is removed as an early signal comes and the next wait opens."""
    players = {"X": removes("v"), "S": sends("n", PLAIN, drives=False), "W": runs_it("w", PLAIN)}
    options = {"moments": (2.0,), "kills": 0, **options}
    return scenario("release/early signal/next wait", players, before=TOOK, **options)


def removal_by_two(**options: Any) -> Scenario:
    """Two instances finish a removal that was begun and not gone through with, as the signal is sent again."""
    players = {
        "T": looks_at_what_is_due(),
        "U": looks_at_what_is_due(),
        "R": sends("s", PLAIN, signal_id="i", drives=False),
    }
    before = [*HELD_AND_TOOK, (2.0, half(removes("v"), 3))]
    return scenario("removal/removal/repeat", players, before=before, **{"moments": (450.0,), "kills": 0, **options})


def first_attempt_died(**options: Any) -> Scenario:
    """The first attempt of an identified signal died before its record; it is sent again, as another is sent."""
    dead = half(sends("s", PLAIN, signal_id="i"), 6)
    players = {"R": sends("s", PLAIN, signal_id="i", drives=False), "S": sends("n", PLAIN, drives=False)}
    return scenario("dead attempt: repeat/signal", players, before=[(0.0, dead)], **options)


def first_attempt_is_slow(**options: Any) -> Scenario:
    """The first attempt of an identified signal is slow: a wait opens and ends, its run is removed, it comes again."""
    life = (runs_it("v", PLAIN), cancels("v"), removes("v"), looks_at_what_is_due())
    players = {
        "A": sends("s", PLAIN, signal_id="i", drives=False),
        "V": in_turn(*life, sends("s", PLAIN, signal_id="i", drives=False)),
    }
    return scenario("slow attempt/removal, repeat", players, **{"moments": (0.0, 450.0), "kills": 0, **options})


def dead_attempt_after_removal(**options: Any) -> Scenario:
    """An attempt named the outcome of a wait and died; that wait's run was removed; the signal is sent again."""
    dead = half(sends("s", PLAIN, signal_id="i"), 10)
    before = [
        (0.0, runs_it("v", PLAIN)),
        (1.0, dead),
        (2.0, cancels("v")),
        (3.0, removes("v")),
        (450.0, looks_at_what_is_due()),
    ]
    players = {"R": sends("s", PLAIN, signal_id="i", drives=False), "W": runs_it("w", PLAIN)}
    options = {"moments": (451.0,), **options}
    return scenario("dead attempt, run removed: repeat/wait", players, before=before, **options)


def removal_repeat_and_next_wait(**options: Any) -> Scenario:
    """A run begins to be removed as the signal that its wait took is sent again, and the next wait opens."""
    players = {
        "X": removes("v"),
        "R": sends("s", PLAIN, signal_id="i", drives=False),
        "W": runs_it("w", PLAIN),
    }
    options = {"before": HELD_AND_TOOK, "moments": (2.0,), "kills": 0, **options}
    return scenario("removal/repeat/next wait", players, **options)


def deletion_repeat_and_next_wait(**options: Any) -> Scenario:
    """A removed run's records are deleted as the signal that its wait took is sent again, and the next wait opens."""
    players = {
        "T": looks_at_what_is_due(),
        "R": sends("s", PLAIN, signal_id="i", drives=False),
        "W": runs_it("w", PLAIN),
    }
    options = {"before": [*HELD_AND_TOOK, (2.0, removes("v"))], "moments": (450.0,), "kills": 0, **options}
    return scenario("deletion/repeat/next wait", players, **options)


def dead_attempt_signal_and_repeat(**options: Any) -> Scenario:
    """An attempt died before its record; another signal comes, it is sent again, and a wait opens."""
    players = {
        "S": sends("n", PLAIN, drives=False),
        "R": sends("s", PLAIN, signal_id="i", drives=False),
        "V": runs_it("v", PLAIN),
    }
    return scenario("dead attempt: signal/repeat/wait", players, **{"before": [(0.0, _DEAD)], "kills": 0, **options})


def dead_attempt_deletion_and_repeat(**options: Any) -> Scenario:
    """An attempt died; another signal was taken, its run is removed; the first is sent again, and a wait opens."""
    players = {
        "T": looks_at_what_is_due(),
        "R": sends("s", PLAIN, signal_id="i", drives=False),
        "W": runs_it("w", PLAIN),
    }
    before = [(0.0, _DEAD), (0.0, sends("n", PLAIN)), (1.0, runs_it("v", PLAIN)), (2.0, removes("v"))]
    options = {"before": before, "moments": (450.0,), "kills": 0, **options}
    return scenario("dead attempt: signal, deletion/repeat/next wait", players, **options)
