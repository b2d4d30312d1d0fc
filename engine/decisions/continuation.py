"""Whether a run may go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from engine.decisions.fold import RunState
from engine.records import Outcome, Stored, Unreadable


@dataclass(frozen=True, slots=True)
class Resumable:
    """A driver may append `resumed`."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """Nothing to do now."""

    reason: Literal["ended", "driven", "waiting"]


def continuation(
    run: RunState, outcomes: Mapping[str, Stored[Outcome] | Unreadable], *, dead: frozenset[str] = frozenset()
) -> Resumable | Blocked:
    """Decide whether `run` may go on, given the outcomes that exist for its open waits.

    A run that is driven is left alone, unless its driver's instance is one of the `dead`. Only the log says that a
    run has ended.
    """
    match run.phase:
        case "ended":
            return Blocked("ended")
        case "waiting_for_driver":
            return Resumable()
        case "driven":
            return Resumable() if run.instance in dead else Blocked("driven")
        case "suspended":
            unapplied = any(step.wait in outcomes for step in run.open_waits())
            return Resumable() if unapplied else Blocked("waiting")
