"""What the engine tells its surroundings as it happens: for the audit log, live views and metrics. Never a payload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

Action = Literal[
    "signal.taken",
    "signal.expired",
    "wait.opened",
    "wait.settled",
    "wait.key_held",
    "run.created",
    "run.resumed",
    "run.suspended",
    "run.ended",
    "run.cancelled",
    "run.retried",
    "run.deleted",
    "run.damaged",
    "step.started",
    "step.ended",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineEvent:
    """One thing that happened, named by ids alone. `result` is a stable word (`succeeded`, `timed_out`, …)."""

    action: Action
    result: str = ""
    workflow: str = ""
    key: str = ""
    wait: str = ""
    run: str = ""
    job: str = ""
    step: str = ""
    receipt: str = ""
    by: str = ""
    reason: str = ""


class Observer(Protocol):
    """Hears of every event, at once and in order."""

    def note(self, event: EngineEvent) -> None:
        """Take one event; never blocks and never raises."""
        ...


@runtime_checkable
class TwiceTold(Observer, Protocol):
    """Hears of what happens in a moment of the store (`AtOnce`) in two parts instead of by `note`."""

    def note_within(self, event: EngineEvent) -> None:
        """Take an event that is not durable yet, for what is stored along with it."""
        ...

    def note_after(self, event: EngineEvent) -> None:
        """Take it again once it is durable, for everybody else."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Whose:
    """The step that sends a command, so that what becomes of it can be told without the command itself."""

    workflow: str
    run: str
    job: str
    step: str


class Publisher(Protocol):
    """Sends a workflow's commands to devices."""

    async def publish(self, topic: str, payload: bytes, whose: Whose) -> int:
        """Hand one message out; return how many connections of this instance received it."""
        ...
