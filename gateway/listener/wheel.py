"""One timer for everything that a listener waits for, pure: thousands of idle connections cost one wake-up a tick."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


class Wheel(Generic[Item]):
    """Items by the tick at which to look at them, each at most once; an item that is cancelled is not held on to."""

    def __init__(self, tick_seconds: float) -> None:
        self._tick_seconds = tick_seconds
        self._ticks: dict[Item, int] = {}
        self._buckets: dict[int, set[Item]] = {}
        self._last: int | None = None

    def __len__(self) -> int:
        return len(self._ticks)

    def add(self, item: Item, at: float) -> None:
        """Have `due` return `item` at or before `at`, or at most a tick later: an earlier time that is set stays."""
        tick = math.ceil(at / self._tick_seconds)
        if self._last is not None:
            tick = max(tick, self._last + 1)
        if (earlier := self._ticks.get(item)) is not None:
            if earlier <= tick:
                return
            self.cancel(item)
        self._ticks[item] = tick
        self._buckets.setdefault(tick, set()).add(item)

    def cancel(self, item: Item) -> None:
        """Forget the item; does nothing when it is not there."""
        tick = self._ticks.pop(item, None)
        if tick is None:
            return
        bucket = self._buckets[tick]
        bucket.discard(item)
        if not bucket:
            del self._buckets[tick]

    def due(self, now: float) -> list[Item]:
        """Take out what is due."""
        tick = math.floor(now / self._tick_seconds)
        first = min(self._buckets, default=tick + 1) if self._last is None else self._last + 1
        self._last = tick if self._last is None else max(self._last, tick)
        ticks = range(first, tick + 1)
        # After a clock has jumped: look at what is there, not at every tick.
        found = ticks if len(ticks) <= len(self._buckets) else sorted(one for one in self._buckets if one <= tick)
        items = [item for one in found for item in self._buckets.pop(one, ())]
        for item in items:
            del self._ticks[item]
        return items
