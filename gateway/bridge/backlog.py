"""What lay in the broker's queue while no bridge was there. Pure: times are given.

After a reconnect the bridge publishes a marker to itself on each of its filters. What comes before a filter's marker,
or is sent again from before the connection, has lain there for up to the length of the gap.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

FRESH: Final = 0.0


@dataclass(slots=True)
class Backlog:
    """The backlog of one connection. `gap_seconds` is 0 when the broker held nothing for it.

    With `one_queue` the marker of one filter stands for all of them, as where those of the others may come to another
    member of a shared subscription: brokers that have these hand out a session's messages in one order.
    """

    gap_seconds: float
    max_seconds: float
    one_queue: bool = False
    _waiting: set[str] = field(default_factory=set)

    def expect(self, topic_filters: Iterable[str]) -> None:
        """Take everything under these filters for backlog until their markers come."""
        if self.gap_seconds > FRESH:
            self._waiting = set(topic_filters)

    def marked(self, topic_filter: str) -> None:
        """Take what comes under a filter from now on for fresh; "" stands for all that have no marker of their own."""
        self._waiting.discard(topic_filter)

    def age_seconds(self, topic_filter: str, *, dup: bool) -> float:
        """Tell how long a message may have lain in the broker's queue.

        One that was sent before (`dup`) and is not in progress here is from before this connection, wherever it comes.
        """
        return self.gap_seconds if dup or self._waits(topic_filter) else FRESH

    def _waits(self, topic_filter: str) -> bool:
        return bool(self._waiting) if self.one_queue else topic_filter in self._waiting

    def is_stale(self, age_seconds: float) -> bool:
        """Tell whether a message of that age is too old to act on."""
        return age_seconds > self.max_seconds

    @property
    def over(self) -> bool:
        """Tell whether every marker has come."""
        return not self._waiting
