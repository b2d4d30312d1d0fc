"""A listener on a loopback port before the fake application, and clients that are closed when the test ends."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from gateway.listener.codec import MQTT_3_1_1
from gateway.listener.limits import ListenerLimits
from gateway.listener.server import Listener
from tests.gateway.listener.client import RawClient
from tests.gateway.listener.fake import FakeApplication, ManualSource


class Served:
    """A running listener and all that belongs to it."""

    def __init__(self, limits: ListenerLimits) -> None:
        self.application = FakeApplication()
        self.source = ManualSource()
        self.listener = Listener(self.application, limits, self.source)
        self.host, self.port = "127.0.0.1", 0
        self._clients: list[RawClient] = []

    async def client(self, version: int = MQTT_3_1_1, tls: ssl.SSLContext | None = None) -> RawClient:
        """Open a connection that has said nothing."""
        client = await RawClient.open(self.host, self.port, version=version, tls=tls)
        self._clients.append(client)
        return client

    async def device(
        self, name: str = "door", client_id: str = "c1", version: int = MQTT_3_1_1, **members: Any
    ) -> RawClient:
        """Open a connection with an accepted CONNECT."""
        client = await self.client(version)
        answer = await client.connect(name, client_id, **members)
        assert answer.reason == 0
        return client

    def later(self, seconds: float) -> None:
        """Let time pass, and the listener look at it."""
        self.source.now += seconds
        self.listener.tick()

    async def until_open(self, count: int) -> None:
        """Wait until the listener has accepted so many connections."""
        async with asyncio.timeout(10):
            while self.listener.open_connections() != count:
                await asyncio.sleep(0)

    async def stop(self) -> None:
        for client in self._clients:
            await client.close()
        await self.listener.stop(0)


@pytest.fixture
async def serve() -> AsyncIterator[Callable[..., Awaitable[Served]]]:
    """Start a listener with the limits given."""
    running: list[Served] = []

    async def start(*, tls: ssl.SSLContext | None = None, **limits: Any) -> Served:
        served = Served(ListenerLimits(**limits))
        running.append(served)
        served.host, served.port = await served.listener.start_tcp("127.0.0.1", 0, tls=tls)
        return served

    yield start
    for served in running:
        await served.stop()


@pytest.fixture
async def served(serve: Callable[..., Awaitable[Served]]) -> Served:
    """A listener with the default limits."""
    return await serve()


@pytest.fixture(params=[4, 5], ids=["3.1.1", "5"])
def version(request: pytest.FixtureRequest) -> int:
    """Both versions of MQTT."""
    return int(request.param)
