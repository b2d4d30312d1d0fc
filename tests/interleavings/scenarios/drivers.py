"""Races 8 to 10, and what a definition may ask for: instances, takeovers, cancels, retries, replacing, `latest`."""

from __future__ import annotations

from typing import Any

from tests.interleavings.explorer import Scenario
from tests.interleavings.programs import cancels, continues, retries, runs_it, sends, starts, sweeps
from tests.interleavings.scenarios.arrivals import two_senders
from tests.interleavings.scenarios.setup import FIRM, LATEST, PLAIN, REPLACE, scenario

# -- race 8 ------------------------------------------------------------------------------------------------------


def two_instances(**options: Any) -> Scenario:
    """Two instances continue one run."""
    before = [(0.0, runs_it("w", PLAIN)), (1.0, sends("s", PLAIN, drives=False))]
    players = {"A": continues("w"), "B": continues("w")}
    return scenario("8 two instances continue a run", players, before=before, moments=(2.0,), **options)


def two_of_one_instance(**options: Any) -> Scenario:
    """Two operations of one instance continue one run."""
    before = [(0.0, runs_it("w", PLAIN)), (1.0, sends("s", PLAIN, drives=False))]
    players = {"A": continues("w", instance="I"), "B": continues("w", instance="I")}
    return scenario("8 two of one instance continue a run", players, before=before, moments=(2.0,), **options)


def sweep_and_sender(**options: Any) -> Scenario:
    """The sender's instance and another's sweep continue one run."""
    players = {"S": sends("s", FIRM), "T": sweeps()}
    return scenario("8 sender and sweep continue a run", players, before=[(0.0, runs_it("w", FIRM))], **options)


# -- race 9 ------------------------------------------------------------------------------------------------------


def takeover(**options: Any) -> Scenario:
    """A driver is taken for dead while it opens its wait; it is only slow, and a signal is held."""
    before = [(0.0, sends("s", PLAIN)), (0.0, starts("w", PLAIN))]
    players = {"W": continues("w"), "T": continues("w", dead=frozenset({"W"}))}
    return scenario("9 takeover, one signal held", players, before=before, **options)


def takeover_and_signal(**options: Any) -> Scenario:
    """A driver is taken for dead while it opens its wait, and a signal comes."""
    players = {
        "W": continues("w"),
        "T": continues("w", dead=frozenset({"W"})),
        "S": sends("s", PLAIN, drives=False),
    }
    options = {"before": [(0.0, starts("w", PLAIN))], "kills": 0, **options}
    return scenario("9 takeover/signal", players, **options)


def takeover_and_next_run(**options: Any) -> Scenario:
    """A driver is taken for dead while it opens its wait on a key that another run holds, and that run's wait ends."""
    players = {"W": continues("w"), "T": continues("w", dead=frozenset({"W"})), "S": sends("s", PLAIN, drives=False)}
    before = [(0.0, runs_it("v", PLAIN)), (0.0, starts("w", PLAIN))]
    return scenario("9 takeover, the key held/signal", players, before=before, **{"kills": 0, **options})


# -- race 10 -----------------------------------------------------------------------------------------------------


def cancel_and_opening(**options: Any) -> Scenario:
    """A run is cancelled while it opens its wait."""
    players = {"W": continues("w"), "C": cancels("w")}
    return scenario("10 cancel/opening", players, before=[(0.0, starts("w", PLAIN))], **options)


def cancel_and_signal(**options: Any) -> Scenario:
    """A run is cancelled as a signal comes."""
    players = {"S": sends("s", PLAIN), "C": cancels("w")}
    return scenario("10 cancel/signal", players, before=[(0.0, runs_it("w", PLAIN))], **options)


def cancel_opening_and_signal(**options: Any) -> Scenario:
    """A run is cancelled while it opens its wait, and a signal comes."""
    players = {"W": continues("w"), "C": cancels("w"), "S": sends("s", PLAIN, drives=False)}
    return scenario("10 cancel/opening/signal", players, before=[(0.0, starts("w", PLAIN))], **{"kills": 0, **options})


def retry_and_signal(**options: Any) -> Scenario:
    """A waiting step is run again as a signal comes."""
    players = {"S": sends("s", PLAIN, drives=False), "R": retries("w", "identify")}
    return scenario("10 retry/signal", players, before=[(0.0, runs_it("w", PLAIN))], **options)


def two_retries(**options: Any) -> Scenario:
    """A failed step is run again by two."""
    before = [(0.0, runs_it("w", PLAIN)), (30.0, sweeps())]
    players = {"A": retries("w"), "B": retries("w")}
    return scenario("10 retry/retry", players, before=before, moments=(40.0,), **options)


def replace_and_signal(**options: Any) -> Scenario:
    """A step replaces the holder of its key as a signal comes."""
    players = {"W": runs_it("w", REPLACE), "S": sends("s", REPLACE, drives=False)}
    return scenario("onHeld: replace/signal", players, before=[(0.0, runs_it("v", REPLACE))], **options)


def held_and_signal(**options: Any) -> Scenario:
    """A step finds its key held as a signal frees it."""
    players = {"W": runs_it("w", PLAIN), "S": sends("s", PLAIN, drives=False)}
    return scenario("key held/signal", players, before=[(0.0, runs_it("v", PLAIN))], **options)


def latest_signals(**options: Any) -> Scenario:
    """Two early signals under `latest`, and a wait."""
    players = {**two_senders(LATEST), "W": runs_it("w", LATEST)}
    return scenario("latest: signal/signal/wait", players, **{"kills": 0, **options})


def latest_held_then_first(**options: Any) -> Scenario:
    """Two signals were held under `latest`; a run that keeps an older definition, under `first`, opens its wait."""
    before = [(0.0, sends("a", LATEST)), (1.0, sends("b", LATEST))]
    players = {"W": runs_it("w", PLAIN), "S": sends("c", LATEST, drives=False)}
    return scenario("two held under latest/wait under first", players, before=before, **{"moments": (2.0,), **options})


def latest_three(**options: Any) -> Scenario:
    """A signal is held under `latest`; two more come, one of them identified and sent again, as a wait opens."""
    players = {
        "A": sends("a", LATEST, drives=False),
        "B": sends("b", LATEST, signal_id="i", drives=False),
        "W": runs_it("w", LATEST),
    }
    before = [(0.0, sends("b", LATEST, signal_id="i"))]
    return scenario("latest: three signals/wait", players, before=before, **{"kills": 0, **options})
