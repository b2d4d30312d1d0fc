"""Turns: within one process, signals to one key are decided one after the other.

The protocol needs no lock, and other processes hold none; but many senders of one process that race for one key would
only make each other look again, and the slowest of them give up as contended.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

from engine.names import Key


class _Turn:
    """One actor's turn at a key: `async with`. It is handed to the next in the order of arrival."""

    __slots__ = ("_key", "_turns")

    def __init__(self, turns: dict[Key, deque[asyncio.Future[None]]], key: Key) -> None:
        self._turns = turns
        self._key = key

    async def __aenter__(self) -> None:
        waiting = self._turns.get(self._key)
        if waiting is None:
            self._turns[self._key] = deque()
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                with suppress(ValueError):
                    waiting.remove(turn)
            else:
                # It was handed over in the moment in which its taker gave up.
                self._hand_on()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._hand_on()

    def _hand_on(self) -> None:
        waiting = self._turns[self._key]
        while waiting:
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        del self._turns[self._key]


class Turns:
    """A queue for each key that somebody is at."""

    def __init__(self) -> None:
        self._turns: dict[Key, deque[asyncio.Future[None]]] = {}

    def of(self, key: Key) -> _Turn:
        """Wait for the turn at `key`; in the order of arrival."""
        return _Turn(self._turns, key)
