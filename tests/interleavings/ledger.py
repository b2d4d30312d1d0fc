"""The ledger: what senders and the surroundings were told. Nothing of it is in the store."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from engine.results import Taken


@dataclass(frozen=True, slots=True)
class Told:
    """What a sender was told of one message. `signal` names the signal; messages of one identified signal share it."""

    signal: str
    answer: Any

    def __hash__(self) -> int:
        return hash((self.signal, type(self.answer).__name__, self.state))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Told) and (self.signal, self.answer) == (other.signal, other.answer)

    @property
    def state(self) -> str:
        return self.answer.state if isinstance(self.answer, Taken) else ""


@dataclass(frozen=True, slots=True)
class Sent:
    """A sender began to send one message of `signal`: an answer is owed for it, unless the sender dies."""

    signal: str


@dataclass(frozen=True, slots=True)
class LetPass:
    """A gateway let a device act, by what it read of the registry from `since` on."""

    device: str
    since: datetime
