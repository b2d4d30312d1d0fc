"""Proves that nobody without a credential keeps others out of the HTTP door: not by silence, nor by reading nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import trustme
from websockets.asyncio.client import connect

from gateway.http import server
from gateway.http.admission import MAX_UNKNOWN, Admission, Full
from gateway.http.places import Place, give_way
from gateway.http.server import Server
from tests.gateway.http.conftest import Door

MOST = 6
ENOUGH_SECONDS = 20.0
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
LARGE = b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Serving:
    """A server with few places, and sockets to it that say and read only what they are told to."""

    def __init__(
        self,
        door: Door,
        listening: socket.socket,
        stack: contextlib.ExitStack,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.server = Server(door.app, grace_seconds=20, tls=tls, most=MOST)
        self.port: int = listening.getsockname()[1]
        self.task = asyncio.create_task(self.server.serve([listening]))
        self._stack = stack

    async def dial(self, *said: bytes) -> socket.socket:
        """Connect, with room for next to nothing, and wait until the server has taken note."""
        peer = self._stack.enter_context(socket.socket())
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
        peer.setblocking(False)
        before = self.count()
        await asyncio.get_running_loop().sock_connect(peer, ("127.0.0.1", self.port))
        await until(lambda: self.count() != before or before == MOST)
        for it in said:
            await asyncio.get_running_loop().sock_sendall(peer, it)
        return peer

    async def health(self) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(HEALTH)
        async with asyncio.timeout(ENOUGH_SECONDS):
            answer = await reader.read()
        writer.close()
        return answer

    def count(self) -> int:
        return len(self.server.server_state.connections)

    async def stop(self) -> None:
        self.server.stop()
        async with asyncio.timeout(ENOUGH_SECONDS):
            await self.task


@pytest.fixture
async def serving(door: Door, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serving]:
    monkeypatch.setattr(server, "TICK_SECONDS", 0.02)
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        found = Serving(door, listening, stack)
        yield found
        await found.stop()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(ENOUGH_SECONDS):
        while not holds():
            await asyncio.sleep(0)


async def is_over(peer: socket.socket) -> bool:
    """Tell whether the server ends a connection, within the time that is enough."""
    try:
        async with asyncio.timeout(ENOUGH_SECONDS):
            return await asyncio.get_running_loop().sock_recv(peer, 1) == b""
    except OSError:
        return True


async def test_silent_connections_give_way_to_whoever_comes_the_oldest_first(serving: Serving) -> None:
    silent = [await serving.dial() for _ in range(MOST)]
    for _ in range(3):
        assert b" 200 " in await serving.health()
    assert await is_over(silent[0])
    assert serving.count() <= MOST


async def test_who_has_shown_a_credential_keeps_the_connection(door: Door, serving: Serving) -> None:
    token = (door.services.settings.data / "admin.token").read_text().strip()
    bearer = {"Authorization": f"Bearer {token}"}
    url = f"ws://127.0.0.1:{serving.port}/api/v1/ws"
    async with (
        connect(url, additional_headers=bearer, proxy=None) as by_header,
        connect(url, proxy=None) as by_message,
    ):
        await by_message.send(json.dumps({"type": "auth", "token": token}))
        reader, writer = await asyncio.open_connection("127.0.0.1", serving.port)
        request = b"GET /api/v1/doors HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + token.encode() + b"\r\n"
        writer.write(request + b"\r\n")
        await reader.readuntil(b"\r\n\r\n")
        for peer in (by_header, by_message):
            assert "ready" in str(await peer.recv())
        for _ in range(3 * MOST):
            await serving.dial()
        writer.write(request + b"Connection: close\r\n\r\n")
        async with asyncio.timeout(ENOUGH_SECONDS):
            assert (await reader.read()).count(b" 200 OK") == 1
        for peer in (by_header, by_message):
            await peer.send('{"type":"ping","ref":1}')
            assert "pong" in str(await peer.recv())
        writer.close()


async def test_an_answer_that_nobody_reads_is_waited_for_so_long(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "STALL_SECONDS", 0.2)
    await serving.dial(*[LARGE] * 40)
    await until(lambda: serving.count() == 0)
    await until(lambda: not serving.server.server_state.tasks)


async def test_over_tls_it_is_not_waited_for_either(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    theirs, ours = ssl.create_default_context(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.configure_trust(theirs)
    authority.issue_cert("127.0.0.1").configure_cert(ours)
    monkeypatch.setattr(server, "STALL_SECONDS", 0.2)
    monkeypatch.setattr(server, "TICK_SECONDS", 0.02)
    with contextlib.ExitStack() as stack:
        serving = Serving(door, stack.enter_context(socket.create_server(("127.0.0.1", 0))), stack, ours)
        peer = stack.enter_context(socket.socket())
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
        peer.connect(("127.0.0.1", serving.port))
        # A limit of one byte: what has come is not read, and then nothing more.
        _, writer = await asyncio.open_connection(sock=peer, ssl=theirs, server_hostname="127.0.0.1", limit=1)
        writer.write(LARGE * 40)
        await until(lambda: bool(serving.server.server_state.tasks))
        await until(lambda: not (serving.count() or serving.server.server_state.tasks))
        writer.transport.abort()
        await serving.stop()


async def test_a_stop_does_not_wait_for_who_reads_nothing(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "STOPPING_STALL_SECONDS", 0.2)
    await serving.dial(*[LARGE] * 40)
    await until(lambda: any(serving.server.server_state.tasks))
    await serving.stop()
    assert serving.count() == 0


class Transport(asyncio.Transport):
    """What a place sees of a transport."""

    def __init__(self, unsent: int | None = 0, *, closing: bool = False) -> None:
        super().__init__()
        self.unsent, self.closing = unsent, closing

    def is_closing(self) -> bool:
        return self.closing

    def get_write_buffer_size(self) -> int:
        if self.unsent is None:
            raise AttributeError  # as asyncio's TLS transport does that was closed twice
        return self.unsent

    def abort(self) -> None:
        self.closing = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        del name
        return default


def stalled(transport: Transport, *unsent: int) -> list[bool]:
    """Look each ten seconds, with a patience of thirty."""
    place = Place(transport, "192.0.2.1", 0.0)
    found = []
    for number, it in enumerate(unsent):
        transport.unsent = it
        found.append(place.is_stalled(10.0 * number, 30.0))
    return found


def test_who_takes_something_in_time_is_waited_for() -> None:
    assert not any(stalled(Transport(), 90, 80, 70, 60, 50, 500, 400, 400, 400, 300, 0, 0, 0, 0, 0))


def test_who_takes_nothing_is_not_though_there_comes_more() -> None:
    assert stalled(Transport(), 0, 0, 90, 90, 95, 100, 100) == [False, False, False, False, False, True, True]


def test_a_connection_that_does_not_come_to_its_end_is_not_waited_for_either() -> None:
    assert stalled(Transport(closing=True), 0, 0, 0, 0) == [False, False, False, True]
    forgotten = Place(Transport(None, closing=True), "192.0.2.1", 0.0)
    assert [forgotten.is_stalled(at, 30.0) for at in (0.0, 29.0, 30.0)] == [False, False, True]


def test_the_oldest_stranger_of_the_address_with_the_most_gives_way() -> None:
    places = [Place(Transport(), address, now) for now, address in enumerate("abbbaccb")]
    places[1].known = True
    assert give_way(places) == [places[2]]
    for it in places:
        it.known = True
    assert give_way(places) == [places[1]]


def test_of_many_strangers_several_give_way_at_once() -> None:
    places = [Place(Transport(), "192.0.2.1", float(now)) for now in range(100)]
    assert give_way(places) == places[:5]


def test_one_address_does_not_have_all_sockets_that_have_not_said_whose_they_are(door: Door) -> None:
    admission = Admission(door.services.registry, door.services.authority)
    with contextlib.ExitStack() as stack:
        for _ in range(MAX_UNKNOWN):
            stack.enter_context(admission.unknown("192.0.2.1"))
        with pytest.raises(Full):
            stack.enter_context(admission.unknown("192.0.2.1"))
        stack.enter_context(admission.unknown("192.0.2.2"))
    with admission.unknown("192.0.2.1"):
        pass
