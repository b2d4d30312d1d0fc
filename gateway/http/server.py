"""uvicorn as one task among the gateway's: it takes no signals, wakes once a second, and does not wait for ever.

uvicorn sets no limit to how long a request may take to arrive, nor to how long its answer may wait to be read, and
each holds one of the few connections: a few sockets that say or read nothing would keep everybody out.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import h11
import msgspec
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from gateway.http.frames import Socket
from gateway.http.front import HEADERS, MAX_HEAD_BYTES, TOO_LONG
from gateway.http.places import PLACE, Place, give_way
from gateway.http.problems import MEDIA_TYPE, document
from gateway.http.sockets import BACKLOG
from gateway.http.ws import MAX_FRAME_BYTES
from gateway.logs import get_logger

if TYPE_CHECKING:
    from uvicorn.server import Protocols

MAX_CONNECTIONS: Final = 1_000
# uvicorn counts requests, and connections as well, those too that have just given way: so many more than there may be
# connections, and it answers 503, to all.
HEADROOM: Final = 1_000
# So few that who came with others is heard before the next ones take the place.
ACCEPTED_A_TURN: Final = 128
assert 2 * ACCEPTED_A_TURN < HEADROOM
# For a request to be there, with its body: from the connection on, or from the end of the answer before it.
REQUEST_SECONDS: Final = 15.0
# For a peer to take something of what it is sent; and while the gateway stops and waits for it.
STALL_SECONDS: Final = 30.0
STOPPING_STALL_SECONDS: Final = 2.0
TICK_SECONDS: Final = 1.0
_PING_SECONDS: Final = 20.0


class _Config(uvicorn.Config):
    """What uvicorn asks for, and how many connections there may be."""

    most: int = MAX_CONNECTIONS


class _Connection(H11Protocol):
    """A connection that is closed when a request is not all there within `REQUEST_SECONDS`."""

    config: _Config
    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        # Each request's scope has it, and so has a WebSocket.
        self.app_state = {**self.app_state, PLACE: Place(transport, address, self.loop.time())}
        if len(self.connections) > self.config.most:
            self._make_room()
        self._watch()

    def _make_room(self) -> None:
        there = [place for place in _places(self.connections) if not place.left]
        if len(there) > self.config.most:
            for place in give_way(there):
                place.leave()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  uvicorn's words
        """Answer what is no request, or the beginning of one that is too long, with a problem document."""
        if len(self.conn.trailing_data[0]) > MAX_HEAD_BYTES:
            self._refuse(431, "headers_too_large", TOO_LONG)
        else:
            self._refuse(400, "bad_request", "this is not HTTP/1.1")

    def _refuse(self, status: int, error: str, detail: str) -> None:
        """Answer with a problem document what no route will see, and close the connection."""
        content = msgspec.json.encode(document(status, error, detail))
        told = [("content-type", MEDIA_TYPE), ("content-length", str(len(content))), ("connection", "close")]
        head = [*((name.encode(), value.encode()) for name, value in told), *HEADERS]
        reason = HTTPStatus(status).phrase.encode()
        for event in (
            h11.Response(status_code=status, headers=head, reason=reason),
            h11.Data(content),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Hand the connection to a `WSProtocol`, which reads the request once more, and more strictly.

        What it raises uvicorn does not expect: the half-made WebSocket would count as a connection for ever.
        """
        self._stop_watching()
        try:
            super().handle_websocket_upgrade(event)
        except Exception as fault:  # noqa: BLE001  whatever it is, nothing of it may stay
            if not isinstance(fault, UnicodeError):  # a header that is no text, or a Host that is no name
                get_logger("http").error("a WebSocket could not begin", exc_info=fault)
            for begun in [it for it in self.connections if it.transport is self.transport]:
                begun.connection_lost(fault)
            self.connections.add(self)
            self._refuse(400, "bad_request", "the headers of this request for a WebSocket cannot be read")

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Let the time run while something of a request is still to come, and not while it is being answered."""
        if self.transport.is_closing() or self.conn.their_state not in {h11.IDLE, h11.SEND_BODY}:
            self._stop_watching()
        elif self._patience is None and self.transport.get_protocol() is self:
            self._patience = self.loop.call_later(REQUEST_SECONDS, self.transport.close)

    def _stop_watching(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


def _places(connections: Iterable[Protocols]) -> list[Place]:
    return [it.app_state[PLACE] for it in connections]


class Server(uvicorn.Server):
    """A server whose end is asked for with `stop`. With `tls` it speaks HTTPS; it has `most` connections at once."""

    config: _Config

    def __init__(
        self,
        app: ASGIApp,
        *,
        grace_seconds: float,
        tls: ssl.SSLContext | None = None,
        most: int = MAX_CONNECTIONS,
    ) -> None:
        super().__init__(
            _Config(
                app,
                http=_Connection,
                ws=Socket,
                ws_max_size=MAX_FRAME_BYTES,
                ws_ping_interval=_PING_SECONDS,
                ws_ping_timeout=_PING_SECONDS,
                ws_per_message_deflate=False,  # what is compressed could grow without bound
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                limit_concurrency=most + HEADROOM,
                backlog=ACCEPTED_A_TURN,
                h11_max_incomplete_event_size=MAX_HEAD_BYTES,
                ssl_context_factory=None if tls is None else lambda *_: tls,
                timeout_graceful_shutdown=max(1, round(grace_seconds)),
            )
        )
        self.config.most = most
        self._ending = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the composition root."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve; as many may wait as before, which asyncio has as one number with those that it accepts a turn."""
        await super().startup(sockets)
        for it in sockets or ():
            it.listen(BACKLOG)

    async def main_loop(self) -> None:
        """Keep the date in the headers until `stop`; uvicorn's own loop wakes ten times as often."""
        while not await self.on_tick(0):
            self._leave_stalled(STALL_SECONDS)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), TICK_SECONDS)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish what is in flight; who reads nothing of it is not waited for."""
        async with asyncio.TaskGroup() as group:
            leaving = group.create_task(self._leave_stalled_soon(), name="http stalls")
            await super().shutdown(sockets)
            leaving.cancel()

    async def _leave_stalled_soon(self) -> None:
        while True:
            self._leave_stalled(STOPPING_STALL_SECONDS)
            await asyncio.sleep(TICK_SECONDS)

    def _leave_stalled(self, patience: float) -> None:
        now = asyncio.get_running_loop().time()
        for place in _places(self.server_state.connections):
            if place.is_stalled(now, patience):
                place.leave()

    def stop(self) -> None:
        """Take no more requests, finish those that are in flight, and return from `serve`."""
        self.should_exit = True
        self._ending.set()
