"""Who has a place among the HTTP door's connections, and who gives way: nobody without a credential keeps others out.

No address has a number of its own: everybody may come through one, a reverse proxy's or a container's. When there are
too many, whoever comes is let in, a health check as well, and the oldest go that have not said whose they are, of the
address with the most of those.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
from collections import Counter
from collections.abc import Iterable
from typing import Final

from starlette.requests import HTTPConnection

# Where a request's scope has its connection's place, under `state`.
PLACE: Final = "place"
_PART: Final = 20


class Place:
    """What one connection has. A WebSocket takes over the place of the connection that it began on."""

    __slots__ = ("_socket", "_transport", "_unsent", "_unsent_since", "address", "known", "left", "since")

    def __init__(self, transport: asyncio.Transport, address: str, now: float) -> None:
        self._transport = transport
        self._socket: socket.socket | None = transport.get_extra_info("socket")
        self._unsent = math.inf
        self._unsent_since = now
        self.address = address
        self.since = now
        self.known = False
        self.left = False

    def leave(self) -> None:
        """End the connection at once, whatever is unsent."""
        self.left = True
        self._transport.abort()
        # asyncio's TLS transport, closed twice, knows nothing any more of what it would abort.
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def is_stalled(self, now: float, patience: float) -> bool:
        """Tell whether the peer has taken nothing of what waits for it for `patience` seconds; ask again and again."""
        closing = self._transport.is_closing()
        try:
            unsent = self._transport.get_write_buffer_size()
        except AttributeError:  # as below
            unsent = 0
        # Over TLS, a connection that is closing also waits for what asyncio does not count, and for the peer's goodbye.
        if unsent < self._unsent or not (unsent or closing):
            self._unsent_since = now
        self._unsent = unsent if unsent or closing else math.inf
        return now - self._unsent_since >= patience


def vouch(connection: HTTPConnection) -> None:
    """Have a connection keep its place from now on: whoever calls has shown who they are."""
    place: Place | None = connection.scope.get("state", {}).get(PLACE)
    if place is not None:
        place.known = True


def give_way(places: Iterable[Place]) -> list[Place]:
    """Choose who leaves: some of the strangers, so that this need not be asked each time; one at least, of all."""
    there = list(places)
    strangers = [it for it in there if not it.known]
    candidates = strangers or there
    counts = Counter(it.address for it in candidates)
    candidates.sort(key=lambda it: (-counts[it.address], it.since))
    return candidates[: max(1, len(strangers) // _PART)]
