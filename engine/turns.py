"""Turns: within one process, signals to one key are decided one after the other.

The protocol needs no lock, and other processes hold none; but many senders of one process that race for one key would
only make each other look again, and the slowest of them give up as contended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from engine.names import Key


@dataclass(slots=True)
class _Turn:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0


class Turns:
    """A lock for each key that somebody is at."""

    def __init__(self) -> None:
        self._turns: dict[Key, _Turn] = {}

    @asynccontextmanager
    async def of(self, key: Key) -> AsyncIterator[None]:
        """Wait for the turn at `key`; in the order of arrival."""
        turn = self._turns.setdefault(key, _Turn())
        turn.waiting += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.waiting -= 1
            if not turn.waiting:
                del self._turns[key]
