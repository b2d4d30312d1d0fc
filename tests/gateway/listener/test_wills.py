"""Proves which wills are published, when, and to whom: those on the device's own status, like what it says there."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.listener.codec import MQTT_5, Properties, Reason
from gateway.listener.codec import packets as p
from tests.gateway.listener.client import RawClient, signal
from tests.gateway.listener.conftest import Served

OFFLINE = ("presence", "door", "offline")


def will(topic: str = "status", delay: int | None = None) -> p.Will:
    return p.Will(topic=topic, payload=b"offline", qos=1, retain=True, properties=Properties(will_delay=delay))


async def watcher(served: Served) -> RawClient:
    client = await served.device("lamp", "watcher")
    await client.subscribe("d/door/status")
    return client


@pytest.mark.parametrize("topic", ["status", "d/door/status"])
async def test_a_will_on_one_s_own_status_is_published_as_presence(served: Served, version: int, topic: str) -> None:
    lamp = await watcher(served)
    client = await served.device(version=version, will=will(topic))
    client.abort()
    message = await lamp.expect(p.Publish)
    assert (message.topic, message.payload, message.retain) == ("d/door/status", b"offline", False)
    assert OFFLINE in served.application.events


async def test_a_client_that_says_goodbye_leaves_no_will(served: Served, version: int) -> None:
    lamp = await watcher(served)
    client = await served.device(version=version, will=will())
    client.send(p.Disconnect())
    await client.rest()
    await lamp.ping()
    assert OFFLINE not in served.application.events


async def test_mqtt_5_may_say_goodbye_and_have_its_will_published(served: Served) -> None:
    lamp = await watcher(served)
    client = await served.device(version=MQTT_5, will=will())
    client.send(p.Disconnect(Reason.DISCONNECT_WITH_WILL))
    await lamp.expect(p.Publish)


async def test_a_missed_keep_alive_publishes_the_will(served: Served, version: int) -> None:
    lamp = await watcher(served)
    await served.device(version=version, keep_alive=10, will=will())
    served.later(16)
    await lamp.expect(p.Publish)


async def test_a_delayed_will_is_published_when_its_time_has_come(served: Served) -> None:
    lamp = await watcher(served)
    client = await served.device(version=MQTT_5, clean_start=False, session_expiry=600, will=None)
    await client.close()
    await served.application.until(("disconnected", "door", "c1", "closed"))
    members: dict[str, Any] = {"properties": Properties(session_expiry=600), "clean_start": False}
    client = await served.device(version=MQTT_5, will=will(delay=30), **members)
    served.application.events.clear()
    client.abort()
    await served.application.until(("disconnected", "door", "c1", "closed"))
    served.later(29)
    await lamp.ping()
    served.later(2)
    await lamp.expect(p.Publish)


async def test_a_delayed_will_is_not_published_when_the_client_returns_in_time(served: Served) -> None:
    lamp = await watcher(served)
    members: dict[str, Any] = {"properties": Properties(session_expiry=600), "clean_start": False}
    client = await served.device(version=MQTT_5, will=will(delay=30), **members)
    client.abort()
    await served.application.until(("disconnected", "door", "c1", "closed"))
    await served.device(version=MQTT_5, **members)
    served.later(31)
    await lamp.ping()


async def test_a_delayed_will_is_published_at_once_when_its_session_ends(served: Served) -> None:
    lamp = await watcher(served)
    members: dict[str, Any] = {"properties": Properties(session_expiry=600), "clean_start": False}
    client = await served.device(version=MQTT_5, will=will(delay=30), **members)
    client.abort()
    await served.application.until(("disconnected", "door", "c1", "closed"))
    await served.device(version=MQTT_5, clean_start=True)
    await lamp.expect(p.Publish)


async def test_a_delay_ends_with_the_session(served: Served) -> None:
    lamp = await watcher(served)
    members: dict[str, Any] = {"properties": Properties(session_expiry=10), "clean_start": False}
    client = await served.device(version=MQTT_5, will=will(delay=3_000), **members)
    client.abort()
    await served.application.until(("disconnected", "door", "c1", "closed"))
    served.later(11)
    await lamp.expect(p.Publish)


async def test_a_revocation_takes_back_a_delayed_will(served: Served) -> None:
    lamp = await watcher(served)
    members: dict[str, Any] = {"properties": Properties(session_expiry=600), "clean_start": False}
    client = await served.device(version=MQTT_5, will=will(delay=30), **members)
    client.abort()
    await served.application.until(("disconnected", "door", "c1", "closed"))
    served.listener.close_device("door")
    served.later(31)
    await lamp.ping()
    assert served.listener.sessions() == 1


@pytest.mark.parametrize("topic", ["status", "d/door/status"])
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_what_a_device_publishes_on_its_status_goes_where_its_will_would(
    served: Served, version: int, topic: str, qos: int
) -> None:
    lamp = await watcher(served)
    client = await served.device(version=version)
    await client.subscribe("replies/#")
    client.send(signal(b"online", qos, topic=topic, retain=True))
    message = await lamp.expect(p.Publish)
    assert (message.topic, message.payload, message.retain) == ("d/door/status", b"online", False)
    if qos:
        await client.expect(p.PubAck if qos == 1 else p.PubRec)
    await client.ping()  # and no reply
    await lamp.ping()  # once
