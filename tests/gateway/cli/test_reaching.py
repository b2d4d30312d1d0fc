"""Proves that a command that gets through to no gateway says so by a name, the address, what to do, and status 3."""

from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path
from typing import Any

import pytest

from gateway import certificates
from tests.support.command import Ran, typed

HEAD = b"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"


def answer(status: str, kind: str, body: bytes) -> bytes:
    return HEAD % (status.encode(), kind.encode(), len(body)) + body


async def asked(url: str, *options: str, json: bool = True) -> Ran:
    words = ["run", "list", "--server", url, *options, *(["--json"] if json else [])]
    ran = await typed(*words, status=3, WAYSIDE_TOKEN="wsu_any")
    assert ran.out == ""
    return ran


async def told(said: bytes, *options: str, scheme: str = "http", tls: ssl.SSLContext | None = None) -> dict[str, Any]:
    """Ask a server that says this; give what the command says of it."""

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(speak, "127.0.0.1", 0, ssl=tls)
    async with server:
        url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        document: dict[str, Any] = json.loads((await asked(url, *options)).err)
    assert document["url"] == url
    assert url in document["detail"]
    assert document["hint"]
    return document


async def test_an_address_that_nobody_listens_on_is_unreachable_and_its_password_is_not_told() -> None:
    url = "http://127.0.0.1:1"
    document = json.loads((await asked("http://name:secret@127.0.0.1:1")).err)
    assert (document["error"], document["url"]) == ("unreachable", url)
    assert "connection refused" in document["detail"]
    assert "wayside serve" in document["hint"]
    assert "--server" in document["hint"]
    in_words = (await asked("http://name:secret@127.0.0.1:1", json=False)).err
    assert in_words.startswith(f"error: the gateway at {url} did not answer: connection refused\n")
    assert "secret" not in in_words


async def test_an_address_that_is_none_is_wrong_usage() -> None:
    for url in ("http://127.0.0.1:99999999", "http://[::1"):
        assert "--server" in (await typed("run", "list", "--server", url, status=2, WAYSIDE_TOKEN="t")).err


@pytest.mark.parametrize(
    "said",
    [
        answer("200 OK", "text/html", b"<h1>It works</h1>"),
        answer("200 OK", "application/json", b"[1]"),
        answer("200 OK", "application/json", b'{"hello": "there"}'),
        answer("204 No Content", "text/plain", b""),
        answer("404 Not Found", "application/json", b'{"detail": "Not Found"}'),
        answer("502 Bad Gateway", "text/html", b"<h1>nginx</h1>"),
        answer("301 Moved", "text/html", b""),
    ],
)
async def test_an_answer_that_is_not_the_gateways_is_named_so(said: bytes) -> None:
    assert (await told(said))["error"] == "not_a_gateway"


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", b"SSH-2.0-OpenSSH_9.2\r\n"])
async def test_an_answer_that_does_not_come_may_have_been_done(said: bytes) -> None:
    document = await told(said)
    assert document["error"] == "no_answer"
    assert "may have been done" in document["hint"]


async def test_a_certificate_that_is_not_trusted_and_a_door_without_tls_are_failures_of_tls(tmp_path: Path) -> None:
    ours, other = tmp_path / "ours", tmp_path / "other"
    certificates.make_authority(ours)
    certificates.make_authority(other)
    pair = certificates.issue_server(ours, ["localhost"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)

    strange = await told(b"", "--ca", str(certificates.authority(other).certificate), scheme="https", tls=context)
    assert (strange["error"], "--ca" in strange["hint"]) == ("tls_failed", True)
    misnamed = await told(b"", "--ca", str(certificates.authority(ours).certificate), scheme="https", tls=context)
    assert (misnamed["error"], "127.0.0.1" in misnamed["detail"]) == ("tls_failed", True)


async def test_a_door_without_tls_is_a_failure_of_tls() -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer("400 Bad Request", "text/plain", b""))
        writer.close()

    async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
        ran = await asked(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    assert json.loads(ran.err)["error"] == "tls_failed"
    assert "http://" in json.loads(ran.err)["hint"]
