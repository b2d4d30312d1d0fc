"""The only place that reads a clock or draws a random number: time and identity are arguments everywhere else."""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from datetime import UTC, datetime
from functools import partial
from typing import Protocol

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [high + low for high in _ALPHABET for low in _ALPHABET]
_TIME_CHARACTERS = 10
_ID_CHARACTERS = 26
_TIME_LIMIT_MS = 1 << 50
_NONCE_BYTES = 10
_STOCK_BYTES = 1_000
_monotonic = partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic


class Source(Protocol):
    """Where an actor takes its monotonic time and its fresh names from."""

    def monotonic(self) -> float:
        """Seconds on a clock that never steps; it goes on while the machine sleeps."""
        ...

    def nonce(self) -> str:
        """Draw a name that nobody else has drawn: it tells two writers' records apart."""
        ...

    def sortable_id(self) -> str:
        """Draw 26 characters of `[a-z0-9]` that sort newest first, for runs and waits."""
        ...


class SystemSource:
    """The machine's clock and its random numbers, which are fetched in stock: a call of the system costs more each."""

    def __init__(self) -> None:
        self._stock = b""
        self._process = 0

    def _random(self) -> bytes:
        """Take 10 random bytes. A process that was forked begins a stock of its own."""
        if len(self._stock) < _NONCE_BYTES or self._process != os.getpid():
            self._stock, self._process = os.urandom(_STOCK_BYTES), os.getpid()
        taken, self._stock = self._stock[:_NONCE_BYTES], self._stock[_NONCE_BYTES:]
        return taken

    def monotonic(self) -> float:
        return _monotonic()

    def nonce(self) -> str:
        return self._random().hex()

    def sortable_id(self) -> str:
        # Counting down makes the newest id the lowest, so that the latest runs are a short range on every backend.
        left = _TIME_LIMIT_MS - 1 - int(time.time() * 1000)
        chance = int.from_bytes(self._random(), "big")
        return encode(left, _TIME_CHARACTERS) + encode(chance, _ID_CHARACTERS - _TIME_CHARACTERS)


def encode(number: int, width: int) -> str:
    """Write `number` in base 32 without the letters that are mistaken for others, `width` characters wide."""
    pairs = [_PAIRS[(number >> shift) & 1023] for shift in range(0, 5 * width, 10)]
    return "".join(reversed(pairs))[-width:]


def derived_id(*parts: str, like: str = "") -> str:
    """Derive 26 characters of `[a-z0-9]` from `parts`: everybody who knows them gets the same id.

    With `like`, the result sorts next to that id (a child run beside the wait that it belongs to).
    """
    digest = hashlib.sha256("\x00".join(parts).encode()).digest()
    head = like[:_TIME_CHARACTERS]
    return head + encode(int.from_bytes(digest, "big") >> 96, _ID_CHARACTERS - len(head))


def wall_clock() -> datetime:
    """The host's clock, for people's eyes (log lines, certificates); never for a decision about a record."""
    return datetime.now(UTC)


def secret_number(bits: int) -> int:
    """Draw a number of `bits` bits that nobody can guess: what a token is made of."""
    return secrets.randbits(bits)


def rfc3339(moment: datetime) -> str:
    """Write a moment as every door does: UTC, milliseconds (cut, not rounded: never later than it was), `Z`."""
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    return moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
