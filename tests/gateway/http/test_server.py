"""Proves, on a real socket: a request that does not arrive in full loses its connection, an answered one does not."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from gateway.http import server
from gateway.http.server import Server
from tests.gateway.http.conftest import Door

PATIENCE_SECONDS = 0.2
ENOUGH_SECONDS = 20.0
HOST = b"Host: localhost\r\n"


@pytest.fixture
async def port(door: Door, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    """The port of a server that waits for a fraction of a second, where the real one waits for many."""
    monkeypatch.setattr(server, "REQUEST_SECONDS", PATIENCE_SECONDS)
    serving = Server(door.app, grace_seconds=1)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        task = asyncio.create_task(serving.serve([listening]))
        yield listening.getsockname()[1]
        serving.stop()
        await task


async def answer_to(port: int, *pieces: bytes) -> bytes:
    """Send what is given and nothing more, and read until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.writelines(pieces)
    async with asyncio.timeout(ENOUGH_SECONDS):
        answer = await reader.read()
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return answer


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"GET /healthz HTTP/1.1\r\n" + HOST,
        b"POST /api/v1/signals/front-door/verdict HTTP/1.1\r\n" + HOST + b"Content-Length: 20\r\n\r\n{",
    ],
    ids=["nothing", "half a head", "half a body"],
)
async def test_a_request_that_does_not_come_to_its_end_loses_its_connection(port: int, begun: bytes) -> None:
    assert b" 200 " not in await answer_to(port, begun)


async def test_a_second_request_is_not_waited_for_any_longer_than_the_first(port: int) -> None:
    whole = b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n"
    answer = await answer_to(port, whole, b"GET /healthz HTTP/1.1\r\n")
    assert answer.count(b"HTTP/1.1 200 OK") == 1


async def test_an_answer_that_takes_longer_than_that_is_still_given(
    port: int, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slowly() -> list[str]:
        await asyncio.sleep(4 * PATIENCE_SECONDS)
        return []

    monkeypatch.setattr(door.app, "_not_ready", slowly)
    answer = await answer_to(port, b"GET /readyz HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK")


async def test_a_body_whose_length_is_said_in_two_ways_ends_the_connection_before_what_follows_is_read(
    port: int,
) -> None:
    smuggling = (
        b"POST /healthz HTTP/1.1\r\n" + HOST + b"Content-Length: 60\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    )
    answer = await answer_to(port, smuggling, b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("name", [b"Authorization", b"Idempotency-Key", b"Origin"])
async def test_a_header_that_decides_something_occurs_once(port: int, name: bytes) -> None:
    twice = name + b": http://localhost\r\n" + name + b": http://localhost\r\n"
    answer = await answer_to(port, b"GET /healthz HTTP/1.1\r\n" + HOST + twice + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\n" + HOST + b"X-Long: " + b"x" * 16_000 + b"\r\n\r\n", 200),
        (b"GET /healthz HTTP/1.1\r\n" + HOST + b"X-Long: " + b"x" * 70_000 + b"\r\n\r\n", 431),
        (b"GET /healthz HTTP/1.1\r\n" + HOST + b"X-Long: " + b"x" * 70_000, 431),
        (b"GET /healthz?" + b"x" * 17_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 431),
        (b"GET /api/v1/ws HTTP/1.1\r\n" + HOST + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: "
         b"13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nX-Long: " + b"x" * 70_000 + b"\r\n\r\n", 403),
        (b"GET /healthz\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    ],
    ids=["in bounds", "a long header", "its beginning", "a long line", "a WebSocket", "no version", "TLS"],
)  # fmt: skip
async def test_what_comes_before_a_body_has_a_bound_and_the_answer_is_a_problem(
    port: int, request_: bytes, status: int
) -> None:
    answer = await answer_to(port, request_)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    if status in {400, 431}:
        assert b"application/problem+json" in answer
        assert b"nosniff" in answer
        assert b'"status":%d' % status in answer
