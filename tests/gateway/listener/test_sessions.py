"""Proves what a session keeps, for whom and for how long: take-over, resend with DUP, bounded queues, the truth."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gateway.listener.codec import MQTT_3_1_1, MQTT_5, Properties, Reason
from gateway.listener.codec import packets as p
from tests.gateway.listener.client import connect, signal
from tests.gateway.listener.conftest import Served

Serve = Callable[..., Awaitable[Served]]
KEPT: dict[str, Any] = {"clean_start": False, "session_expiry": 600}


async def test_the_newest_connection_takes_a_session_over(served: Served, version: int) -> None:
    first = await served.device("lamp", "c1", version, **KEPT)
    await first.subscribe("lamp/+/set")
    second = await served.client(version)
    assert (await second.connect("lamp", "c1", **KEPT)).session_present
    assert await first.rest() == ([p.Disconnect(Reason.SESSION_TAKEN_OVER)] if version == MQTT_5 else [])
    assert await served.listener.deliver("lamp/1/set", b"on") == 1
    assert (await second.expect(p.Publish)).payload == b"on"
    assert served.application.events == [
        ("connected", "lamp", "c1"),
        ("disconnected", "lamp", "c1", "taken_over"),
        ("connected", "lamp", "c1"),
    ]


async def test_session_present_is_told_truthfully(served: Served, version: int) -> None:
    async def present(**members: Any) -> bool:
        client = await served.client(version)
        answer = await client.connect("lamp", "c1", **members)
        assert answer.reason == 0
        served.application.events.clear()
        await client.close()
        await served.application.until(("disconnected", "lamp", "c1", "closed"))
        return answer.session_present

    assert not await present(**KEPT)
    assert await present(**KEPT)
    assert not await present(clean_start=True)
    assert not await present(**KEPT)
    served.later(86_401)
    assert not await present(**KEPT)


async def test_a_clean_session_leaves_nothing(served: Served, version: int) -> None:
    client = await served.device("lamp", "c1", version, clean_start=True)
    await client.subscribe("lamp/+/set")
    client.send(p.Disconnect())
    await client.rest()
    assert await served.listener.deliver("lamp/1/set", b"on") == 0
    assert served.listener.sessions() == 0


async def test_what_was_not_acknowledged_comes_again_with_dup_then_what_waited(served: Served, version: int) -> None:
    client = await served.device("lamp", "c1", version, **KEPT)
    await client.subscribe("lamp/+/set")
    await served.listener.deliver("lamp/1/set", b"1")
    await served.listener.deliver("lamp/1/set", b"2")
    first, second = await client.expect(p.Publish), await client.expect(p.Publish)
    assert (first.dup, second.dup) == (False, False)
    client.send(p.PubAck(first.packet_id or 0))
    await client.ping()
    client.abort()
    await served.application.until(("disconnected", "lamp", "c1", "closed"))
    assert await served.listener.deliver("lamp/1/set", b"3") == 0
    await served.listener.deliver("lamp/1/set", b"0", qos=0)
    back = await served.device("lamp", "c1", version, **KEPT)
    again, waited = await back.expect(p.Publish), await back.expect(p.Publish)
    assert (again.payload, again.dup, again.packet_id) == (b"2", True, second.packet_id)
    assert (waited.payload, waited.dup) == (b"3", False)
    await back.ping()


async def test_the_queue_of_a_client_that_is_away_is_bounded(serve: Serve, version: int) -> None:
    served = await serve(queue_messages=100, queue_bytes=2_000)
    client = await served.device("lamp", "c1", version, **KEPT)
    await client.subscribe("lamp/+/set")
    await client.close()
    await served.application.until(("disconnected", "lamp", "c1", "closed"))
    for number in range(150):
        await served.listener.deliver("lamp/1/set", b"%d" % number)
    await served.listener.deliver("lamp/1/set", bytes(2_000))
    back = await served.device("lamp", "c1", version, **KEPT)
    for number in range(100):
        message = await back.expect(p.Publish)
        assert message.payload == b"%d" % number
        back.send(p.PubAck(message.packet_id or 0))
    await back.ping()
    (info,) = served.listener.connections()
    assert info.dropped == 51


async def test_what_a_client_has_echoed_counts_in_its_queue(serve: Serve) -> None:
    served = await serve(queue_bytes=100_000)
    client = await served.device(version=MQTT_5, properties=Properties(receive_maximum=1))
    await client.subscribe("replies/#")
    long = "replies/" + "x" * 20_000
    for number in range(1, 11):
        echoed = Properties(response_topic=long, correlation_data=bytes(20_000))
        client.send(signal(packet_id=number, properties=echoed))
    sent = [await client.next() for _ in range(11)]  # one reply, which is never acknowledged, and what is ours to have
    assert [type(packet) for packet in sent] == [p.Publish] + [p.PubAck] * 10
    (info,) = served.listener.connections()
    assert (info.waiting, info.dropped) == (2, 7)


async def test_no_more_is_sent_than_the_client_s_receive_maximum(served: Served) -> None:
    client = await served.device("lamp", "c1", MQTT_5, properties=Properties(receive_maximum=2))
    await client.subscribe("lamp/+/set")
    for number in range(5):
        assert await served.listener.deliver("lamp/1/set", b"%d" % number) == 1
    for number in (0, 1):
        assert (await client.expect(p.Publish)).payload == b"%d" % number
    await client.ping()
    client.send(p.PubAck(1))
    assert (await client.expect(p.Publish)).payload == b"2"
    await client.ping()


async def test_a_smaller_receive_maximum_after_a_return_holds_for_what_comes_again(served: Served) -> None:
    kept = Properties(session_expiry=600)
    client = await served.device("lamp", "c1", MQTT_5, properties=kept, clean_start=False)
    await client.subscribe("lamp/+/set")
    for number in range(4):
        await served.listener.deliver("lamp/1/set", b"%d" % number)
        await client.expect(p.Publish)
    client.abort()
    less = Properties(session_expiry=600, receive_maximum=1)
    back = await served.device("lamp", "c1", MQTT_5, properties=less, clean_start=False)
    for number in range(4):
        message = await back.expect(p.Publish)
        assert message.payload == b"%d" % number
        await back.ping()
        back.send(p.PubAck(message.packet_id or 0))


async def test_a_session_expires_when_mqtt_5_says(served: Served) -> None:
    client = await served.device("lamp", "c1", MQTT_5, clean_start=False, session_expiry=60)
    client.send(p.Disconnect(0, Properties(session_expiry=30)))
    await client.rest()
    served.later(29)
    assert served.listener.sessions() == 1
    served.later(2)
    assert served.listener.sessions() == 0


async def test_a_session_that_had_no_expiry_cannot_be_given_one_by_disconnect(served: Served) -> None:
    client = await served.device("lamp", "c1", MQTT_5)
    client.send(p.Disconnect(0, Properties(session_expiry=30)))
    assert (await client.expect(p.Disconnect)).reason == Reason.PROTOCOL_ERROR


async def test_an_expiry_beyond_the_listener_s_is_cut_and_told(served: Served) -> None:
    client = await served.client(MQTT_5)
    answer = await client.connect(session_expiry=0xFFFFFFFF)
    assert answer.properties.session_expiry == 86_400


async def test_at_most_eight_connections_a_device(served: Served, version: int) -> None:
    for number in range(8):
        await served.device("door", f"c{number}", version)
    ninth = await served.client(version)
    answer = await ninth.connect("door", "c8")
    assert answer.reason == (Reason.QUOTA_EXCEEDED if version == MQTT_5 else Reason.SERVER_UNAVAILABLE)
    await served.device("door", "c0", version)  # in place of its own earlier one
    await served.device("bell", "c8", version)
    assert ("refused", "device_connections", "door") in served.application.events


async def test_a_fifth_persistent_session_takes_the_place_of_the_one_longest_away(served: Served, version: int) -> None:
    for number in range(4):
        client = await served.device("door", f"c{number}", version, **KEPT)
        await client.close()
        await served.application.until(("disconnected", "door", f"c{number}", "closed"))
        served.later(1)
    await served.device("door", "c4", version, **KEPT)
    assert served.listener.sessions() == 4
    back = await served.client(version)
    assert not (await back.connect("door", "c0", **KEPT)).session_present


async def test_a_fifth_persistent_session_is_refused_while_all_four_are_connected(served: Served, version: int) -> None:
    for number in range(4):
        await served.device("door", f"c{number}", version, **KEPT)
    client = await served.client(version)
    assert (await client.connect("door", "c4", **KEPT)).reason != 0
    await served.device("door", "c5", version)
    assert ("refused", "device_sessions", "door") in served.application.events


async def test_grants_taken_away_end_subscriptions_of_connected_and_absent_sessions(
    served: Served, version: int
) -> None:
    here = await served.device("lamp", "here", version, **KEPT)
    away = await served.device("lamp", "away", version, **KEPT)
    await here.subscribe("lamp/+/set", "replies/#")
    await away.subscribe("lamp/+/set")
    await away.close()
    served.application.devices["lamp"] = ()
    served.listener.recheck_device("lamp", served.application.admit("lamp"))
    assert await served.listener.deliver("lamp/1/set", b"on") == 0
    await here.ping()
    (info,) = served.listener.connections()
    assert info.subscriptions == ("replies/#",)
    back = await served.device("lamp", "away", version, **KEPT)
    await back.ping()


async def test_grants_taken_away_while_away_end_subscriptions_at_the_return(served: Served, version: int) -> None:
    client = await served.device("lamp", "c1", version, **KEPT)
    await client.subscribe("lamp/+/set")
    await client.close()
    served.application.devices["lamp"] = ()
    back = await served.device("lamp", "c1", version, **KEPT)
    assert await served.listener.deliver("lamp/1/set", b"on") == 0
    await back.ping()


async def test_an_empty_client_id_gets_a_session_of_its_own(served: Served, version: int) -> None:
    client = await served.client(version)
    answer = await client.connect(client_id="")
    assert answer.reason == 0
    (info,) = served.listener.connections()
    assert info.client_id.startswith("auto-")
    if version == MQTT_5:
        assert answer.properties.assigned_client_id == info.client_id
    other = await served.device(client_id="", version=version)
    await other.ping()
    await client.ping()


async def test_an_empty_client_id_with_a_session_to_keep_is_refused_in_3_1_1(served: Served) -> None:
    client = await served.client(MQTT_3_1_1)
    assert (await client.connect(client_id="", clean_start=False)).reason == Reason.CLIENT_ID_NOT_VALID


async def test_a_refused_connect_leaves_no_session(served: Served, version: int) -> None:
    client = await served.client(version)
    client.send(connect(version=version, password=b"no", clean_start=False))
    await client.rest()
    assert served.listener.sessions() == 0


@pytest.mark.parametrize("qos", [0, 1])
async def test_a_message_too_large_for_the_client_is_left_out_and_the_rest_goes_on(served: Served, qos: int) -> None:
    client = await served.device("lamp", "c1", MQTT_5, properties=Properties(maximum_packet_size=100))
    await client.subscribe(p.Filter("lamp/+/set", qos))
    assert await served.listener.deliver("lamp/1/set", bytes(100)) == 0
    assert await served.listener.deliver("lamp/1/set", b"small") == 1
    assert (await client.expect(p.Publish)).payload == b"small"


async def test_a_message_says_how_long_it_is_still_good_and_is_left_out_when_it_is_not(served: Served) -> None:
    client = await served.device("lamp", "c1", MQTT_5, **KEPT)
    await client.subscribe("lamp/+/set")
    await client.close()
    await served.application.until(("disconnected", "lamp", "c1", "closed"))
    await served.listener.deliver("lamp/1/set", b"short", expiry_seconds=5)
    await served.listener.deliver("lamp/1/set", b"long", expiry_seconds=60)
    served.later(10)
    back = await served.device("lamp", "c1", MQTT_5, **KEPT)
    message = await back.expect(p.Publish)
    assert (message.payload, message.properties.message_expiry) == (b"long", 50)
    await back.ping()


async def test_what_has_ended_is_not_held_on_to(served: Served, version: int) -> None:
    for number in range(20):
        client = await served.device("lamp", f"c{number}", version, keep_alive=3_600, **KEPT)
        await client.subscribe("lamp/+/set")
        await client.close()
        await served.application.until(("disconnected", "lamp", f"c{number}", "closed"))
    assert served.listener.sessions() == 4
    await served.until_open(0)
    assert served.listener.awaited() <= 4  # nothing but the ends of those sessions
    served.listener.close_device("lamp")
    assert (served.listener.sessions(), served.listener.awaited()) == (0, 0)
