"""Proves that devices connect over TLS, that a client certificate is a credential, and that only a verified one is."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable

import pytest
import trustme

from gateway.listener.certificates import certificate_of
from gateway.listener.codec import MQTT_3_1_1, MQTT_5, Reason, encode
from gateway.listener.codec import packets as p
from gateway.listener.port import Certificate
from tests.gateway.listener.client import connect, signal
from tests.gateway.listener.conftest import Served

Serve = Callable[..., Awaitable[Served]]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def server_side(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


def client_side(authority: trustme.CA, certificate: trustme.LeafCert | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)
    if certificate is not None:
        certificate.configure_cert(context)
    return context


@pytest.fixture
async def served(serve: Serve, server_side: ssl.SSLContext) -> Served:
    return await serve(tls=server_side)


async def test_a_password_works_over_tls(served: Served, authority: trustme.CA, version: int) -> None:
    client = await served.client(version, client_side(authority))
    assert (await client.connect()).reason == 0
    await client.subscribe("replies/#")
    client.send(signal())
    assert isinstance(await client.next(), p.Publish)
    assert isinstance(await client.next(), p.PubAck)
    (info,) = served.listener.connections()
    assert info.transport == "tls"
    client.send(p.Disconnect())
    assert await client.rest() == []


@pytest.mark.parametrize("kind", ["common name", "DNS name"])
async def test_a_client_certificate_is_a_credential(
    served: Served, authority: trustme.CA, version: int, kind: str
) -> None:
    if kind == "common name":
        certificate = authority.issue_cert("x.example", common_name="door")
    else:
        certificate = authority.issue_cert("door")
    client = await served.client(version, client_side(authority, certificate))
    answer = await client.connect(username=None, password=None)
    assert answer.reason == 0
    (info,) = served.listener.connections()
    assert info.device == "door"


async def test_without_a_certificate_and_a_password_nobody_comes_in(served: Served, authority: trustme.CA) -> None:
    client = await served.client(MQTT_5, client_side(authority))
    answer = await client.connect(username=None, password=None)
    assert answer.reason == Reason.BAD_USER_NAME_OR_PASSWORD


async def test_a_certificate_of_another_authority_is_refused_by_tls(served: Served, authority: trustme.CA) -> None:
    stranger = trustme.CA().issue_cert("door")
    try:
        client = await served.client(4, client_side(authority, stranger))
        # In TLS 1.3 the refusal comes after the handshake, in place of an answer.
        assert await client.next() is None
    except OSError as refused:
        assert isinstance(refused, ssl.SSLError | ConnectionError)  # noqa: PT017 - both ways are a refusal
    assert served.application.events == []


async def test_publish_and_disconnect_in_one_record_are_delivered(served: Served, authority: trustme.CA) -> None:
    client = await served.client(4, client_side(authority))
    client.send(connect(), signal(b"1", 0), signal(b"2", 0), p.Disconnect())
    await client.drain()
    await served.application.until_published(2)
    assert [type(one) for one in await client.rest()] == [p.ConnAck]


async def test_plain_bytes_on_the_tls_port_end_the_connection(served: Served) -> None:
    reader, writer = await asyncio.open_connection(served.host, served.port)
    writer.write(b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04abcd")
    async with asyncio.timeout(10):
        answer = await reader.read()
    assert not answer.startswith(b"\x20")
    writer.close()
    await writer.wait_closed()


def test_a_certificate_has_its_common_name_and_its_dns_names_and_since_when_it_is_good() -> None:
    shown = {
        "subject": ((("countryName", "DE"),), (("commonName", "door"),)),
        "subjectAltName": (("DNS", "door"), ("DNS", "door.lan"), ("IP Address", "10.0.0.1")),
        "notBefore": "Jan  1 00:00:10 1970 GMT",
    }
    assert certificate_of(shown) == Certificate(("door", "door.lan"), 10)
    assert certificate_of(shown | {"notBefore": "some day"}) == Certificate(("door", "door.lan"), 0)
    assert certificate_of({"notBefore": shown["notBefore"]}) is None
    assert certificate_of({}) is None
    assert certificate_of(None) is None


async def test_a_handshake_that_is_not_finished_counts_as_a_connection(
    serve: Serve, server_side: ssl.SSLContext
) -> None:
    served = await serve(tls=server_side, max_connections=2, refusals_at_once=1)
    silent = [await served.client() for _ in range(3)]
    await served.until_open(3)
    late = await served.client()
    assert await late.rest() == []  # closed at once
    assert served.listener.open_connections() == 3
    silent[0].send_bytes(b"GET / HTTP/1.1\r\n\r\n")
    assert await silent[0].next() is None
    silent[1].abort()
    await served.until_open(1)  # what failed and what has left counts no more


async def test_stopping_does_not_wait_for_handshakes(served: Served) -> None:
    silent = await served.client()
    await served.until_open(1)
    async with asyncio.timeout(5):
        await served.listener.stop(grace_seconds=10)
    assert await silent.rest() == []


async def test_connect_in_the_handshake_s_last_segment_is_read(served: Served, authority: trustme.CA) -> None:
    """TLS 1.3: a client may say more right behind its Finished, and even leave."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = client_side(authority).wrap_bio(incoming, outgoing, server_hostname="localhost")
    reader, writer = await asyncio.open_connection(served.host, served.port)
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    writer.write(outgoing.read())
    async with asyncio.timeout(10):
        while not outgoing.pending:
            incoming.write(await reader.read(65_536))
            with contextlib.suppress(ssl.SSLWantReadError):
                tls.do_handshake()
    assert tls.version() == "TLSv1.3"
    tls.write(encode(connect(), MQTT_3_1_1) + encode(signal(b"1", 0), MQTT_3_1_1))
    with pytest.raises(ssl.SSLWantReadError):
        tls.unwrap()
    writer.write(outgoing.read())
    async with asyncio.timeout(10):
        await served.application.until_published(1)
    writer.close()
    await writer.wait_closed()


async def test_a_subscriber_that_never_reads_is_bounded_over_tls_too(served: Served, authority: trustme.CA) -> None:
    slow = await served.client(MQTT_5, client_side(authority))
    assert (await slow.connect("lamp")).reason == 0
    await slow.subscribe(p.Filter("lamp/+/set", 0))
    slow.pause()
    while not any(one.stalled and one.dropped for one in served.listener.connections()):
        await served.listener.deliver("lamp/1/set", bytes(16_384), qos=0)
        await asyncio.sleep(0)
    served.later(31)
    await served.application.until(("disconnected", "lamp", "c1", "slow"))
