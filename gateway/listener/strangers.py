"""What is held against addresses, pure: connections that have not said who they are, and credentials that were wrong.

Nobody without a credential can keep others out: one address has only a part of the connections, and one that has
guessed for long leaves a part of the connects to those that have not.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

from gateway.listener.rates import TokenBucket

_MAX_ADDRESSES: Final = 10_000
_GUESSES_A_SECOND: Final = 1.0
_GUESSES_AT_ONCE: Final = 60
_LEFT_TO_OTHERS: Final = 0.25  # of the burst


class Strangers:
    """The connections of each address that have not authenticated, those in a TLS handshake included."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._of: dict[str, set[Hashable]] = {}

    def add(self, address: str, stranger: Hashable) -> bool:
        """Count one in; False when the address has as many as it may."""
        those = self._of.setdefault(address, set())
        if len(those) >= self._limit:
            return False
        those.add(stranger)
        return True

    def remove(self, address: str, stranger: Hashable) -> None:
        """Count one out: it has authenticated, or is gone; does nothing when it is not there."""
        those = self._of.get(address)
        if those is not None:
            those.discard(stranger)
            if not those:
                del self._of[address]


class Connects:
    """The connects a second of a listener."""

    def __init__(self, per_second: float, burst: int, now: float) -> None:
        self._bucket = TokenBucket(per_second, burst, now)
        self._left_to_others = burst * _LEFT_TO_OTHERS
        self._guesses: OrderedDict[str, TokenBucket] = OrderedDict()

    def take(self, address: str, now: float) -> bool:
        """Count a CONNECT; False when there are too many."""
        guesses = self._guesses.get(address)
        suspect = guesses is not None and not guesses.has(now)
        return self._bucket.take(now, leave=self._left_to_others if suspect else 0.0)

    def failed(self, address: str, now: float) -> None:
        """Take note of a wrong credential."""
        guesses = self._guesses.get(address)
        if guesses is None:
            guesses = self._guesses[address] = TokenBucket(_GUESSES_A_SECOND, _GUESSES_AT_ONCE, now)
            if len(self._guesses) > _MAX_ADDRESSES:
                self._guesses.popitem(last=False)
        self._guesses.move_to_end(address)
        guesses.take(now)
