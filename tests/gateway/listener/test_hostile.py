"""Proves what hostile and clumsy clients get, each over a raw socket: nothing of another's, and never a hang."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from gateway.listener.codec import MQTT_3_1_1, MQTT_5, NO_PROPERTIES, Packet, Reason, encode
from gateway.listener.codec import packets as p
from gateway.listener.port import Admitted
from tests.gateway.listener.client import connect, signal
from tests.gateway.listener.conftest import Served

Serve = Callable[..., Awaitable[Served]]


async def test_a_wrong_password_with_another_s_client_id_touches_nothing_of_the_other(
    served: Served, version: int
) -> None:
    victim = await served.device("lamp", "the-lamp", version, clean_start=False, session_expiry=600)
    assert await victim.subscribe("lamp/+/set") == (1,)
    for name in ("lamp", "door"):
        attacker = await served.client(version)
        refusal = await attacker.connect(name, "the-lamp", password=b"guess")
        assert refusal.reason == Reason.BAD_USER_NAME_OR_PASSWORD
        assert await attacker.rest() == []
    await victim.ping()
    assert await served.listener.deliver("lamp/1/set", b"on") == 1
    assert (await victim.expect(p.Publish)).payload == b"on"
    assert [one.client_id for one in served.listener.connections()] == ["the-lamp"]
    victim.abort()
    back = await served.client(version)
    assert (await back.connect("lamp", "the-lamp", clean_start=False, session_expiry=600)).session_present


async def test_another_s_client_id_with_one_s_own_password_is_a_session_of_one_s_own(
    served: Served, version: int
) -> None:
    victim = await served.device("lamp", "shared", version, clean_start=False, session_expiry=600)
    await victim.subscribe("lamp/+/set")
    await victim.close()
    other = await served.client(version)
    answer = await other.connect("door", "shared", clean_start=False, session_expiry=600)
    assert answer.reason == 0
    assert not answer.session_present
    await served.listener.deliver("lamp/1/set", b"on")
    await other.ping()
    back = await served.client(version)
    assert (await back.connect("lamp", "shared", clean_start=False, session_expiry=600)).session_present
    assert (await back.expect(p.Publish)).payload == b"on"
    await other.ping()


@pytest.mark.parametrize(
    "name", ["door+", "d#or", "door/lamp", "do*r", "door>", "do.or", "do or", "", "DOOR", "door\n"]
)
async def test_a_user_name_that_is_no_device_s_is_a_wrong_password(served: Served, name: str) -> None:
    client = await served.client()
    refusal = await client.connect(name, "c1", password=b"token-of-door")
    assert refusal.reason == Reason.BAD_USER_NAME_OR_PASSWORD
    assert await client.rest() == []


async def test_a_device_name_that_an_application_lets_through_is_still_checked(served: Served) -> None:
    served.application.devices["a/+"] = ()
    client = await served.client()
    assert (await client.connect("a/+")).reason == Reason.SERVER_UNAVAILABLE


@pytest.mark.parametrize("topic", ["signals/front-door/verdict", "d/lamp/status", "status/x", "news/weather"])
async def test_a_will_on_a_foreign_topic_is_dropped_and_the_connect_goes_on(
    served: Served, version: int, topic: str
) -> None:
    watcher = await served.device("door", "watcher", version)
    await watcher.subscribe("news/#", "replies/#")
    client = await served.device("bell", "c1", version, will=p.Will(topic=topic, payload=b"gone", qos=1))
    client.abort()
    await served.application.until(("disconnected", "bell", "c1", "closed"))
    await watcher.ping()
    assert ("will_dropped", "bell", topic) in served.application.events
    assert served.application.published == []


async def test_a_revocation_publishes_no_will_and_ends_the_session(served: Served, version: int) -> None:
    watcher = await served.device("lamp", "watcher")
    await watcher.subscribe("d/door/status")
    client = await served.device(
        "door", "c1", version, clean_start=False, session_expiry=60, will=p.Will(topic="status", payload=b"offline")
    )
    assert served.listener.close_device("door") == 1
    said = await client.rest()
    assert said == ([p.Disconnect(Reason.NOT_AUTHORIZED)] if version == MQTT_5 else [])
    await watcher.ping()
    assert ("disconnected", "door", "c1", "revoked") in served.application.events
    back = await served.client(version)
    assert not (await back.connect("door", "c1", clean_start=False, session_expiry=60)).session_present


async def test_a_publish_off_the_map_is_acknowledged_and_told(served: Served, version: int) -> None:
    client = await served.device(version=version)
    await client.subscribe("replies/#")
    for number, topic in enumerate(["nonsense", "$SYS/uptime", "gateway/x/status", "d/lamp/signals/a/b", "/"], 1):
        client.send(signal(topic=topic, packet_id=number))
        assert (await client.expect(p.Publish)).topic == "replies/-/-/-/rejected"
        client.send(p.PubAck(number))
        assert (await client.expect(p.PubAck)).packet_id == number
    await client.ping()


async def test_publish_disconnect_and_end_of_stream_in_one_segment_at_qos_0_are_delivered_in_full(
    served: Served, version: int
) -> None:
    client = await served.device(version=version)
    client.send(*(signal(b'{"n":%d}' % number, 0) for number in range(200)), p.Disconnect())
    client.end()
    await served.application.until_published(200)
    assert [one.payload for _, one in served.application.published] == [b'{"n":%d}' % n for n in range(200)]
    assert await client.rest() == []


async def test_connect_publish_disconnect_and_end_of_stream_in_one_segment_are_delivered(
    served: Served, version: int
) -> None:
    client = await served.client(version)
    client.send(connect(version=version), signal(b"1", 0), signal(b"2", 0), p.Disconnect())
    client.end()
    await served.application.until_published(2)
    assert [type(one) for one in await client.rest()] == [p.ConnAck]


async def test_a_client_that_resets_the_connection_has_still_said_what_it_said(serve: Serve) -> None:
    served = await serve(concurrent_publishes=3, receive_maximum=2)
    gate = served.application.gate = asyncio.Event()
    client = await served.device()
    client.send(*(signal(b'{"n":%d}' % number, 0) for number in range(50)))
    await served.application.until_published(3)
    client.abort()
    gate.set()
    await served.application.until_published(50)


async def test_a_retained_signal_is_refused_by_name(served: Served, version: int) -> None:
    client = await served.device(version=version)
    await client.subscribe("replies/#")
    client.send(signal(retain=True))
    assert b"retained_not_allowed" in (await client.expect(p.Publish)).payload
    assert (await client.expect(p.PubAck)).reason == (Reason.IMPLEMENTATION_SPECIFIC if version == MQTT_5 else 0)


async def test_a_second_connect_ends_the_connection(served: Served, version: int) -> None:
    client = await served.device(version=version)
    client.send(connect(version=version))
    await _told(client, version, Reason.PROTOCOL_ERROR)


async def test_a_first_packet_other_than_connect_gets_no_answer(served: Served) -> None:
    client = await served.client()
    client.send(signal())
    assert await client.rest() == []
    assert served.application.published == []


async def test_a_client_that_never_sends_connect_is_closed_after_five_seconds(served: Served) -> None:
    client = await served.client()
    client.send_bytes(encode(connect(), MQTT_3_1_1)[:9])
    await served.until_open(1)
    served.later(4)
    assert served.listener.open_connections() == 1
    served.later(1.5)
    assert await client.rest() == []


async def test_an_oversized_connect_is_refused_before_it_is_read(served: Served) -> None:
    client = await served.client()
    client.send_bytes(b"\x10\x81\x20")  # 4,097 bytes are announced
    assert await client.rest() == []


async def test_half_a_connect_and_the_end_of_the_stream_leave_nothing(served: Served) -> None:
    client = await served.client()
    client.send_bytes(encode(connect(), MQTT_3_1_1)[:-3])
    client.end()
    assert await client.rest() == []
    assert served.application.events == []


async def test_a_remaining_length_of_256_mb_ends_the_connection_at_once(served: Served, version: int) -> None:
    client = await served.device(version=version)
    client.send_bytes(b"\x30\xff\xff\xff\x7f")
    await _told(client, version, Reason.PACKET_TOO_LARGE)


async def test_a_remaining_length_of_five_bytes_is_malformed(served: Served, version: int) -> None:
    client = await served.device(version=version)
    client.send_bytes(b"\x30\xff\xff\xff\xff\x01")
    await _told(client, version, Reason.MALFORMED_PACKET)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        pytest.param(b"\x00\x03a\xffb", Reason.MALFORMED_PACKET, id="malformed UTF-8"),
        pytest.param(b"\x00\x03\xed\xa0\x80", Reason.MALFORMED_PACKET, id="a surrogate"),
        pytest.param(b"\x00\x03a\x00b", Reason.MALFORMED_PACKET, id="NUL"),
        pytest.param(b"\x00\x00", Reason.PROTOCOL_ERROR, id="an empty topic"),
        pytest.param(b"\x00\x03a/+", Reason.TOPIC_NAME_INVALID, id="a plus sign"),
        pytest.param(b"\x00\x01#", Reason.TOPIC_NAME_INVALID, id="a number sign"),
        pytest.param(b"\x00\x09a", Reason.MALFORMED_PACKET, id="a topic cut off"),
    ],
)
async def test_a_topic_that_is_none_ends_the_connection(
    served: Served, version: int, raw: bytes, reason: Reason
) -> None:
    client = await served.device(version=version)
    body = raw + (b"\x00" if version == MQTT_5 else b"")
    client.send_bytes(bytes((0x30, len(body))) + body)
    await _told(client, version, reason)
    assert served.application.published == []


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        pytest.param(b"\x36\x05\x00\x01a\x00\x01", Reason.MALFORMED_PACKET, id="QoS 3"),
        pytest.param(b"\x32\x05\x00\x01a\x00\x00", Reason.PROTOCOL_ERROR, id="packet id 0"),
        pytest.param(b"\x38\x03\x00\x01a", Reason.MALFORMED_PACKET, id="DUP at QoS 0"),
        pytest.param(b"\x00\x00", Reason.MALFORMED_PACKET, id="packet type 0"),
        pytest.param(b"\x80\x02\x00\x01", Reason.MALFORMED_PACKET, id="SUBSCRIBE with wrong flags"),
        pytest.param(b"\xd0\x00", Reason.PROTOCOL_ERROR, id="a server's packet"),
        pytest.param(b"\xc0\x01\x00", Reason.MALFORMED_PACKET, id="PINGREQ with a body"),
        pytest.param(b"\x40\x01\x00", Reason.MALFORMED_PACKET, id="PUBACK cut off"),
    ],
)
async def test_a_packet_that_is_none_ends_the_connection(
    served: Served, version: int, raw: bytes, reason: Reason
) -> None:
    client = await served.device(version=version)
    client.send_bytes(raw)
    await _told(client, version, reason)


@pytest.mark.parametrize(
    ("raw", "answer"),
    [
        pytest.param(b"\x10\x10\x00\x04MQTT\x03\x02\x00\x3c\x00\x04abcd", b"\x20\x02\x00\x01", id="level 3"),
        pytest.param(b"\x10\x12\x00\x06MQIsdp\x03\x02\x00\x3c\x00\x04abcd", b"\x20\x02\x00\x01", id="MQTT 3.1"),
        pytest.param(b"\x10\x11\x00\x04MQTT\x06\x02\x00\x3c\x00\x00\x04abcd", b"\x20\x03\x00\x84\x00", id="level 6"),
        pytest.param(b"\x10\x10\x00\x04HTTP\x04\x02\x00\x3c\x00\x04abcd", b"", id="another protocol"),
    ],
)
async def test_an_unknown_protocol_level_is_answered_with_the_right_code(
    served: Served, raw: bytes, answer: bytes
) -> None:
    reader, writer = await asyncio.open_connection(served.host, served.port)
    writer.write(raw)
    async with asyncio.timeout(10):
        assert await reader.read() == answer
    writer.close()
    await writer.wait_closed()


async def test_a_subscriber_that_never_reads_is_bounded_and_closed(serve: Serve) -> None:
    served = await serve(window=20, queue_messages=100)
    slow, quick = await served.device("lamp", "slow"), await served.device("lamp", "quick")
    await slow.subscribe(p.Filter("lamp/+/set", 0))
    await quick.subscribe(p.Filter("lamp/+/set", 0))
    slow.pause()
    for _ in range(600):
        await served.listener.deliver("lamp/1/set", bytes(16_384), qos=0)
        await quick.expect(p.Publish)
    (info,) = [one for one in served.listener.connections() if one.client_id == "slow"]
    assert info.dropped > 0
    served.later(31)
    await served.application.until(("disconnected", "lamp", "slow", "slow"))
    await quick.ping()


async def test_a_client_that_sends_and_never_reads_is_not_read_on(served: Served) -> None:
    client, other = await served.device("lamp", "mute"), await served.device("bell", "other")
    await client.subscribe(p.Filter("lamp/+/set", 0))
    client.pause()
    while not any(one.stalled for one in served.listener.connections()):
        await served.listener.deliver("lamp/1/set", bytes(16_384), qos=0)
        await other.ping()
    client.send(*(signal(qos=0) for _ in range(20)))
    await client.drain()
    await other.ping()
    served.later(29)
    await other.ping()
    assert served.application.published == []
    served.later(2)
    await served.application.until(("disconnected", "lamp", "mute", "slow"))


async def test_two_hundred_subscriptions_are_too_many(served: Served, version: int) -> None:
    client = await served.device(version=version)
    wanted = tuple(p.Filter(f"replies/signals/w{number}/#", 1) for number in range(200))
    client.send(p.Subscribe(1, wanted))
    reasons = (await client.expect(p.SubAck)).reasons
    refused = Reason.QUOTA_EXCEEDED if version == MQTT_5 else 0x80
    assert reasons == (1,) * 100 + (refused,) * 100


async def test_a_subscribe_of_thousands_of_filters_asks_the_application_for_a_few(served: Served, version: int) -> None:
    asked: list[str] = []

    def may_subscribe(who: Admitted, topic_filter: str) -> bool:
        asked.append(topic_filter)
        return False

    served.application.may_subscribe = may_subscribe  # type: ignore[method-assign]
    client = await served.device(version=version)
    client.send(p.Subscribe(1, (p.Filter("x", 1),) * 10_000))
    assert len((await client.expect(p.SubAck)).reasons) == 10_000
    assert len(asked) == 256


async def test_overlapping_filters_deliver_once(served: Served, version: int) -> None:
    client = await served.device(version=version)
    await client.subscribe(
        p.Filter("replies/#", 0), p.Filter("replies/+/+/+/accepted", 1), p.Filter("d/door/replies/#", 1)
    )
    client.send(signal(qos=0))
    reply = await client.expect(p.Publish)
    assert (reply.topic, reply.qos) == ("replies/signals/front-door/verdict/accepted", 1)
    await client.ping()


async def test_a_payload_of_16_385_bytes_is_acknowledged_and_told_and_the_connection_stays(
    served: Served, version: int
) -> None:
    client = await served.device(version=version)
    await client.subscribe("replies/#")
    client.send(signal(bytes(16_385)))
    assert b"413" in (await client.expect(p.Publish)).payload
    assert (await client.expect(p.PubAck)).reason == (Reason.QUOTA_EXCEEDED if version == MQTT_5 else 0)
    await client.ping()


async def test_a_missed_keep_alive_closes_after_one_and_a_half_times(served: Served, version: int) -> None:
    client = await served.device(version=version, keep_alive=10)
    served.later(14)
    await client.ping()
    served.later(14)
    await client.ping()
    client.send_bytes(b"\xc0")  # half a packet is no packet
    await asyncio.sleep(0)
    served.later(15.5)
    await _told(client, version, Reason.KEEP_ALIVE_TIMEOUT)
    assert served.application.events[-1] == ("disconnected", "door", "c1", "keep_alive")


@pytest.mark.parametrize("said", ["1970-01-01T00:00:00Z", "2099-12-31T23:59:59Z"])
async def test_what_a_device_thinks_the_time_is_means_nothing(served: Served, said: str) -> None:
    client = await served.device(version=MQTT_5)
    stamped = p.Properties(user=(("time", said),), message_expiry=1)
    client.send(signal(properties=stamped))
    assert (await client.expect(p.PubAck)).reason == 0
    assert served.application.published[0][1].user_properties == (("time", said),)


async def test_a_client_id_with_control_characters_or_too_long_is_refused(served: Served, version: int) -> None:
    for client_id in ("a\nb", "x" * 257, "\x7f"):
        client = await served.client(version)
        assert (await client.connect(client_id=client_id)).reason == Reason.CLIENT_ID_NOT_VALID
    assert served.application.events == [("refused", "client_id", "")] * 3


async def test_a_flood_of_small_packets_leaves_the_loop_to_others(served: Served) -> None:
    flood, other = await served.device("door", "flood"), await served.device("bell", "other")
    flood.send_bytes(encode(p.PubRel(1), MQTT_3_1_1) * 50_000)
    await other.ping()
    assert (await flood.expect(p.PubComp)) == p.PubComp(1)


@pytest.mark.parametrize(
    ("packet", "counts"),
    [
        (p.PingReq(), 1),
        (p.Subscribe(1, (p.Filter("replies/#", 1), p.Filter("#", 1))), 2),
        (p.Subscribe(1, (p.Filter("x", 1),) * 1_000), 256),
        (p.Unsubscribe(1, ("replies/#",) * 3), 3),
        (p.PubAck(7), 1),
        (p.PubRec(7), 1),
        (p.PubRel(7), 1),
        (p.PubComp(7), 1),
    ],
    ids=lambda it: type(it).__name__,
)
async def test_a_flood_of_packets_that_say_nothing_ends_its_connection_alone(
    served: Served, version: int, packet: Packet, counts: int
) -> None:
    limits, pings = served.listener.limits, 1
    flood, other = await served.device("door", "flood", version=version), await served.device("door", "other")
    within = limits.packets_burst // counts - 1
    flood.send(*(packet for _ in range(within)), p.PingReq())
    pings += within if isinstance(packet, p.PingReq) else 0
    while pings:
        pings -= isinstance(await flood.next(), p.PingResp)
    served.later(30)
    flood.send(*(packet for _ in range(limits.packets_burst // counts + 1)))
    said = await flood.rest()
    if version == MQTT_5:
        last = said[-1]
        assert isinstance(last, p.Disconnect)
        assert (last.reason, bool(last.properties.reason_string)) == (Reason.MESSAGE_RATE_TOO_HIGH, True)
    await other.ping()
    assert ("disconnected", "door", "flood", "rate") in served.application.events


async def test_a_repeat_that_is_not_released_counts_and_what_a_publish_brings_with_it_does_not(
    served: Served, version: int
) -> None:
    client, limits = await served.device(version=version), served.listener.limits
    for _ in range(limits.packets_burst + 1):
        client.send(signal(qos=2, packet_id=1))
        await client.expect(p.PubRec)
        client.send(p.PubRel(1))
        await client.expect(p.PubComp)
    client.send(
        signal(qos=2, packet_id=1), *(signal(qos=2, packet_id=1, dup=True) for _ in range(limits.packets_burst + 1))
    )
    await client.rest()
    assert ("disconnected", "door", "c1", "rate") in served.application.events


async def _told(client: object, version: int, reason: Reason) -> None:
    """Expect a DISCONNECT with the reason (MQTT 5 alone is told), then the end of the stream."""
    said = await client.rest()  # type: ignore[attr-defined]
    if version == MQTT_5:
        (last,) = said
        assert isinstance(last, p.Disconnect)
        assert last.reason == reason
        assert last.properties == NO_PROPERTIES or last.properties.reason_string
    else:
        assert said == []
