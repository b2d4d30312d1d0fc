"""uvicorn as one task among the gateway's: it takes no signals, and wakes once a second."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from engine.errors import BadInput
from gateway.config import Address

if TYPE_CHECKING:
    from starlette.types import ASGIApp

MAX_CONNECTIONS: Final = 1_000
MAX_HEAD_BYTES: Final = 16_384
_TICK_SECONDS: Final = 1.0


class Server(uvicorn.Server):
    """A server whose end is asked for with `stop`."""

    def __init__(self, app: ASGIApp, *, grace_seconds: float) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                limit_concurrency=MAX_CONNECTIONS,
                h11_max_incomplete_event_size=MAX_HEAD_BYTES,
                timeout_graceful_shutdown=max(1, round(grace_seconds)),
            )
        )
        self._ending = asyncio.Event()
        self.ready = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the composition root."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    async def main_loop(self) -> None:
        """Keep the date in the headers until `stop`; uvicorn's own loop wakes ten times as often."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), _TICK_SECONDS)

    def stop(self) -> None:
        """Take no more requests, finish those that are in flight, and return from `serve`."""
        self.should_exit = True
        self._ending.set()


def bind(address: Address) -> socket.socket:
    """Bind the HTTP door's socket; raises `BadInput` that says who may have the port."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setblocking(False)  # noqa: FBT003
        bound.bind(where)
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
