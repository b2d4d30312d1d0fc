"""The TLS handshake of a connection: done here and not where asyncio does it, so that it counts from its start."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from gateway.listener.connection import Connection, peer_address

if TYPE_CHECKING:
    from gateway.listener.server import Listener

_HANDSHAKE_SECONDS: Final = 10.0


class Handshake(asyncio.Protocol):
    """Lets a client in, shakes hands, and hands over to the connection that `make` makes."""

    def __init__(self, listener: Listener, context: ssl.SSLContext, make: Callable[[], Connection]) -> None:
        self._listener = listener
        self._context = context
        self._make = make
        self._transport: asyncio.Transport | None = None
        # What comes with the handshake's last segment:
        self._early: list[bytes] = []
        self._at_end = False
        self._lost = False
        self.address = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, unless there are too many connections already."""
        self._transport = cast("asyncio.Transport", transport)
        self.address = peer_address(transport)
        if self._listener.begins(self):
            self._transport.pause_reading()
            self._listener.shake_hands(self._shake(self._transport))
        else:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Keep what is already said."""
        self._early.append(data)

    def eof_received(self) -> bool:
        """Take note that no more will come."""
        self._at_end = True
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Take note that the client is gone."""
        del exc
        self._lost = True

    def abort(self) -> None:
        """Give up."""
        if self._transport is not None:
            self._transport.abort()

    async def _shake(self, transport: asyncio.Transport) -> None:
        try:
            if self._gone():
                return
            secure = await asyncio.get_running_loop().start_tls(
                transport, self, self._context, server_side=True, ssl_handshake_timeout=_HANDSHAKE_SECONDS
            )
        except OSError:  # of which what TLS raises is one
            return
        finally:
            self._listener.has_shaken(self)
        if secure is None:
            return
        connection = self._make()
        secure.set_protocol(connection)
        connection.connection_made(secure)
        for data in self._early:
            connection.data_received(data)
        if self._at_end:
            connection.eof_received()
        if self._gone():
            connection.connection_lost(None)

    def _gone(self) -> bool:
        return self._lost
