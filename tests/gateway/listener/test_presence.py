"""Proves that retained presence is kept, for whoever subscribes later and may hear it, and within bounds."""

from __future__ import annotations

import pytest

from gateway.listener.codec import MQTT_5, Properties
from gateway.listener.codec import packets as p
from gateway.listener.limits import ListenerLimits
from gateway.listener.presences import Presences
from tests.gateway.listener.client import RawClient, signal
from tests.gateway.listener.conftest import Served


async def says(client: RawClient, payload: bytes, *, retain: bool = True) -> None:
    client.send(signal(payload, 1, topic="status", retain=retain))
    await client.expect(p.PubAck)


def heard(packet: p.Publish) -> tuple[str, bytes, bool]:
    return packet.topic, packet.payload, packet.retain


@pytest.mark.parametrize("topic_filter", ["d/door/status", "d/+/status"])
async def test_the_last_retained_presence_is_sent_behind_the_suback(
    served: Served, version: int, topic_filter: str
) -> None:
    door = await served.device(version=version)
    await says(door, b"on")
    await says(door, b"online")
    await says(door, b"by the way", retain=False)
    lamp = await served.device("lamp", version=version)
    assert await lamp.subscribe(topic_filter) == (1,)
    assert heard(await lamp.expect(p.Publish)) == ("d/door/status", b"online", True)
    await says(door, b"busy")
    assert heard(await lamp.expect(p.Publish)) == ("d/door/status", b"busy", False)
    await lamp.ping()


async def test_an_empty_one_a_long_one_and_a_revocation_end_what_is_kept(served: Served) -> None:
    door, lamp = await served.device(), await served.device("lamp")
    for ends in (b"", b"x" * 2_000):
        await says(door, b"online")
        await says(door, ends)
        await lamp.subscribe("d/door/status")
        await lamp.ping()
        lamp.send(p.Unsubscribe(3, ("d/door/status",)))
        await lamp.expect(p.UnsubAck)
    await says(door, b"online")
    served.listener.close_device("door")
    await lamp.subscribe("d/door/status")
    await lamp.ping()


async def test_a_retained_will_is_kept_until_it_expires(served: Served) -> None:
    will = p.Will(topic="status", payload=b"offline", qos=0, retain=True, properties=Properties(message_expiry=60))
    door = await served.device(version=MQTT_5, will=will)
    door.abort()
    await served.application.until(("presence", "door", "offline"))
    lamp = await served.device("lamp")
    await lamp.subscribe("d/+/status")
    assert heard(await lamp.expect(p.Publish)) == ("d/door/status", b"offline", True)
    served.later(61)
    await lamp.subscribe("d/+/status")
    await lamp.ping()


async def test_mqtt_5_says_what_it_wants_of_retained_messages(served: Served) -> None:
    door = await served.device()
    await says(door, b"online")
    lamp = await served.device("lamp", version=MQTT_5)
    for handling, comes in ((2, False), (1, False), (0, True)):
        # With 1 it has that subscription already.
        await lamp.subscribe(p.Filter("d/+/status", 1, retain_handling=handling))
        if comes:
            assert (await lamp.expect(p.Publish)).retain
        await lamp.ping()
    await lamp.subscribe(p.Filter("d/+/status", 1, retain_as_published=True, retain_handling=2))
    await says(door, b"busy")
    assert heard(await lamp.expect(p.Publish)) == ("d/door/status", b"busy", True)


async def test_one_subscribe_sends_what_is_kept_once(served: Served) -> None:
    door = await served.device()
    await says(door, b"online")
    lamp = await served.device("lamp")
    lamp.send(p.Subscribe(9, tuple(p.Filter(name, 1) for name in ("d/door/status", "d/+/status") * 100)))
    await lamp.expect(p.SubAck)
    await lamp.expect(p.Publish)
    await lamp.ping()


def test_what_is_kept_and_what_one_subscribe_is_sent_are_bounded() -> None:
    kept = Presences(ListenerLimits(presences=3, presence_bytes=10, presence_burst_bytes=46))
    for name in ("a", "b", "c", "d"):
        kept.take(name, b"0123456789", None)
    assert len(kept) == 3
    assert [one.topic for _, one in kept.matching(["d/+/status"], 0.0)] == ["d/b/status", "d/c/status"]
