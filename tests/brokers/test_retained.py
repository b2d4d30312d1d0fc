"""Proves that a retained message never settles a wait: refused over MQTT 5, a replay dropped and cleared over 3.1.1."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.support.behind import Behind, Ear, behind
from tests.support.brokers import Broker, Kind
from tests.support.plain_mqtt import PUBLISH, packet, text


def publish_retained(ear: Ear, topic: str, payload: bytes) -> None:
    ear.client.writer.write(packet(PUBLISH | 3, text(topic) + struct.pack("!H", 60_000) + payload))


async def no_longer_retained(bridged: Behind, topic: str) -> None:
    """Prove that the broker keeps nothing under a topic: of what a new subscriber gets, the fresh message is first."""
    async with bridged.listener(topic) as ear:
        await ear.tell(topic, b"")
        assert await ear.next() == (topic, None)


async def test_over_mqtt_5_a_retained_signal_is_refused_and_cleared(tmp_path: Path, mosquitto: Broker) -> None:
    async with behind(tmp_path, mosquitto) as bridged:
        await bridged.add("camera", "signal:porch/verdict", "run:porch")
        async with bridged.device("camera") as camera:
            publish_retained(camera, "d/camera/signals/porch/verdict/s1", b'{"n":1}')
            assert (await camera.next())[1]["error"] == "retained_not_allowed"
            publish_retained(camera, "d/camera/runs/porch/r1", b"{}")
            assert (await camera.next())[1]["error"] == "retained_not_allowed"
            _, reply = await camera.ask("d/camera/signals/porch/verdict/s2", {"n": 1})
            assert reply["ok"]
        await no_longer_retained(bridged, "d/camera/signals/porch/verdict/s1")
        async with bridged.api() as api:
            assert (await api.get("/runs")).json()["runs"] == []


@pytest.mark.parametrize("kind", ["mosquitto", "nats"])
async def test_over_mqtt_3_a_replay_is_dropped_and_cleared_and_a_cleared_topic_starts_nothing(
    kind: Kind, tmp_path: Path
) -> None:
    broker = Broker(kind, tmp_path / "broker")
    url = f"{broker.url}?protocol=3.1.1"
    async with behind(tmp_path, broker, start=False, WAYSIDE_BRIDGE__URL=url) as bridged:
        async with bridged.device("camera") as camera:
            publish_retained(camera, "d/camera/signals/porch/verdict/s1", b'{"n":1}')
            publish_retained(camera, "d/camera/runs/porch/r1", b"{}")
            await camera.tell("flush", b"")
        await bridged.start()
        await bridged.add("camera", "signal:porch/verdict", "run:porch")
        async with bridged.device("camera") as camera:
            _, reply = await camera.ask("d/camera/signals/porch/verdict/s2", {"n": 1})
            assert (reply["id"], reply["ok"]) == ("s2", True)
            # What clears a retained run trigger has an empty payload, which means no inputs at the other doors.
            await camera.tell("d/camera/runs/porch/r1", b"")
            _, reply = await camera.ask("d/camera/get/waits/porch", b"")
            assert reply["error"] == "not_found"
        await no_longer_retained(bridged, "d/camera/signals/porch/verdict/s1")
        await no_longer_retained(bridged, "d/camera/runs/porch/r1")
        async with bridged.api() as api:
            assert (await api.get("/runs")).json()["runs"] == []
        assert len(await bridged.audited(reason="retained_not_allowed")) >= 1
