"""Proves what becomes of a device's presence behind a broker: its word and its will count as seen, and are left alone.

The gateway's own presence is in `test_bridge.py`.
"""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

from tests.support.behind import SECONDS, Behind, Ear, behind, ear
from tests.support.brokers import Broker
from tests.support.plain_mqtt import PUBLISH, packet, text

STATUS = "d/camera/status"


async def seen_after(bridged: Behind, before: str | None) -> str:
    """Wait until the device was seen later than `before`, and give that time."""
    async with bridged.api() as api, asyncio.timeout(SECONDS):
        while True:
            answer = await api.get("/devices/camera")
            seen: str | None = answer.raise_for_status().json()["last_seen"]
            if seen is not None and (before is None or seen > before):
                return seen
            await asyncio.sleep(0.05)


def say(device: Ear, word: bytes) -> None:
    """Publish the device's status retained, as devices do."""
    device.client.writer.write(packet(PUBLISH | 3, text(STATUS) + struct.pack("!H", 60_000) + word))


async def test_a_devices_word_and_its_will_count_as_seen_and_stay_retained_and_unanswered(
    tmp_path: Path, mosquitto: Broker
) -> None:
    async with behind(tmp_path, mosquitto) as bridged:
        await bridged.add("camera", "signal:porch/verdict")
        async with bridged.listener(STATUS) as friend:
            listen = "d/camera/replies/#"
            async with ear(mosquitto.port, "camera", listen, will=(STATUS, b'"offline"')) as camera:
                say(camera, b'"online"')
                assert await friend.next() == (STATUS, "online")
                online = await seen_after(bridged, None)
                # The first that it hears is about its signal: presence is not answered.
                _, reply = await camera.ask("d/camera/signals/porch/verdict/s1", {"n": 1})
                assert (reply["id"], reply["ok"]) == ("s1", True)
                signalled = await seen_after(bridged, online)
                camera.client.writer.transport.abort()
                assert await friend.next() == (STATUS, "offline")
                await seen_after(bridged, signalled)
        # The gateway clears nothing there: who comes later is told, too.
        async with ear(mosquitto.port, "late", STATUS) as late:
            assert await late.next() == (STATUS, "offline")


async def test_a_replayed_status_is_no_sign_of_life_and_a_strangers_is_nobodys(
    tmp_path: Path, mosquitto: Broker
) -> None:
    old_words = f"{mosquitto.url}?protocol=3.1.1"
    async with behind(tmp_path, mosquitto, WAYSIDE_BRIDGE__URL=old_words) as bridged:
        await bridged.add("camera")
        async with bridged.device("camera") as camera:
            say(camera, b'"online"')
            seen = await seen_after(bridged, None)
        # At each connection the bridge subscribes again, and is sent again what is retained.
        await mosquitto.end()
        await mosquitto.start()
        await bridged.ready()
        async with bridged.device("ghost") as ghost, bridged.api() as api:
            await ghost.tell("d/ghost/status", "online")
            # Behind both, so that they have been decided.
            _, reply = await ghost.ask("d/ghost/signals/porch/verdict/s1", {"n": 1})
            assert reply["error"] == "unauthorized"
            assert (await api.get("/devices/camera")).json()["last_seen"] == seen
            assert (await api.get("/devices/ghost")).status_code == 404
