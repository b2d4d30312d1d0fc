"""Proves what a CONNECT is told: a denial in the version's words, the terms of MQTT 5, the listener's limits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gateway.listener.codec import MQTT_3_1_1, MQTT_5, Properties, Reason, encode
from gateway.listener.codec import packets as p
from gateway.listener.port import Admitted, DenialReason, Denied
from tests.gateway.listener.client import connect
from tests.gateway.listener.conftest import Served

Serve = Callable[..., Awaitable[Served]]


@pytest.mark.parametrize(
    ("denial", "five", "three"),
    [
        ("bad_credentials", 0x86, 4),
        ("disabled", 0x87, 5),
        ("banned", 0x8A, 5),
        ("rate", 0x9F, 3),
        ("busy", 0x89, 3),
        ("unavailable", 0x88, 3),
    ],
)
async def test_a_denial_is_told_in_the_version_s_own_words(
    served: Served, version: int, denial: DenialReason, five: int, three: int
) -> None:
    served.application.denial = Denied(denial)
    reader, writer = await asyncio.open_connection(served.host, served.port)
    writer.write(encode(connect(version=version), version))
    expected = bytes((0x20, 3, 0, five, 0)) if version == MQTT_5 else bytes((0x20, 2, 0, three))
    async with asyncio.timeout(10):
        assert await reader.read() == expected
    writer.close()
    await writer.wait_closed()
    assert served.application.events == []


async def test_an_application_that_fails_is_unavailable(
    served: Served, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(**_: Any) -> Admitted:
        raise RuntimeError("token-of-door")

    served.application.connect = fail  # type: ignore[method-assign]
    client = await served.client(version)
    assert (await client.connect()).reason == Reason.SERVER_UNAVAILABLE
    assert "token-of" not in caplog.text


async def test_an_application_that_never_answers_is_unavailable(serve: Serve, version: int) -> None:
    served = await serve(authenticate_seconds=0.01)
    served.application.door = asyncio.Event()
    client = await served.client(version)
    assert (await client.connect()).reason == Reason.SERVER_UNAVAILABLE


async def test_mqtt_5_is_told_what_this_server_takes(served: Served) -> None:
    client = await served.client(MQTT_5)
    wanted = Properties(request_response=1)
    answer = await client.connect(keep_alive=0, properties=wanted)
    assert answer.properties == Properties(
        receive_maximum=32,
        topic_alias_maximum=16,
        maximum_packet_size=65_536,
        shared_available=0,
        server_keep_alive=3_600,
        response_information="d/door/replies/",
    )
    served.later(5_399)
    await client.ping()


async def test_a_3_1_1_client_without_keep_alive_stays(served: Served) -> None:
    client = await served.device(keep_alive=0)
    served.later(1_000_000)
    await client.ping()


async def test_enhanced_authentication_is_refused(served: Served) -> None:
    client = await served.client(MQTT_5)
    answer = await client.connect(properties=Properties(authentication_method="SCRAM"))
    assert answer.reason == Reason.BAD_AUTHENTICATION_METHOD


async def test_a_malformed_connect_of_mqtt_5_is_told_so(served: Served) -> None:
    client = await served.client(MQTT_5)
    client.send_bytes(b"\x10\x0d\x00\x04MQTT\x05\x03\x00\x00\x00\x00\x00")
    assert (await client.expect(p.ConnAck)).reason == Reason.MALFORMED_PACKET
    assert await client.rest() == []


async def test_a_malformed_connect_of_3_1_1_is_closed(served: Served) -> None:
    client = await served.client(MQTT_3_1_1)
    client.send_bytes(b"\x10\x0c\x00\x04MQTT\x04\x03\x00\x00\x00\x00")
    assert await client.rest() == []


async def test_over_the_connection_limit_a_client_is_told_quickly(serve: Serve, version: int) -> None:
    served = await serve(max_connections=3, refusals_at_once=2)
    for number in range(3):
        await served.device(client_id=f"c{number}", version=version)
    late = await served.client(version)
    answer = await late.connect(client_id="late")
    assert answer.reason == (Reason.SERVER_BUSY if version == MQTT_5 else Reason.SERVER_UNAVAILABLE)
    assert await late.rest() == []
    assert ("refused", "connections", "") in served.application.events
    for _ in range(2):
        await served.client(version)  # these are still read, to be told why
    beyond = await served.client(version)
    assert await beyond.rest() == []


async def test_over_the_connects_per_second_a_client_is_told_and_later_let_in(serve: Serve, version: int) -> None:
    served = await serve(connects_per_second=1, connects_burst=2)
    for number in range(2):
        await served.device(client_id=f"c{number}", version=version)
    late = await served.client(version)
    answer = await late.connect(client_id="late")
    assert answer.reason == (Reason.CONNECTION_RATE_EXCEEDED if version == MQTT_5 else Reason.SERVER_UNAVAILABLE)
    assert ("refused", "connects_per_second", "") in served.application.events
    served.later(1)
    await served.device(client_id="late", version=version)


async def test_the_address_and_the_client_id_are_told_to_the_application(served: Served, version: int) -> None:
    asked: list[dict[str, Any]] = []
    original = served.application.connect

    async def spy(**members: Any) -> Admitted | Denied:
        asked.append(members)
        return await original(**members)

    served.application.connect = spy  # type: ignore[method-assign]
    await served.device(client_id="the id", version=version)
    assert asked == [
        {
            "username": "door",
            "password": b"token-of-door",
            "certificate": None,
            "client_id": "the id",
            "address": "127.0.0.1",
        }
    ]


async def test_a_client_that_is_gone_before_it_is_answered_leaves_nothing(served: Served, version: int) -> None:
    door = served.application.door = asyncio.Event()
    client = await served.client(version)
    client.send(connect(version=version))
    await client.drain()
    other = await served.client(version)
    other.send(connect("bell", version=version))
    client.abort()
    door.set()
    await other.expect(p.ConnAck)
    await served.application.until(("disconnected", "door", "c1", "closed"))
    assert [one.device for one in served.listener.connections()] == ["bell"]


async def test_a_device_that_is_closed_as_its_connection_is_announced_is_closed(served: Served, version: int) -> None:
    served.application.connected = lambda who, *_: served.listener.close_device(who.device)  # type: ignore[assignment, method-assign]
    client = await served.client(version)
    client.send(connect(version=version))
    await client.expect(p.ConnAck)
    told = [p.Disconnect(Reason.NOT_AUTHORIZED)] if version == MQTT_5 else []
    assert await client.rest() == told
    assert served.listener.connections() == []
    assert served.listener.sessions() == 0


async def test_connections_are_listed_for_people(served: Served, version: int) -> None:
    client = await served.device("lamp", "c1", version, clean_start=False, session_expiry=60)
    await client.subscribe("lamp/+/set")
    await served.client(version)
    (info,) = served.listener.connections()
    assert (info.device, info.client_id, info.address, info.transport) == ("lamp", "c1", "127.0.0.1", "tcp")
    assert (info.version, info.persistent, info.subscriptions) == (version, True, ("lamp/+/set",))


async def test_stopping_finishes_what_is_in_flight_and_tells_mqtt_5(served: Served, version: int) -> None:
    gate = served.application.gate = asyncio.Event()
    client = await served.device(version=version, will=p.Will(topic="status", payload=b"offline"))
    client.send(p.Publish(topic="signals/a/b", payload=b"1", qos=1, packet_id=1))
    await served.application.until_published(1)
    stopping = asyncio.create_task(served.listener.stop(10))
    await asyncio.sleep(0)  # the listener stops reading
    client.send(p.Publish(topic="signals/a/b", payload=b"2", qos=1, packet_id=2))
    await client.drain()
    gate.set()
    told = [p.Disconnect(Reason.SERVER_SHUTTING_DOWN)] if version == MQTT_5 else []
    assert await client.rest() == [p.PubAck(1), *told]
    await stopping
    assert len(served.application.published) == 1
    assert served.application.events[-1] == ("disconnected", "door", "c1", "stopping")
    with pytest.raises(OSError):
        await served.client(version)


async def test_stopping_gives_up_after_the_grace(served: Served) -> None:
    served.application.gate = asyncio.Event()
    client = await served.device()
    client.send(p.Publish(topic="signals/a/b", payload=b"1", qos=1, packet_id=1))
    await served.application.until_published(1)
    await served.listener.stop(0.01)
    assert await client.rest() == []
    assert served.listener.open_connections() == 0
