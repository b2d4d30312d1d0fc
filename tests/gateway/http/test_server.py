"""Proves, on a real socket: a request that does not arrive in full loses its connection, an answered one does not."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import httpx
import pytest
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol
from wsproto.events import Request

from devices import operations
from gateway.http import server
from gateway.http.admission import MAX_OF_ONE
from gateway.http.server import Server
from tests.gateway.http.conftest import Door

PATIENCE_SECONDS = 0.2
ENOUGH_SECONDS = 20.0
HOST = b"Host: localhost\r\n"
UPGRADE = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


@pytest.fixture
async def serving(door: Door, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Server, int]]:
    """A server that waits for a fraction of a second, where the real one waits for many, and its port."""
    monkeypatch.setattr(server, "REQUEST_SECONDS", PATIENCE_SECONDS)
    server_ = Server(door.app, grace_seconds=1)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        task = asyncio.create_task(server_.serve([listening]))
        yield server_, listening.getsockname()[1]
        server_.stop()
        await task


@pytest.fixture
def port(serving: tuple[Server, int]) -> int:
    return serving[1]


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
        (b"GET /api/v1/ws HTTP/1.1\r\n" + HOST + UPGRADE + b"X-Long: " + b"x" * 70_000 + b"\r\n\r\n", 403),
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


@pytest.mark.parametrize(
    "headers",
    [
        b"Host: \xff\r\n",
        b"Host: xn--9\r\n",
        b"Host: xn--\xc3\xa9\r\n",
        HOST + b"Sec-WebSocket-Protocol: \xff\r\n",
        HOST + b"Sec-WebSocket-Extensions: \xff\r\n",
    ],
    ids=["no text", "no punycode", "neither", "a subprotocol", "an extension"],
)
async def test_a_websocket_whose_headers_cannot_be_read_is_refused_and_leaves_nothing_behind(
    serving: tuple[Server, int], headers: bytes
) -> None:
    answer = await answer_to(serving[1], b"GET /api/v1/ws HTTP/1.1\r\n" + UPGRADE + headers + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in answer
    assert not serving[0].server_state.connections


async def test_so_is_one_that_fails_otherwise_when_its_conversation_has_begun(
    serving: tuple[Server, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    began = WSProtocol.handle_connect

    def failing(self: WSProtocol, event: Request) -> None:
        began(self, event)
        raise RuntimeError

    monkeypatch.setattr(WSProtocol, "handle_connect", failing)
    answer = await answer_to(serving[1], b"GET /api/v1/ws HTTP/1.1\r\n" + UPGRADE + HOST + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    async with asyncio.timeout(ENOUGH_SECONDS):
        await asyncio.gather(*serving[0].server_state.tasks)
    assert not serving[0].server_state.connections


def events_in(text: str) -> list[tuple[str, str]]:
    """Read server-sent events: the id and the kind of each."""
    blocks = [dict(line.split(": ", 1) for line in it.splitlines() if ": " in line) for it in text.split("\n\n")]
    return [(it.get("id", ""), it["event"]) for it in blocks if "event" in it]


async def test_a_run_is_followed_as_server_sent_events_until_it_ends(door: Door, port: int) -> None:
    run = await door.start()
    token = (door.services.settings.data / "admin.token").read_text().strip()
    headers = {"authorization": f"Bearer {token}", "accept": "text/event-stream"}
    url = f"http://127.0.0.1:{port}/api/v1/runs/{run}/events"
    async with httpx.AsyncClient(headers=headers, trust_env=False, timeout=20) as client:
        async with client.stream("GET", url) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            text = ""
            async for piece in answer.aiter_text():
                text += piece
                if "step_suspended" in text or "opening" in text:
                    break
        known = len(events_in(text))
        async with client.stream("GET", url, headers={"last-event-id": str(known)}) as answer:
            await door.services.engine.cancel(run, by="user:test")
            rest = "".join([piece async for piece in answer.aiter_text()])
        whole = (await client.get(url, headers={"accept": "application/json"})).json()["events"]
    assert events_in(rest)[-1] == ("", "end")
    followed = events_in(text) + events_in(rest)[:-1]
    assert followed == [(str(event["seq"]), event["event"]) for event in whole]


async def test_a_stream_ends_with_the_callers_credential_and_there_are_so_many_of_one(door: Door, port: int) -> None:
    run = await door.start()
    issued = await operations.add_operator(door.services.registry, "ann", rights=["read"], by="user:test")
    headers = {"authorization": f"Bearer {issued.token}", "accept": "text/event-stream"}
    url = f"http://127.0.0.1:{port}/api/v1/runs/{run}/events"
    async with (
        httpx.AsyncClient(headers=headers, trust_env=False, timeout=20) as client,
        contextlib.AsyncExitStack() as stack,
    ):
        streams = [await stack.enter_async_context(client.stream("GET", url)) for _ in range(MAX_OF_ONE)]
        full = await client.get(url)
        await operations.revoke_operator(door.services.registry, "ann", by="user:test")
        for stream in streams:
            assert not [
                kind for _, kind in events_in("".join([it async for it in stream.aiter_text()])) if kind == "end"
            ]
    assert (full.status_code, full.json()["error"]) == (503, "too_many_connections")
