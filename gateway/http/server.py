"""uvicorn as one task among the gateway's: it takes no signals, and wakes once a second."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Iterator
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from gateway.http.ws import MAX_FRAME_BYTES

MAX_CONNECTIONS: Final = 1_000
MAX_HEAD_BYTES: Final = 16_384
_TICK_SECONDS: Final = 1.0
_PING_SECONDS: Final = 20.0


class Server(uvicorn.Server):
    """A server whose end is asked for with `stop`. With `tls` it speaks HTTPS."""

    def __init__(self, app: ASGIApp, *, grace_seconds: float, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="h11",
                ws="wsproto",
                ws_max_size=MAX_FRAME_BYTES,
                ws_ping_interval=_PING_SECONDS,
                ws_ping_timeout=_PING_SECONDS,
                ws_per_message_deflate=False,  # what is compressed could grow without bound
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                limit_concurrency=MAX_CONNECTIONS,
                h11_max_incomplete_event_size=MAX_HEAD_BYTES,
                ssl_context_factory=None if tls is None else lambda *_: tls,
                timeout_graceful_shutdown=max(1, round(grace_seconds)),
            )
        )
        self._ending = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the composition root."""
        yield

    async def main_loop(self) -> None:
        """Keep the date in the headers until `stop`; uvicorn's own loop wakes ten times as often."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), _TICK_SECONDS)

    def stop(self) -> None:
        """Take no more requests, finish those that are in flight, and return from `serve`."""
        self.should_exit = True
        self._ending.set()
