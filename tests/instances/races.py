"""The races of PROTOCOL.md, section 10, as two processes: what each does, and what must have come of it."""

from __future__ import annotations

import asyncio
from typing import Any

from engine.clock import derived_id
from tests.instances.orders import Command, Race, Stage

Kinds = dict[str, int]


def start(workflow: str, run: str) -> Command:
    return {"do": "start", "workflow": workflow, "run": run}


def outlive(workflow: str, run: str) -> Command:
    """Start, and settle what is due when the deadline of the wait has passed."""
    return {"do": "outlive", "workflow": workflow, "run": run}


def start_another(workflow: str, run: str) -> Command:
    return {"do": "start", "workflow": workflow, "run": derived_id("another", run)}


def signal(number: int, signal_id: str = "") -> Any:
    def make(workflow: str, run: str) -> Command:
        more = {"id": signal_id} if signal_id else {}
        return {"do": "signal", "workflow": workflow, "n": number, **more}

    return make


def cancel(workflow: str, run: str) -> Command:
    return {"do": "cancel", "run": run}


def sweep(workflow: str, run: str) -> Command:
    return {"do": "sweep"}


def resume(workflow: str, run: str) -> Command:
    return {"do": "resume", "run": run}


def bury(workflow: str, run: str) -> Command:
    return {"do": "bury"}


async def suspended(stage: Stage, workflow: str, run: str) -> None:
    """A run waits already."""
    assert await stage.one.does(**start(workflow, run)) == "started"


async def signalled(stage: Stage, workflow: str, run: str) -> None:
    """A signal is held already."""
    answer = await stage.other.does(**signal(0)(workflow, run))
    assert answer["state"] == "held"


async def overdue(stage: Stage, workflow: str, run: str) -> None:
    """A run's wait is past its deadline, and nobody has looked."""
    await suspended(stage, workflow, run)
    await asyncio.sleep(1.1)


def _state(answer: Any) -> str:
    return str(answer.get("state") or answer.get("error")) if isinstance(answer, dict) else str(answer)


def applied_once(answers: list[Any], kinds: Kinds) -> None:
    """The run took the signal, and ended by it."""
    assert (kinds["applied"], kinds["run succeeded"]) == (1, 1), f"{answers} {kinds}"
    assert _state(answers[1]) in {"delivered", "held"}, f"{answers}"


def applied_or_refused(answers: list[Any], kinds: Kinds) -> None:
    """Without `acceptEarly` a signal is delivered or refused, and the run goes by that."""
    expected = {"delivered": (1, 1, 0), "NoOpenWait": (0, 0, 1)}.get(_state(answers[1]))
    assert (kinds["applied"], kinds["run succeeded"], kinds["run suspended"]) == expected, f"{answers} {kinds}"


def one_is_held(answers: list[Any], kinds: Kinds) -> None:
    """Of two early signals one is held and the other refused."""
    assert sorted(map(_state, answers)) == ["EarlySignalHeld", "held"], f"{answers}"


def one_takes_it(answers: list[Any], kinds: Kinds) -> None:
    """The signal that was held is some wait's, and only one's."""
    assert kinds["applied"] == 1, f"{kinds}"
    assert kinds["claims"] in {1, 2}, f"{kinds}"


def both_are_one(answers: list[Any], kinds: Kinds) -> None:
    """A signal that is sent twice is one: the same receipt to both, applied once."""
    assert len({answer["receipt"] for answer in answers}) == 1, f"{answers}"
    assert {_state(answer) for answer in answers} <= {"delivered", "held"}, f"{answers}"
    assert kinds["applied"] == kinds["run succeeded"] <= 1, f"{kinds}"


def continued_once(answers: list[Any], kinds: Kinds) -> None:
    """One of the two continues the run."""
    assert (kinds["applied"], kinds["run succeeded"]) == (1, 1), f"{answers} {kinds}"
    assert kinds["StepEnded"] == 1, f"{kinds}"


def in_time_or_late(answers: list[Any], kinds: Kinds) -> None:
    """The run timed out, and the late signal is held for the next; or it was in time."""
    assert kinds["run succeeded"] + kinds["run failed"] == 1, f"{kinds}"
    assert kinds["applied"] == kinds["run succeeded"], f"{kinds}"
    assert _state(answers[1]) in {"delivered", "held"}, f"{answers}"


def cancelled_or_not(answers: list[Any], kinds: Kinds) -> None:
    """A run that was cancelled is that, and one that the cancel did not find waits."""
    expected = "run suspended" if _state(answers[1]) == "NotFound" else "run cancelled"
    assert kinds[expected] == 1, f"{answers} {kinds}"


def taken_over(answers: list[Any], kinds: Kinds) -> None:
    """Whoever drives it, the run waits in the end, by one wait."""
    assert kinds["run suspended"] + kinds["run pending"] + kinds["run running"] == 1, f"{kinds}"
    assert kinds["claims"] <= 1, f"{kinds}"
    assert kinds["run suspended"] == 1 or kinds["claims"] == 0, f"{kinds}"


RACES = [
    Race("1, a signal and a wait arrive together", start, signal(1), applied_once),
    Race("2, a signal and a wait whose deadline passes", outlive, signal(1), in_time_or_late, kind="brief"),
    Race("2, a signal and a settler at a deadline", resume, signal(1), in_time_or_late, kind="brief", prepare=overdue),
    Race("3, two early signals", signal(1), signal(2), one_is_held),
    Race("4, two steps open at once, one signal is held", start, start_another, one_takes_it, prepare=signalled),
    Race("5, a signal while a step opens", start, signal(1), applied_or_refused, kind="strict"),
    Race("6, one signal sent to both, early", signal(1, "s"), signal(1, "s"), both_are_one),
    Race("6, one signal sent to both, a wait open", signal(1, "s"), signal(1, "s"), both_are_one, prepare=suspended),
    Race(
        "6, one signal sent to both, a wait open that holds none early",
        signal(1, "s"),
        signal(1, "s"),
        both_are_one,
        kind="strict",
        prepare=suspended,
    ),
    Race("8, two continue one run", sweep, signal(1), continued_once, prepare=suspended),
    Race("9, a driver is slow and is taken over", start, bury, taken_over),
    Race("10, a cancel and a step that opens", start, cancel, cancelled_or_not),
]
SLOW = {race.name for race in RACES if race.kind == "brief"}
