"""The scenarios: the races of the protocol, each a store as it is before and the players that meet over it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tests.interleavings.explorer import Scenario
from tests.interleavings.scenarios import arrivals, crowds, drivers, removals, repeats, revocation

Build: TypeAlias = Callable[..., Scenario]
Named: TypeAlias = dict[str, Build]


def _named(*builds: Build) -> Named:
    return {build.__name__: build for build in builds}


# Two actors: every schedule.
PAIRS: Named = _named(
    arrivals.signal_and_wait,
    arrivals.signal_and_refusing_wait,
    arrivals.signal_and_aged_wait,
    arrivals.signal_and_deadline,
    arrivals.signal_and_brief_wait,
    arrivals.two_signals,
    arrivals.two_waits,
    arrivals.signal_and_suspension,
    repeats.same_signal_twice_early,
    repeats.same_signal_twice_waiting,
    repeats.repeat_and_next_wait,
    repeats.repeat_while_waits_follow,
    revocation.revocation_and_signal,
    drivers.two_instances,
    drivers.two_of_one_instance,
    drivers.sweep_and_sender,
    drivers.takeover,
    drivers.cancel_and_opening,
    drivers.cancel_and_signal,
    drivers.retry_and_signal,
    drivers.two_retries,
    drivers.replace_and_signal,
    drivers.held_and_signal,
    drivers.latest_held_then_first,
    removals.expiry_and_wait,
    removals.expiry_and_repeat,
    removals.expiry_and_signal,
    removals.expiry_by_two,
    removals.signal_and_sleepy_sweep,
    removals.removal_and_repeat,
    removals.removal_and_delivered_repeat,
    removals.removal_and_early_signal,
    removals.removal_and_next_wait,
    removals.first_attempt_died,
    removals.dead_attempt_after_removal,
)

# Two actors with long stories: every schedule by a command, those with few preemptions in the suite.
LONG: Named = _named(
    removals.wait_and_sleepy_sweep,
    removals.first_attempt_is_slow,
    removals.removal_and_late_answer,
)

# Three actors: every schedule with at most three preemptions.
TRIPLES: Named = _named(
    arrivals.early_signal_and_deadline,
    arrivals.two_signals_and_wait,
    arrivals.two_waits_and_signal,
    repeats.same_signal_twice,
    repeats.slow_attempt_and_repeat,
    drivers.takeover_and_signal,
    drivers.takeover_and_next_run,
    drivers.cancel_opening_and_signal,
    drivers.latest_signals,
    drivers.latest_three,
    removals.expiry_and_next_signal,
    removals.removal_early_signal_and_next_wait,
    removals.removal_by_two,
    removals.removal_repeat_and_next_wait,
    removals.deletion_repeat_and_next_wait,
    removals.dead_attempt_signal_and_repeat,
    removals.dead_attempt_deletion_and_repeat,
)

# Six actors: schedules that are drawn.
CROWDS: Named = _named(
    crowds.crowd_at_a_key,
    crowds.crowd_at_a_removal,
    crowds.crowd_under_latest,
    crowds.crowd_that_replaces,
)

# One schedule a race, in shorthand (see `trace.schedule_of`), for the protocol's page.
TRACES: dict[str, tuple[Build, str]] = {
    "1": (arrivals.signal_and_wait, "S*6 W*11 S*9 W S"),
    "2": (arrivals.signal_and_brief_wait, "S*7 W*11 clock W*4 S W"),
    "3": (arrivals.two_signals, "A*6 B*6 A B"),
    "4": (arrivals.two_waits, "V*8 W*8 V W"),
    "5": (arrivals.signal_and_suspension, "W*18 S*6 W*2 S W"),
    "6": (repeats.same_signal_twice_waiting, "A*9 B A"),
    "7": (revocation.revocation_and_signal, "G*5 X*3 G*10 X clock G"),
    "8": (drivers.two_instances, "A*3 B*3 A B"),
    "9": (drivers.takeover_and_signal, "W*7 S*1 W*3 T*15 S*6 W S"),
    "10": (drivers.cancel_and_opening, "W*6 C W"),
}
