"""A source of time and names that a test sets by hand: the same calls give the same names."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from engine.clock import derived_id


class HandSource:
    """Stands still until it is advanced; its names count up."""

    def __init__(self, start: float = 1_000.0, label: str = "") -> None:
        self.time = start
        self._label = label
        self._drawn = 0

    def monotonic(self) -> float:
        return self.time

    def advance(self, seconds: float) -> None:
        self.time += seconds

    def nonce(self) -> str:
        self._drawn += 1
        return derived_id("nonce", self._label, str(self._drawn))[:16]

    def sortable_id(self) -> str:
        self._drawn += 1
        return derived_id("id", self._label, str(self._drawn))


def stopped_at(seconds: float) -> Callable[[], datetime]:
    """Give a wall clock that stands still, so many seconds after the Unix epoch's beginning."""
    return lambda: datetime.fromtimestamp(seconds, UTC)
