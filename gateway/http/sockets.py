"""The HTTP door's socket, opened before anything that would answer on it is imported."""

from __future__ import annotations

import socket
from typing import Any, Final

from engine.errors import BadInput
from gateway.settings import Address

BACKLOG: Final = 1_024


def listen(address: Address) -> socket.socket:
    """Listen for HTTP: connections wait until somebody serves the socket. Raises `BadInput` if the port is taken."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setblocking(False)  # noqa: FBT003
        bound.bind(where)
        bound.listen(BACKLOG)
    except OSError as fault:
        raise BadInput(
            f"HTTP cannot listen on {address} ({fault.strerror})",
            hint="another program may have the port: choose one with --http HOST:PORT (port 0 takes a free one)",
        ) from None
    return bound


def bound_to(sock: socket.socket) -> str:
    """Give `HOST:PORT` of a bound socket."""
    name: Any = sock.getsockname()
    return str(Address(name[0], name[1]))
