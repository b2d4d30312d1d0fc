"""How many WebSockets there may be, and which of them have to end because a credential has."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final

from devices.model import Entry, Kind
from devices.registry import Registry
from gateway.auth import Authority, Principal

MAX_OPEN: Final = 1_000
MAX_OF_ONE: Final = 8
MAX_UNKNOWN: Final = 100  # of one address; of all together, as many as the door has connections


class Full(Exception):
    """There are as many connections as there may be."""


class Admission:
    """The WebSockets of one instance."""

    def __init__(self, registry: Registry, authority: Authority) -> None:
        self._authority = authority
        self._open: dict[tuple[Kind, str], dict[asyncio.Event, Principal]] = defaultdict(dict)
        self._unknown: Counter[str] = Counter()
        registry.watch(self._changed)

    @contextlib.contextmanager
    def admitted(self, who: Principal) -> Iterator[asyncio.Event]:
        """Count a connection; the event that is given is set when its credential has ended. Raises `Full`."""
        own = self._open[who.kind, who.id]
        if len(own) >= MAX_OF_ONE:
            raise Full(f"{who} has {MAX_OF_ONE} connections already")
        if sum(map(len, self._open.values())) >= MAX_OPEN:
            raise Full("there are as many connections as there may be")
        over = asyncio.Event()
        own[over] = who
        try:
            yield over
        finally:
            del own[over]
            if not own:
                self._open.pop((who.kind, who.id), None)

    @contextlib.contextmanager
    def unknown(self, address: str) -> Iterator[None]:
        """Count a connection that has not said yet whose it is: an address has so many. Raises `Full`."""
        if self._unknown[address] >= MAX_UNKNOWN:
            raise Full("too many connections from this address have not said yet whose they are")
        self._unknown[address] += 1
        try:
            yield
        finally:
            self._unknown[address] -= 1
            if not self._unknown[address]:
                del self._unknown[address]

    def _changed(self, before: Entry | None, after: Entry | None) -> None:
        entry = after or before
        if entry is None:
            return
        for over, who in self._open.get((entry.kind, entry.name), {}).items():
            if self._authority.standing(who) is None:
                over.set()
