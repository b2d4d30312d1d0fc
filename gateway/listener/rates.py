"""A token bucket on a clock that the caller reads."""

from __future__ import annotations


class TokenBucket:
    """Lets `burst` through at once and `per_second` in the long run."""

    __slots__ = ("_at", "_burst", "_left", "_per_second")

    def __init__(self, per_second: float, burst: int, now: float) -> None:
        self._per_second = per_second
        self._burst = burst
        self._left = float(burst)
        self._at = now

    def take(self, now: float, *, leave: float = 0.0, count: int = 1) -> bool:
        """Take `count` tokens; False when there are fewer, or fewer beyond what is to be left."""
        if not self.has(now, leave=leave, count=count):
            return False
        self._left -= count
        return True

    def has(self, now: float, *, leave: float = 0.0, count: int = 1) -> bool:
        """Say whether there are so many tokens beyond what is to be left."""
        self._left = min(self._burst, self._left + (now - self._at) * self._per_second)
        self._at = now
        return self._left >= count + leave
