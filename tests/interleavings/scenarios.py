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
    half,
    in_turn,
    looks_at_what_is_due,
    removes,
    retries,
    runs_it,
    sends,
    settles,
    starts,
    sweeps,
    workflow,
)

START = datetime(2026, 1, 1, tzinfo=UTC)


def prepared(machine: Machine, *stages: tuple[float, Program]) -> tuple[Contents, tuple[Any, ...]]:
    """Let programs run alone, one after another, each at its second; give what the store holds and what was said."""
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
    prompt: bool = False,
) -> Scenario:
    """Put a scenario together. `before` happens first, alone; the clock then stands at the first of `moments`."""
    machine = Machine(START)
    contents, said = prepared(machine, *before)
    made = [Player(each, program, may_lose=losses > 0) for each, program in players.items()]
    return Scenario(name, machine, contents, made, moments, kills, losses, said=said, prompt=prompt)


PLAIN = workflow()
FIRM = workflow(acceptEarly=None)
LATEST = workflow(earlyPolicy="latest")
REPLACE = workflow(onHeld="replace")
BRIEF = workflow(timeout=5)
KNOWN = workflow(schema=KNOWN_ONLY)


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
    return scenario("5 signal/suspension", players, **{"prompt": True, **options})


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


# -- race 7 ------------------------------------------------------------------------------------------------------


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
    players = {**_two_signals(LATEST), "W": runs_it("w", LATEST)}
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


def expiry_and_next_signal(**options: Any) -> Scenario:
    """A held signal expires, by two, as another is sent."""
    players = {
        "T": looks_at_what_is_due(),
        "U": looks_at_what_is_due(),
        "S": sends("n", PLAIN, drives=False),
    }
    before = [(0.0, sends("s", PLAIN, signal_id="i"))]
    return scenario("expiry/expiry/signal", players, before=before, **{"moments": (10.5,), **options})


TOOK = [(0.0, runs_it("v", PLAIN)), (1.0, sends("s", PLAIN, signal_id="i"))]
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


PAIRS: dict[str, Callable[..., Scenario]] = {
    "signal_and_wait": signal_and_wait,
    "signal_and_refusing_wait": signal_and_refusing_wait,
    "signal_and_aged_wait": signal_and_aged_wait,
    "signal_and_deadline": signal_and_deadline,
    "signal_and_brief_wait": signal_and_brief_wait,
    "two_signals": two_signals,
    "two_waits": two_waits,
    "signal_and_suspension": signal_and_suspension,
    "same_signal_twice_early": same_signal_twice_early,
    "same_signal_twice_waiting": same_signal_twice_waiting,
    "repeat_and_next_wait": repeat_and_next_wait,
    "repeat_while_waits_follow": repeat_while_waits_follow,
    "two_instances": two_instances,
    "two_of_one_instance": two_of_one_instance,
    "sweep_and_sender": sweep_and_sender,
    "takeover": takeover,
    "cancel_and_opening": cancel_and_opening,
    "cancel_and_signal": cancel_and_signal,
    "retry_and_signal": retry_and_signal,
    "two_retries": two_retries,
    "replace_and_signal": replace_and_signal,
    "held_and_signal": held_and_signal,
    "latest_held_then_first": latest_held_then_first,
    "expiry_and_wait": expiry_and_wait,
    "expiry_and_repeat": expiry_and_repeat,
    "removal_and_repeat": removal_and_repeat,
    "removal_and_delivered_repeat": removal_and_delivered_repeat,
    "removal_and_late_answer": removal_and_late_answer,
    "removal_and_early_signal": removal_and_early_signal,
    "removal_and_next_wait": removal_and_next_wait,
    "first_attempt_died": first_attempt_died,
    "dead_attempt_after_removal": dead_attempt_after_removal,
}
TRIPLES: dict[str, Callable[..., Scenario]] = {
    "early_signal_and_deadline": early_signal_and_deadline,
    "two_signals_and_wait": two_signals_and_wait,
    "two_waits_and_signal": two_waits_and_signal,
    "same_signal_twice": same_signal_twice,
    "slow_attempt_and_repeat": slow_attempt_and_repeat,
    "takeover_and_signal": takeover_and_signal,
    "takeover_and_next_run": takeover_and_next_run,
    "cancel_opening_and_signal": cancel_opening_and_signal,
    "latest_signals": latest_signals,
    "latest_three": latest_three,
    "expiry_and_next_signal": expiry_and_next_signal,
    "removal_early_signal_and_next_wait": removal_early_signal_and_next_wait,
    "removal_by_two": removal_by_two,
}

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


CROWDS: dict[str, Callable[..., Scenario]] = {
    "crowd_at_a_key": crowd_at_a_key,
    "crowd_at_a_removal": crowd_at_a_removal,
    "crowd_under_latest": crowd_under_latest,
    "crowd_that_replaces": crowd_that_replaces,
}

# One schedule a race, in shorthand (see `trace.schedule_of`), for the protocol's page.
TRACES: dict[str, tuple[Callable[..., Scenario], str]] = {
    "1": (signal_and_wait, "S*6 W*11 S*9 W S"),
    "2": (signal_and_brief_wait, "S*7 W*11 clock W*4 S W"),
    "3": (two_signals, "A*6 B*6 A B"),
    "4": (two_waits, "V*8 W*8 V W"),
    "5": (signal_and_suspension, "W*18 S*6 W*2 S W"),
    "6": (same_signal_twice_waiting, "A*9 B A"),
    "8": (two_instances, "A*3 B*3 A B"),
    "9": (takeover_and_signal, "W*7 S*1 W*3 T*15 S*6 W S"),
    "10": (cancel_and_opening, "W*6 C W"),
}
