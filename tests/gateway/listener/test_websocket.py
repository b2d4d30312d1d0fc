"""Proves that MQTT travels over WebSocket on `/mqtt`, however the stream is cut into messages, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from gateway.listener.codec import MQTT_5, Packet, Reason, StreamDecoder, encode
from gateway.listener.codec import packets as p
from gateway.listener.websocket import WebSocketConnection
from tests.gateway.listener import client as raw
from tests.gateway.listener.conftest import Served

MQTT = [Subprotocol("mqtt")]


class WebClient:
    """Packets over a WebSocket."""

    def __init__(self, socket: ClientConnection, version: int) -> None:
        self.socket = socket
        self.version = version
        self._decoder = StreamDecoder(1_000_000, version)

    async def send(self, *packets: Packet) -> None:
        await self.socket.send(b"".join(encode(packet, self.version) for packet in packets))

    async def next(self) -> Packet | None:
        async with asyncio.timeout(10):
            while (packet := self._decoder.next()) is None:
                try:
                    data = await self.socket.recv()
                except ConnectionClosed:
                    return None
                assert isinstance(data, bytes)
                self._decoder.feed(data)
            return packet


@pytest.fixture
async def address(served: Served) -> str:
    host, port = await served.listener.start_websocket("127.0.0.1", 0)
    return f"ws://{host}:{port}/mqtt"


@pytest.fixture
async def client(address: str, version: int) -> AsyncIterator[WebClient]:
    async with connect(address, subprotocols=MQTT) as socket:
        yield WebClient(socket, version)


async def test_a_device_signals_over_websocket(served: Served, client: WebClient) -> None:
    await client.send(raw.connect(version=client.version), p.Subscribe(1, (p.Filter("replies/#", 0),)))
    assert isinstance(await client.next(), p.ConnAck)
    assert isinstance(await client.next(), p.SubAck)
    assert client.socket.subprotocol == "mqtt"
    await client.send(raw.signal())
    assert isinstance(await client.next(), p.Publish)
    assert await client.next() == p.PubAck(1)
    (info,) = served.listener.connections()
    assert info.transport == "ws"


async def test_a_stream_may_be_cut_into_messages_anywhere(served: Served, client: WebClient) -> None:
    stream = encode(raw.connect(version=client.version), client.version) + encode(raw.signal(qos=1), client.version)
    for at in range(len(stream)):
        await client.socket.send(stream[at : at + 1])
    assert isinstance(await client.next(), p.ConnAck)
    assert await client.next() == p.PubAck(1)


async def test_a_fragmented_message_is_one(served: Served, client: WebClient) -> None:
    stream = encode(raw.connect(version=client.version), client.version)
    await client.socket.send([stream[:5], stream[5:]])
    assert isinstance(await client.next(), p.ConnAck)


async def test_a_large_packet_travels_in_many_frames(served: Served, client: WebClient) -> None:
    await client.send(raw.connect(version=client.version))
    await client.next()
    payload = bytes(60_000)
    stream = encode(raw.signal(payload), client.version)
    await client.socket.send([stream[at : at + 1_000] for at in range(0, len(stream), 1_000)])
    assert (await client.next()) is not None
    assert served.application.published[0][1].payload == payload


async def test_disconnect_closes_the_websocket(served: Served, client: WebClient) -> None:
    await client.send(raw.connect(version=client.version), raw.signal(qos=0), p.Disconnect())
    assert isinstance(await client.next(), p.ConnAck)
    assert await client.next() is None
    assert len(served.application.published) == 1
    assert client.socket.close_code == 1000


async def test_a_websocket_closed_after_a_publish_has_still_published(served: Served, client: WebClient) -> None:
    await client.send(raw.connect(version=client.version), raw.signal(qos=0))
    await client.socket.close()
    await served.application.until_published(1)
    await served.application.until(("disconnected", "door", "c1", "closed"))


async def test_text_is_not_mqtt(served: Served, client: WebClient) -> None:
    await client.socket.send("CONNECT")
    assert await client.next() is None
    assert client.socket.close_code == 1003


async def test_a_revoked_device_s_websocket_is_closed(served: Served, client: WebClient) -> None:
    await client.send(raw.connect(version=client.version))
    await client.next()
    served.listener.close_device("door")
    if client.version == MQTT_5:
        assert await client.next() == p.Disconnect(Reason.NOT_AUTHORIZED)
    assert await client.next() is None


@pytest.mark.parametrize(
    ("path", "protocols", "status"),
    [("/", MQTT, 404), ("/mqtt/x", MQTT, 404), ("/mqtt", None, 400), ("/mqtt", [Subprotocol("chat")], 400)],
)
async def test_another_path_or_subprotocol_is_refused(
    served: Served, address: str, path: str, protocols: list[Subprotocol] | None, status: int
) -> None:
    with pytest.raises(InvalidStatus) as refused:
        await connect(address.removesuffix("/mqtt") + path, subprotocols=protocols)
    assert refused.value.response.status_code == status


async def test_compression_is_not_taken_up(address: str) -> None:
    async with connect(address, subprotocols=MQTT, compression="deflate") as socket:
        assert socket.protocol.extensions == []


@pytest.mark.parametrize(
    "said", [b"GET / HTTP/1.1\r\n\r\n", b"\x10\x10\x00\x04MQTT", b"GET /mqtt HTTP/1.1\r\nX: " + b"x" * 70_000]
)
async def test_what_is_not_a_websocket_is_closed(served: Served, address: str, said: bytes) -> None:
    host, port = address.removeprefix("ws://").removesuffix("/mqtt").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(said)
    served.later(6)
    async with asyncio.timeout(10):
        try:
            answer = await reader.read()
        except ConnectionError:
            answer = b""
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400")
    writer.close()


async def test_a_handshake_that_never_ends_is_closed_after_five_seconds(served: Served, address: str) -> None:
    host, port = address.removeprefix("ws://").removesuffix("/mqtt").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /mqtt HTTP/1.1\r\n")
    await served.until_open(1)
    served.later(6)
    async with asyncio.timeout(10):
        assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()


async def test_pings_are_answered(client: WebClient) -> None:
    async with asyncio.timeout(10):
        await (await client.socket.ping(b"are you there"))


async def test_a_flood_of_tiny_frames_leaves_the_loop_to_others(served: Served, client: WebClient) -> None:
    await client.send(raw.connect(version=client.version))
    await client.next()
    empty = b"\x82\x80\x00\x00\x00\x00"  # a binary message of no bytes, masked
    client.socket.transport.write(empty * 20_000)
    other = await served.device("bell", "other", client.version)
    await other.ping()
    await client.send(p.PingReq())
    assert await client.next() == p.PingResp()


class Failing(asyncio.Transport):
    """A transport that counts writes. Once the client is `gone`, `connection_lost` comes in the next turn."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.gone = False

    def write(self, data: object) -> None:
        self.writes += 1

    def is_closing(self) -> bool:
        return self.gone

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


async def test_nothing_is_written_to_a_client_that_is_gone(served: Served) -> None:
    """Else asyncio would write a line to the log for each attempt, as many as the client has asked for."""
    connection, transport = WebSocketConnection(served.listener, "ws"), Failing()
    pings = b"\x89\x80\x00\x00\x00\x00" * 100
    connection.connection_made(transport)
    connection.data_received(_UPGRADE.encode())
    connection.data_received(pings)
    assert transport.writes == 101
    transport.gone = True
    connection.data_received(pings)
    connection.connection_lost(None)
    assert transport.writes == 101


async def test_a_close_is_answered(address: str, version: int) -> None:
    async with connect(address, subprotocols=MQTT) as socket:
        client = WebClient(socket, version)
        await client.send(raw.connect(version=version))
        assert isinstance(await client.next(), p.ConnAck)
        await socket.close()
        assert socket.close_code == 1000
        assert socket.protocol.close_rcvd is not None


_UPGRADE = """GET /mqtt HTTP/1.1\r
Host: gateway\r
Upgrade: websocket\r
Connection: Upgrade\r
Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r
Sec-WebSocket-Version: 13\r
Sec-WebSocket-Protocol: mqtt\r
\r
"""
