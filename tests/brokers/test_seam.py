"""Proves what `gateway.bridge.connection` relies on of aiomqtt and paho, which neither of them promises."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from typing import Self

import pytest

from gateway.bridge.connection import BrokerFault, Connection, Subscription, connect
from gateway.bridge.handshake import Options
from gateway.bridge.heard import Heard
from gateway.bridge.url import parse_url
from tests.support.behind import ear
from tests.support.brokers import Broker
from tests.support.plain_mqtt import CONNECT, PUBACK, PUBLISH, SUBSCRIBE, packet, read_packet, text

SECONDS = 10.0


class Stub:
    """A server that speaks just enough of MQTT 3.1.1 to see what a client sends."""

    def __init__(self) -> None:
        self.seen: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()
        self.writer: asyncio.StreamWriter | None = None
        self.server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self.server is not None
        self.server.close()
        if self.writer is not None:
            self.writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        try:
            while True:
                kind, body = await read_packet(reader)
                if kind == CONNECT:
                    writer.write(packet(0x20, b"\x01\x00"))
                elif kind == SUBSCRIBE:
                    writer.write(packet(0x90, body[:2] + b"\x80\x01"))
                elif kind == 0xC0:
                    writer.write(packet(0xD0, b""))
                else:
                    self.seen.put_nowait((kind, body))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass

    def publish(self, mid: int, payload: bytes, *, dup: bool = False) -> None:
        assert self.writer is not None
        self.writer.write(packet(PUBLISH | 2 | (8 if dup else 0), text("t") + struct.pack("!H", mid) + payload))

    async def next(self) -> tuple[int, bytes]:
        return await asyncio.wait_for(self.seen.get(), SECONDS)


def options(port: int, version: int = 3) -> Options:
    return Options(url=parse_url(f"mqtt://127.0.0.1:{port}"), client_id="bridge", version=version, in_flight=10)


async def test_a_message_is_acknowledged_when_it_is_said_and_not_before() -> None:
    heard: asyncio.Queue[Heard] = asyncio.Queue()
    async with Stub() as stub, connect(options(stub.port), heard.put_nowait) as connection:
        assert connection.session_present
        stub.publish(7, b"one", dup=True)
        stub.publish(8, b"two")
        first, second = [await asyncio.wait_for(heard.get(), SECONDS) for _ in range(2)]
        assert (first.mid, first.dup, second.mid, second.payload) == (7, True, 8, b"two")
        connection.send("answer", b"now")
        kind, body = await stub.next()
        # The answer is the first thing that the server sees: there was no acknowledgement before it.
        assert (kind, body) == (0x30, text("answer") + b"now")
        connection.acknowledge([7, 8])
        assert [await stub.next(), await stub.next()] == [(PUBACK, b"\0\x07"), (PUBACK, b"\0\x08")]


async def test_a_paused_connection_reads_nothing_and_loses_nothing() -> None:
    heard: list[int] = []
    came = asyncio.Event()

    def hear(message: Heard) -> None:
        heard.append(message.mid)
        if message.mid == 2:
            connection.pause()
        if len(heard) in {2, 2000}:
            came.set()

    connection: Connection
    async with Stub() as stub, connect(options(stub.port), hear) as connection:
        for mid in range(1, 2001):
            stub.publish(mid, b"x" * 100)
        await asyncio.wait_for(came.wait(), SECONDS)
        for _ in range(20):
            await asyncio.sleep(0)
        assert heard == [1, 2]
        came.clear()
        connection.resume()
        await asyncio.wait_for(came.wait(), SECONDS)
        assert heard == list(range(1, 2001))


async def test_the_end_of_the_stream_is_noticed_and_what_came_before_it_is_heard() -> None:
    heard: list[int] = []
    async with Stub() as stub, connect(options(stub.port), lambda message: heard.append(message.mid)) as connection:
        for mid in range(1, 51):
            stub.publish(mid, b"x")
        assert stub.writer is not None
        stub.writer.close()
        await asyncio.wait_for(connection.lost(), SECONDS)
        assert heard == list(range(1, 51))


async def test_a_filter_that_the_broker_refuses_is_named() -> None:
    async with Stub() as stub, connect(options(stub.port), lambda _: None) as connection:
        assert await connection.subscribe([Subscription("a/#"), Subscription("b/#")]) == ["a/#"]


async def test_a_server_that_hangs_up_on_connect_is_told_at_once_as_one_that_may_speak_another_version() -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        with pytest.raises(BrokerFault) as caught:
            async with connect(options(server.sockets[0].getsockname()[1], 5), lambda _: None):
                pass
    assert caught.value.wrong_protocol


async def test_over_mqtt_5_no_packet_goes_out_that_is_larger_than_the_broker_said_it_takes(tmp_path: Path) -> None:
    settings = "max_packet_size 100\nallow_anonymous true"
    async with Broker("mosquitto", tmp_path / "broker", settings=settings) as broker:
        async with connect(options(broker.port, 5), lambda _: None) as connection:
            # 100 bytes: the fixed header's 2, 3 of the topic, 2 of the packet id, 1 of the properties, and the payload.
            assert connection.takes("t", b"x" * 92)
            assert not connection.takes("t", b"x" * 93)
            connection.send("t", b"x" * 200)
            await connection.publish("t", b"x" * 92)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(connection.lost(), 0.2)
        async with connect(options(broker.port, 3), lambda _: None) as connection:
            assert connection.takes("t", b"x" * 200)


async def test_over_mqtt_5_the_properties_of_a_message_come_through_and_go_out(mosquitto: Broker) -> None:
    heard: asyncio.Queue[Heard] = asyncio.Queue()
    async with mosquitto, connect(options(mosquitto.port, 5), heard.put_nowait) as connection:
        assert await connection.subscribe([Subscription("t/#", as_published=True)]) == []
        async with ear(mosquitto.port, "other", "t/#") as other:
            connection.send("t/1", b"{}", correlation_data=b"\x01\x02")
            assert (await other.next())[0] == "t/1"
        message = await asyncio.wait_for(heard.get(), SECONDS)
        assert (message.topic, message.correlation_data, message.mid, message.retain) == ("t/1", b"\x01\x02", 0, False)
        await connection.publish("t/2", b"{}", retain=True)
        message = await asyncio.wait_for(heard.get(), SECONDS)
        assert (message.topic, message.retain) == ("t/2", True)
        assert message.mid
