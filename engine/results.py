"""What a signal is answered with: a closed set of values. Each says what is stored, never what was attempted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from msgspec import Struct

from engine.payload import Payload
from engine.records import Sender, State
from engine.workflows.schema import SchemaProblem


class SignalRequest(Struct, frozen=True, kw_only=True):
    """A signal whose sender was authorised and whose payload passed the limits.

    `age_seconds` is how long it may have been under way before it got here: older than a step's `acceptEarly`, it is
    delivered to an open wait and not held.
    """

    sender: Sender
    payload: Payload
    signal_id: str | None = None
    age_seconds: float = 0.0


class Receipt(Struct, frozen=True):
    """What a sender gets: an id, and when the store stored its signal first. Never a payload."""

    id: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """The wait that took a signal, for those who may read the workflow."""

    wait: str
    run: str
    job: str
    step: str


class Taken(Struct, frozen=True, kw_only=True):
    """The signal is durable. `duplicate`: an earlier message with the same id had decided already."""

    receipt: Receipt
    state: State
    duplicate: bool = False
    held_until: datetime | None = None
    where: Where | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LastWait:
    """How a wait was settled, for those who may read the workflow."""

    how: Literal["accepted", "timed_out", "cancelled", "unreadable"]
    at: datetime
    receipt: Receipt | None = None


@dataclass(frozen=True, slots=True)
class NotDeclared:
    """Nothing by this name, or nothing for this caller: one answer for both."""


@dataclass(frozen=True, slots=True)
class NoOpenWait:
    """No wait is open under the key and its step takes no early signals. Nothing was stored."""

    last: LastWait | None


@dataclass(frozen=True, slots=True)
class EarlySignalHeld:
    """An early signal is held already; a key holds one."""

    receipt: Receipt
    sender: Sender
    until: datetime


@dataclass(frozen=True, slots=True)
class InvalidPayload:
    """The schema refuses the payload. Nothing was stored."""

    problems: tuple[SchemaProblem, ...]


@dataclass(frozen=True, slots=True)
class AlreadySettled:
    """The wait that was named has its outcome."""

    last: LastWait


@dataclass(frozen=True, slots=True)
class WaitClosed:
    """The wait that was named is past its deadline."""


@dataclass(frozen=True, slots=True)
class SignalIdReused:
    """The signal id was used for another payload."""


@dataclass(frozen=True, slots=True)
class SlotFull:
    """Too many early signals are stored under the key and not yet cleared away."""


@dataclass(frozen=True, slots=True)
class Contended:
    """Others were faster too many times in a row; the sender may try again."""


Refusal = (
    NotDeclared
    | NoOpenWait
    | EarlySignalHeld
    | InvalidPayload
    | AlreadySettled
    | WaitClosed
    | SignalIdReused
    | SlotFull
    | Contended
)
Answer = Taken | Refusal
