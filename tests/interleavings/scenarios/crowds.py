"""Six actors at once, for schedules that are drawn."""

from __future__ import annotations

from typing import Any

from tests.interleavings.explorer import Scenario
from tests.interleavings.programs import cancels, in_turn, removes, retries, runs_it, sends, sweeps
from tests.interleavings.scenarios.removals import HELD_AND_TOOK
from tests.interleavings.scenarios.setup import LATEST, PLAIN, REPLACE, scenario

# -- crowds: six actors, for schedules that are drawn ---------------------------------------------------------------


def crowd_at_a_key(**options: Any) -> Scenario:
    """Two runs, two signals, one of them sent twice, and a sweep that takes the first run's driver for dead."""
    same = sends("i", PLAIN, signal_id="i", again=1)
    players = {
        "V": runs_it("v", PLAIN),
        "W": runs_it("w", PLAIN),
        "A": same,
        "B": same,
        "S": sends("s", PLAIN, again=0),
        "T": sweeps(dead=frozenset({"V"}), passes=2),
    }
    return scenario("six at a key", players, **{"kills": 2, "losses": 2, "moments": (0.0, 10.0, 30.0), **options})


def crowd_at_a_removal(**options: Any) -> Scenario:
    """A run is removed while its signal is sent again, another comes, the next runs open, and two sweeps pass."""
    players = {
        "X": removes("v"),
        "R": sends("s", PLAIN, signal_id="i", again=1),
        "S": sends("n", PLAIN, signal_id="n", again=1),
        "W": runs_it("w", PLAIN),
        "T": sweeps(passes=2),
        "U": in_turn(sweeps(), runs_it("x", PLAIN)),
    }
    options = {"kills": 2, "losses": 2, "moments": (2.0, 33.0, 450.0, 900.0), **options}
    return scenario("six at a removal", players, before=HELD_AND_TOOK, **options)


def crowd_under_latest(**options: Any) -> Scenario:
    """Three signals under `latest`, one sent twice, a run, its cancelling, and a sweep."""
    same = sends("i", LATEST, signal_id="i", again=1)
    players = {
        "A": same,
        "B": same,
        "S": sends("s", LATEST),
        "W": in_turn(runs_it("v", LATEST), runs_it("w", LATEST)),
        "C": cancels("v"),
        "T": sweeps(passes=2),
    }
    return scenario("six under latest", players, **{"kills": 2, "losses": 2, "moments": (0.0, 10.5, 30.0), **options})


def crowd_that_replaces(**options: Any) -> Scenario:
    """Three runs that replace each other's hold on a key, two signals, and a retry."""
    players = {
        "V": runs_it("v", REPLACE),
        "W": runs_it("w", REPLACE),
        "X": runs_it("x", REPLACE),
        "A": sends("a", REPLACE, signal_id="a", again=1),
        "S": sends("s", REPLACE),
        "R": retries("v", "identify"),
    }
    return scenario("six that replace", players, **{"kills": 2, "losses": 2, "moments": (0.0, 10.0, 30.0), **options})
