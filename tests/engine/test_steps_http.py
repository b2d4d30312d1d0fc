"""An http step makes one request to a real server, within its timeout, and keeps of the answer what it may."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec
import pytest

from engine.limits import MAX_OUTPUT_BYTES
from engine.steps import http
from engine.steps.result import Effect
from engine.workflows.definition import HttpTask

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]
ENV: dict[str, object] = {"inputs": {"on": True, "n": 5, "who": "camera one"}, "steps": {}, "self": {}}


@dataclass
class Server:
    """A server that keeps what it was asked and answers with given bytes."""

    port: int = 0
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def plain(body: bytes, status: str = "200 OK", **headers: str) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", "connection: close"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await writer.drain()

    return answer


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[Server]:
    server = Server()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            server.requests.append((head[0], headers, body))
            await answer(writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(handle, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()


async def do(task: HttpTask) -> Effect:
    return await http.prepare(task, ENV)()


def outputs(effect: Effect) -> dict[str, object]:
    assert effect.outputs is not None
    decoded: dict[str, object] = msgspec.json.decode(effect.outputs)
    return decoded


async def test_a_json_answer_is_an_output_of_its_own_types() -> None:
    async with serving(plain(b'{"a": [1, "x"]}', content_type="application/json")) as server:
        effect = await do(HttpTask(method="GET", url=f"{server.url}/x"))
    assert effect.error is None
    assert outputs(effect) == {"status": 200, "body": {"a": [1, "x"]}}
    assert server.requests[0][0] == "GET /x HTTP/1.1"


async def test_method_address_headers_and_body_are_filled_in() -> None:
    async with serving(plain(b"", "204 No Content")) as server:
        task = HttpTask(
            method="POST",
            url=server.url + "/devices/${{ inputs.n }}",
            headers={"X-On": "${{ inputs.on }}", "Content-Type": "application/merge-patch+json"},
            body={"on": "${{ inputs.on }}", "text": "hello ${{ inputs.who }}"},
        )
        effect = await do(task)
    assert effect.error is None
    line, headers, body = server.requests[0]
    assert line == "POST /devices/5 HTTP/1.1"
    assert headers["x-on"] == "true"
    assert headers["content-type"] == "application/merge-patch+json"
    assert json.loads(body) == {"on": True, "text": "hello camera one"}


async def test_a_text_body_is_sent_as_it_is() -> None:
    async with serving(plain(b"ok")) as server:
        await do(HttpTask(method="PUT", url=server.url, body="n=${{ inputs.n }}"))
    assert server.requests[0][2] == b"n=5"
    assert "content-type" not in server.requests[0][1]


@pytest.mark.parametrize(
    ("status", "expect", "succeeds"),
    [
        ("201 Created", (), True),
        ("404 Not Found", (), False),
        ("404 Not Found", (404,), True),
        ("200 OK", (204,), False),
    ],
)
async def test_the_status_decides(status: str, expect: tuple[int, ...], succeeds: bool) -> None:
    async with serving(plain(b"said", status)) as server:
        effect = await do(HttpTask(method="GET", url=server.url, expect=expect))
    assert (effect.error is None) == succeeds
    assert outputs(effect) == {"status": int(status[:3]), "body": "said"}


async def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    async with serving(plain(b"", "302 Found", location="http://127.0.0.1:1/elsewhere")) as server:
        effect = await do(HttpTask(method="GET", url=server.url, expect=(302,)))
    assert effect.error is None
    assert len(server.requests) == 1


async def test_a_long_answer_is_cut() -> None:
    async with serving(plain(b"x" * (3 * MAX_OUTPUT_BYTES), content_type="application/json")) as server:
        effect = await do(HttpTask(method="GET", url=server.url))
    assert outputs(effect)["body"] == "x" * MAX_OUTPUT_BYTES


async def test_a_compressed_answer_is_cut_by_its_real_size() -> None:
    packed = gzip.compress(b"y" * (20 * MAX_OUTPUT_BYTES))
    async with serving(plain(packed, content_encoding="gzip")) as server:
        effect = await do(HttpTask(method="GET", url=server.url))
    assert outputs(effect)["body"] == "y" * MAX_OUTPUT_BYTES


@pytest.mark.parametrize(
    "body", [b"{not json", b'{"a": NaN}', b'{"a": 1e400}', b"[" * 500 + b"]" * 500, b"[" * 30_000, b"1" * 5_000]
)
async def test_json_that_not_every_reader_could_hold_is_text(body: bytes) -> None:
    async with serving(plain(body, content_type="application/json")) as server:
        effect = await do(HttpTask(method="GET", url=server.url))
    assert effect.error is None
    assert outputs(effect)["body"] == body.decode()


async def test_a_server_that_is_not_there_fails_the_step() -> None:
    async with serving(plain(b"")) as server:
        url = server.url
    effect = await do(HttpTask(method="GET", url=url))
    assert effect.error is not None
    assert effect.error.message == "the request failed: ConnectError"
    assert effect.outputs is None


@pytest.mark.parametrize("url", ["not a url", "ftp://127.0.0.1/x", "http://127.0.0.1:99999/", "http://\0/"])
async def test_an_address_that_is_none_fails_the_step(url: str) -> None:
    effect = await do(HttpTask(method="GET", url=url))
    assert effect.error is not None
    assert effect.error.code == "task_failed"


async def test_a_server_that_never_answers_meets_the_timeout() -> None:
    async def silence(writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with serving(silence) as server:
        effect = await do(HttpTask(method="GET", url=server.url, timeout=0.2))
    assert effect.error is not None
    assert effect.error.message == "the request did not end within 0.2 s"


async def test_a_server_that_drips_meets_the_timeout_too() -> None:
    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)

    async with asyncio.timeout(10), serving(drip) as server:
        effect = await do(HttpTask(method="GET", url=server.url, timeout=0.3))
    assert effect.error is not None
    assert effect.error.message == "the request did not end within 0.3 s"


async def test_an_answer_that_is_not_http_fails_the_step() -> None:
    async def garbage(writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x00\x01 who knows\r\n\r\n")

    async with serving(garbage) as server:
        effect = await do(HttpTask(method="GET", url=server.url))
    assert effect.error is not None
    assert effect.error.message == "the request failed: RemoteProtocolError"
