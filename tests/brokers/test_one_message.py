"""Proves that no message of one device, and no record behind it, keeps the bridge from the messages of the others."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engine.names import Key
from tests.support.behind import Behind, behind
from tests.support.brokers import Broker
from tests.support.plain_mqtt import CONNACK, CONNECT, PUBACK, PUBLISH, packet, read_packet, text

SIGNAL = "d/camera/signals/porch/verdict"
USER, RESPONSE_TOPIC = b"\x26", b"\x08"
SECONDS = 10.0


class Five:
    """A device that speaks MQTT 5 and says what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def publish(self, topic: str, payload: bytes, properties: bytes = b"", *, retain: bool = False) -> None:
        size = len(properties)
        length = bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14])
        body = text(topic) + struct.pack("!H", 1) + length + properties + payload
        self._writer.write(packet(PUBLISH | 2 | retain, body))
        kind, answer = await asyncio.wait_for(read_packet(self._reader), SECONDS)
        assert (kind, answer[:2]) == (PUBACK, b"\0\1")


@contextlib.asynccontextmanager
async def five(port: int) -> AsyncIterator[Five]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(packet(CONNECT, text("MQTT") + b"\x05\x02\0\x3c\0" + text("five")))
        kind, answer = await read_packet(reader)
        assert (kind, answer[1]) == (CONNACK, 0)
        yield Five(reader, writer)
    finally:
        writer.close()


async def the_others_get_through(bridged: Behind, times: int = 1) -> None:
    async with bridged.device("other") as other:
        for number in range(times):
            _, reply = await other.ask(f"d/other/signals/porch/other/{number}", {"n": 1})
            assert reply["error"] == "not_found"


@pytest.fixture
async def bridged(tmp_path: Path, mosquitto: Broker) -> AsyncIterator[Behind]:
    async with behind(tmp_path, mosquitto, WAYSIDE_BRIDGE__IN_FLIGHT="10") as found:
        await found.add("camera", "signal:porch/verdict", "read:porch")
        await found.add("other", "signal:porch/other")
        yield found
        assert found.gateway.log is not None
        log = found.gateway.log.read_text()
        assert log.count("bridge connected") == 1, "it lost its connection"
        assert "could not be handled" not in log


async def test_a_property_that_paho_does_not_take_is_taken(bridged: Behind) -> None:
    async with bridged.device("camera") as camera, five(bridged.broker.port) as device:
        await device.publish(f"{SIGNAL}/s1", b'{"n":1}', USER + text("note") + text("\ufeff"))
        _, reply = await camera.next()
        assert (reply["id"], reply["ok"]) == ("s1", True)
        await the_others_get_through(bridged)


async def test_a_topic_for_the_answer_that_is_too_long_or_no_topic_is_not_used(bridged: Behind) -> None:
    async with bridged.device("camera") as camera, five(bridged.broker.port) as device:
        for number, wanted in enumerate(("replies/" + "a" * 65_520, "replies/\ufeff", "replies/own")):
            await device.publish(f"{SIGNAL}/s{number}", b"{}", RESPONSE_TOPIC + text(wanted))
        topics = [(await camera.next())[0] for _ in range(3)]
        usual = "d/camera/replies/signals/porch/verdict/rejected"
        assert topics == [usual, usual, "d/camera/replies/own"]
        await the_others_get_through(bridged)


async def test_what_clears_a_retained_question_is_no_question(bridged: Behind) -> None:
    topic = "d/camera/get/waits/porch"
    async with bridged.listener("d/camera/get/#") as ear, bridged.device("camera") as camera:
        async with five(bridged.broker.port) as device:
            await device.publish(topic, b"{}", retain=True)
        assert await ear.next() == (topic, {})
        # The bridge's own, which clears it; then only what is asked here.
        assert await ear.next() == (topic, None)
        assert (await camera.next())[1]["ok"]
        _, reply = await camera.ask(f"{SIGNAL}/s1", {"n": 1})
        assert reply["id"] == "s1"
        assert ear.heard.empty()


async def test_a_record_that_cannot_be_read_is_told_and_keeps_nobody_else_waiting(bridged: Behind) -> None:
    with contextlib.closing(sqlite3.connect(bridged.gateway.data / "wayside.db")) as file, file:
        damaged = (Key("porch", "verdict").claim(1), b"{}")
        file.execute("INSERT INTO records (key, value, stored_at) SELECT ?, ?, max(stored_at) FROM records", damaged)
    async with bridged.device("camera") as camera:
        for number in range(15):
            topic, reply = await camera.ask(f"{SIGNAL}/s{number}", {"n": 1})
            assert topic.endswith("/rejected")
            assert (reply["code"], reply["error"], reply["id"]) == (503, "store_unavailable", f"s{number}")
        await the_others_get_through(bridged, 15)
        refused = await bridged.audited(action="signal.refused", reason="record_unreadable")
        assert refused[0]["key"] == "verdict"


async def test_a_message_grows_old_while_the_store_is_away(tmp_path: Path, mosquitto: Broker) -> None:
    async with behind(tmp_path, mosquitto, WAYSIDE_BRIDGE__MAX_BACKLOG="1") as bridged:
        await bridged.add("camera", "signal:porch/verdict")
        async with bridged.device("camera") as camera:
            with contextlib.closing(sqlite3.connect(bridged.gateway.data / "wayside.db", isolation_level=None)) as file:
                file.execute("BEGIN IMMEDIATE")
                await camera.tell(f"{SIGNAL}/s1", {"n": 1})
                # Until the first attempt has been given up, which takes the five seconds that a lock is waited for.
                await bridged.logged("the store takes no message")
                file.execute("ROLLBACK")
            assert (await camera.next())[1]["error"] == "stale"
            _, reply = await camera.ask(f"{SIGNAL}/s2", {"n": 1})
            assert reply["ok"]
