"""One timer for everything that a listener waits for, pure: thousands of idle connections cost one wake-up a tick."""

from __future__ import annotations

import math
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Wheel(Generic[Item]):
    """Items by the tick at which to look at them. Nothing is ever removed: the item knows whether it is due."""

    def __init__(self, tick_seconds: float) -> None:
        self._tick_seconds = tick_seconds
        self._buckets: dict[int, list[Item]] = {}
        self._last: int | None = None

    def add(self, item: Item, at: float) -> None:
        """Have `due` return `item` at or after `at`, at most a tick late if it is called each tick."""
        tick = math.ceil(at / self._tick_seconds)
        if self._last is not None:
            tick = max(tick, self._last + 1)
        self._buckets.setdefault(tick, []).append(item)

    def due(self, now: float) -> list[Item]:
        """Take out what is due."""
        tick = math.floor(now / self._tick_seconds)
        first = min(self._buckets, default=tick + 1) if self._last is None else self._last + 1
        self._last = tick if self._last is None else max(self._last, tick)
        if tick - first > len(self._buckets):  # a clock that jumped: look at what is there, not at every tick
            return [item for one in sorted(self._buckets) if one <= tick for item in self._buckets.pop(one)]
        return [item for one in range(first, tick + 1) for item in self._buckets.pop(one, ())]
