"""Races 1 to 5: signals, waits and deadlines arrive together."""

from __future__ import annotations

from typing import Any

from tests.interleavings.explorer import Scenario
from tests.interleavings.machine import Program
from tests.interleavings.programs import runs_it, sends, settles
from tests.interleavings.scenarios.setup import BRIEF, FIRM, KNOWN, PLAIN, scenario

# -- race 1 ------------------------------------------------------------------------------------------------------


def signal_and_wait(**options: Any) -> Scenario:
    """A signal and a wait arrive together."""
    players = {"S": sends("s", PLAIN), "W": runs_it("w", PLAIN)}
    return scenario("1 signal/wait", players, **{"prompt": True, **options})


def signal_and_refusing_wait(**options: Any) -> Scenario:
    """A signal that the wait's schema refuses, though the newer definition admits it, and a wait arrive together."""
    players = {"S": sends("s", PLAIN, verdict="intruder", drives=False), "W": runs_it("w", KNOWN)}
    return scenario("1 signal/wait that refuses it", players, **options)


def signal_and_aged_wait(**options: Any) -> Scenario:
    """A signal that is held grows too old as a wait opens."""
    players = {"S": sends("s", PLAIN, drives=False), "W": runs_it("w", PLAIN)}
    options = {"moments": (0.0, 10.0), **options}
    return scenario("1 signal/wait at the age limit", players, **options)


# -- race 2 ------------------------------------------------------------------------------------------------------


def signal_and_deadline(**options: Any) -> Scenario:
    """A signal that has just missed the wait's claim against everybody who looks at the deadline."""
    players = {"S": sends("s", PLAIN, drives=False), "T": settles(drives=True)}
    options = {"before": [(0.0, runs_it("w", PLAIN))], "moments": (29.0, 30.0), **options}
    return scenario("2 signal/deadline", players, **options)


def early_signal_and_deadline(**options: Any) -> Scenario:
    """A signal finds the key free, a wait opens and reaches its deadline before the signal is stored."""
    players = {"S": sends("s", PLAIN, drives=False), "W": runs_it("w", PLAIN), "T": settles()}
    options = {"moments": (0.0, 30.0), "kills": 0, **options}
    return scenario("2 early signal/wait/deadline", players, **options)


def signal_and_brief_wait(**options: Any) -> Scenario:
    """A signal finds the key free; a wait opens and reaches its deadline before the signal is stored."""
    players = {"S": sends("s", BRIEF, drives=False), "W": runs_it("w", BRIEF)}
    return scenario("2 signal/wait that is over at once", players, **{"moments": (0.0, 5.0), "kills": 0, **options})


# -- race 3 ------------------------------------------------------------------------------------------------------


def two_signals(**options: Any) -> Scenario:
    """Two early signals at once."""
    players = {"A": sends("a", PLAIN, drives=False), "B": sends("b", PLAIN, drives=False)}
    return scenario("3 signal/signal", players, **options)


def two_signals_and_wait(**options: Any) -> Scenario:
    """Two early signals and a wait."""
    players = {**two_senders(PLAIN), "W": runs_it("w", PLAIN)}
    return scenario("3 signal/signal/wait", players, **{"kills": 0, **options})


def two_senders(definition: Any) -> dict[str, Program]:
    """Two senders of early signals."""
    return {"A": sends("a", definition, drives=False), "B": sends("b", definition, drives=False)}


# -- race 4 ------------------------------------------------------------------------------------------------------


def two_waits(**options: Any) -> Scenario:
    """Two steps open at once, with one pending signal."""
    players = {"V": runs_it("v", PLAIN), "W": runs_it("w", PLAIN)}
    return scenario("4 wait/wait, one signal held", players, before=[(0.0, sends("s", PLAIN))], **options)


def two_waits_and_signal(**options: Any) -> Scenario:
    """Two steps open at once, as a signal comes."""
    players = {"V": runs_it("v", PLAIN), "W": runs_it("w", PLAIN), "S": sends("s", PLAIN, drives=False)}
    return scenario("4 wait/wait/signal", players, **{"kills": 0, **options})


# -- race 5 ------------------------------------------------------------------------------------------------------


def signal_and_suspension(**options: Any) -> Scenario:
    """A signal lands between the step's look at its slot and its suspension."""
    players = {"S": sends("s", FIRM), "W": runs_it("w", FIRM)}
    return scenario("5 signal/suspension", players, **{"prompt": True, **options})
