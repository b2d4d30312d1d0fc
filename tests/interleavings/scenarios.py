"""The scenarios: the races of the protocol, each a store as it is before and the players that meet over it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.interleavings.explorer import Scenario
from tests.interleavings.machine import Contents, Machine, Player, Program
from tests.interleavings.programs import (
    KNOWN_ONLY,
    cancels,
    continues,
    in_turn,
    removes,
    retries,
    runs_it,
    sends,
    settles,
    sweeps,
    workflow,
)

START = datetime(2026, 1, 1, tzinfo=UTC)


def prepared(machine: Machine, *stages: tuple[float, Program]) -> tuple[Contents, tuple[Any, ...]]:
    """Let programs run alone, one after another, each at its second; give what the store holds then and what was said."""
    contents, said = machine.empty(), ()
    for number, (at, program) in enumerate(stages):
        player = Player(f"before{number}", program)
        node = player.advance(player.root, "start", None, at)
        while not node.ended:
            assert node.request is not None
            answer, contents = machine.perform(contents, node.request, START + timedelta(seconds=at))
            node = player.advance(node, "answer", answer, at)
        assert node.fault is None, node.fault
        said += node.said
    return contents, said


def scenario(
    name: str,
    players: dict[str, Program],
    *,
    before: Sequence[tuple[float, Program]] = (),
    moments: tuple[float, ...] = (0.0,),
    kills: int = 1,
    losses: int = 0,
    title: str = "",
) -> Scenario:
    """Put a scenario together. `before` happens first, alone; the clock then stands at the first of `moments`."""
    machine = Machine(START)
    contents, said = prepared(machine, *before)
    made = [Player(each, program, may_lose=losses > 0) for each, program in players.items()]
    return Scenario(name, machine, contents, made, moments, kills, losses, title, said)


PLAIN = workflow()
FIRM = workflow(acceptEarly=None)
LATEST = workflow(earlyPolicy="latest")
REPLACE = workflow(onHeld="replace")
KNOWN = workflow(schema=KNOWN_ONLY)


# -- race 1 ------------------------------------------------------------------------------------------------------


def signal_and_wait(**options: Any) -> Scenario:
    """A signal and a wait arrive together."""
    players = {"S": sends("s", PLAIN), "W": runs_it("w", PLAIN)}
    return scenario("1 signal/wait", players, **options)


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


# -- race 3 ------------------------------------------------------------------------------------------------------


def two_signals(**options: Any) -> Scenario:
    """Two early signals at once."""
    players = {"A": sends("a", PLAIN, drives=False), "B": sends("b", PLAIN, drives=False)}
    return scenario("3 signal/signal", players, **options)


def two_signals_and_wait(**options: Any) -> Scenario:
    """Two early signals and a wait."""
    players = {**_two_signals(PLAIN), "W": runs_it("w", PLAIN)}
    return scenario("3 signal/signal/wait", players, **{"kills": 0, **options})


def _two_signals(definition: Any) -> dict[str, Program]:
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
    return scenario("5 signal/suspension", players, **options)


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


PAIRS: dict[str, Callable[..., Scenario]] = {
    "signal_and_wait": signal_and_wait,
    "signal_and_refusing_wait": signal_and_refusing_wait,
    "signal_and_aged_wait": signal_and_aged_wait,
    "signal_and_deadline": signal_and_deadline,
    "two_signals": two_signals,
    "two_waits": two_waits,
    "signal_and_suspension": signal_and_suspension,
    "same_signal_twice_early": same_signal_twice_early,
    "same_signal_twice_waiting": same_signal_twice_waiting,
    "repeat_and_next_wait": repeat_and_next_wait,
}
TRIPLES: dict[str, Callable[..., Scenario]] = {
    "early_signal_and_deadline": early_signal_and_deadline,
    "two_signals_and_wait": two_signals_and_wait,
    "two_waits_and_signal": two_waits_and_signal,
    "same_signal_twice": same_signal_twice,
}
