"""Proves when and how a PUBLISH is acknowledged: decided first, in order, once at QoS 2, and never when undecided."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gateway.listener.codec import MQTT_5, Properties, Reason
from gateway.listener.codec import packets as p
from gateway.listener.port import Admitted, Handled, Published, Reply
from tests.gateway.listener.client import connect, signal
from tests.gateway.listener.conftest import Served

Serve = Callable[..., Awaitable[Served]]


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_signal_is_handed_on_as_it_was_sent_and_answered(served: Served, version: int, qos: int) -> None:
    client = await served.device(version=version)
    await client.subscribe("replies/#")
    client.send(signal(b'{"open":true}', qos, 7 if qos else None))
    reply = await client.expect(p.Publish)
    assert (reply.topic, reply.payload) == ("replies/signals/front-door/verdict/accepted", b'{"ok":true}')
    assert not reply.retain
    client.send(p.PubAck(reply.packet_id or 0))
    if qos == 1:
        assert await client.expect(p.PubAck) == p.PubAck(7)
    if qos == 2:
        assert await client.expect(p.PubRec) == p.PubRec(7)
        client.send(p.PubRel(7))
        assert await client.expect(p.PubComp) == p.PubComp(7)
    await client.ping()
    assert served.application.published == [
        ("door", Published("signals/front-door/verdict", b'{"open":true}', qos, client_id="c1"))
    ]


@pytest.mark.parametrize("qos", [1, 2])
async def test_nothing_is_acknowledged_before_it_is_decided(served: Served, version: int, qos: int) -> None:
    gate = served.application.gate = asyncio.Event()
    client = await served.device(version=version)
    client.send(signal(qos=qos))
    await served.application.until_published(1)
    await client.ping()
    gate.set()
    assert isinstance(await client.next(), p.PubAck if qos == 1 else p.PubRec)


async def test_acknowledgements_keep_the_order_of_the_publishes(served: Served, version: int) -> None:
    gates = {number: asyncio.Event() for number in range(1, 6)}
    decided: list[int] = []

    async def publish(who: Admitted, message: Published, *, address: str) -> Handled:
        number = int(message.payload)
        await gates[number].wait()
        decided.append(number)
        return Handled()

    served.application.publish = publish  # type: ignore[method-assign]
    client = await served.device(version=version)
    client.send(*(signal(b"%d" % number, 1 + number % 2, number) for number in gates))
    await client.ping()
    for number in (5, 3, 2, 4):
        gates[number].set()
    await client.ping()
    gates[1].set()
    answers = [await client.next() for _ in gates]
    assert [getattr(one, "packet_id", None) for one in answers] == [1, 2, 3, 4, 5]
    assert (decided[-1], sorted(decided)) == (1, [1, 2, 3, 4, 5])


async def test_publishes_are_decided_at_once_up_to_a_bound_and_then_reading_stops(serve: Serve) -> None:
    served = await serve(concurrent_publishes=6, receive_maximum=5)
    gate = served.application.gate = asyncio.Event()
    client = await served.device()
    client.send(*(signal(b"%d" % number, 1, number) for number in range(1, 51)))
    await served.application.until_published(6)
    other = await served.device("bell", "other")
    await other.ping()
    assert len(served.application.published) == 6
    (busy,) = [one for one in served.listener.connections() if one.device == "door"]
    assert busy.undecided == 6
    gate.set()
    assert [(await client.expect(p.PubAck)).packet_id for _ in range(50)] == list(range(1, 51))
    assert [message.payload for _, message in served.application.published] == [b"%d" % n for n in range(1, 51)]
    assert served.application.most_in_progress == 6


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_an_undecided_publish_closes_the_connection_unacknowledged(
    served: Served, version: int, qos: int
) -> None:
    served.application.unavailable = True
    client = await served.device(version=version)
    client.send(signal(qos=qos))
    assert await client.rest() == ([p.Disconnect(Reason.SERVER_BUSY)] if version == MQTT_5 else [])
    assert served.application.events[-1] == ("disconnected", "door", "c1", "unavailable")


async def test_a_fault_of_the_application_s_counts_as_undecided_and_says_nothing_of_the_payload(
    served: Served, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def publish(who: Admitted, message: Published, *, address: str) -> Handled:
        raise ValueError(message.payload)

    served.application.publish = publish  # type: ignore[method-assign]
    client = await served.device(version=version)
    client.send(signal(b"secret-marker"))
    assert await client.rest() == ([p.Disconnect(Reason.SERVER_BUSY)] if version == MQTT_5 else [])
    assert "a PUBLISH could not be decided: ValueError" in caplog.text
    assert "secret-marker" not in caplog.text


async def test_a_reason_is_told_to_mqtt_5_alone(served: Served, version: int) -> None:
    served.application.reason, served.application.reason_string = 0x87, "not_found"
    client = await served.device(version=version)
    client.send(signal())
    told = Properties(reason_string="not_found")
    assert await client.expect(p.PubAck) == (p.PubAck(1, 0x87, told) if version == MQTT_5 else p.PubAck(1))


async def test_a_reason_string_is_left_out_where_it_is_not_wanted_or_makes_the_packet_too_large(
    served: Served,
) -> None:
    served.application.reason, served.application.reason_string = 0x87, "x" * 100
    for wish in (Properties(request_problem=0), Properties(maximum_packet_size=60)):
        client = await served.device(version=MQTT_5, properties=wish)
        client.send(signal())
        assert await client.expect(p.PubAck) == p.PubAck(1, 0x87)


# QoS 2: 4.3.3.


async def test_a_qos_2_publish_of_an_unreleased_id_is_answered_again_and_not_delivered_twice(
    served: Served, version: int
) -> None:
    client = await served.device(version=version)
    client.send(signal(qos=2, packet_id=3))
    await client.expect(p.PubRec)
    client.send(signal(qos=2, packet_id=3, dup=True))
    assert await client.expect(p.PubRec) == p.PubRec(3)
    client.send(p.PubRel(3))
    await client.expect(p.PubComp)
    assert len(served.application.published) == 1
    client.send(signal(qos=2, packet_id=3))
    await client.expect(p.PubRec)
    assert len(served.application.published) == 2


async def test_a_qos_2_publish_repeated_on_a_new_connection_is_delivered_once(served: Served, version: int) -> None:
    kept: dict[str, Any] = {"clean_start": False, "session_expiry": 60}
    client = await served.device(version=version, **kept)
    client.send(signal(qos=2, packet_id=3))
    await client.expect(p.PubRec)
    client.abort()
    again = await served.device(version=version, **kept)
    again.send(signal(qos=2, packet_id=3, dup=True))
    await again.expect(p.PubRec)
    again.send(p.PubRel(3))
    await again.expect(p.PubComp)
    assert len(served.application.published) == 1


async def test_a_qos_2_publish_repeated_while_it_is_still_being_decided_shares_the_decision(
    served: Served, version: int
) -> None:
    gate = served.application.gate = asyncio.Event()
    kept: dict[str, Any] = {"clean_start": False, "session_expiry": 60}
    client = await served.device(version=version, **kept)
    client.send(signal(qos=2, packet_id=3))
    await served.application.until_published(1)
    client.abort()
    again = await served.device(version=version, **kept)
    await again.subscribe("replies/#")
    again.send(signal(qos=2, packet_id=3, dup=True))
    await again.ping()
    gate.set()
    assert isinstance(await again.next(), p.Publish)
    assert await again.expect(p.PubRec) == p.PubRec(3)
    await again.ping()
    assert len(served.application.published) == 1


async def test_an_undecided_qos_2_publish_is_tried_anew_when_it_is_sent_again(served: Served, version: int) -> None:
    kept: dict[str, Any] = {"clean_start": False, "session_expiry": 60}
    served.application.unavailable = True
    client = await served.device(version=version, **kept)
    client.send(signal(qos=2, packet_id=3))
    await client.rest()
    served.application.unavailable = False
    again = await served.device(version=version, **kept)
    again.send(signal(qos=2, packet_id=3, dup=True))
    await again.expect(p.PubRec)
    assert len(served.application.published) == 2


async def test_a_refused_qos_2_publish_frees_its_id_in_mqtt_5(served: Served) -> None:
    served.application.reason = 0x87
    client = await served.device(version=MQTT_5)
    client.send(signal(qos=2, packet_id=3))
    assert (await client.expect(p.PubRec)).reason == 0x87
    client.send(p.PubRel(3))
    assert (await client.expect(p.PubComp)).reason == Reason.PACKET_ID_NOT_FOUND


async def test_pubrel_before_pubrec_is_a_protocol_error(served: Served) -> None:
    served.application.gate = asyncio.Event()
    client = await served.device(version=MQTT_5)
    client.send(signal(qos=2, packet_id=3), p.PubRel(3))
    last = await client.expect(p.Disconnect)
    assert last.reason == Reason.PROTOCOL_ERROR
    served.application.gate.set()


# Flow control and aliases of MQTT 5: 4.9, 3.3.2.3.4.


@pytest.mark.parametrize("qos", [1, 2])
async def test_more_publishes_than_the_receive_maximum_end_the_connection(serve: Serve, qos: int) -> None:
    served = await serve(receive_maximum=3)
    served.application.gate = asyncio.Event()
    client = await served.client(MQTT_5)
    answer = await client.connect()
    assert answer.properties.receive_maximum == 3
    client.send(*(signal(qos=qos, packet_id=number) for number in (1, 2, 3)))
    await client.ping()
    client.send(signal(qos=qos, packet_id=4))
    assert (await client.expect(p.Disconnect)).reason == Reason.RECEIVE_MAXIMUM_EXCEEDED
    assert len(served.application.published) == 3
    served.application.gate.set()


async def test_unreleased_qos_2_ids_count_against_the_receive_maximum(serve: Serve) -> None:
    served = await serve(receive_maximum=2)
    client = await served.device(version=MQTT_5)
    for number in (1, 2):
        client.send(signal(qos=2, packet_id=number))
        await client.expect(p.PubRec)
    client.send(signal(qos=1, packet_id=3))
    assert (await client.expect(p.Disconnect)).reason == Reason.RECEIVE_MAXIMUM_EXCEEDED


async def test_a_3_1_1_client_that_never_releases_is_bounded(serve: Serve) -> None:
    served = await serve(unreleased_ids=10)
    client = await served.device()
    for number in range(1, 12):
        client.send(signal(qos=2, packet_id=number))
    assert len([one for one in await client.rest() if isinstance(one, p.PubRec)]) <= 10


async def test_a_topic_alias_stands_for_the_topic_that_set_it(served: Served) -> None:
    client = await served.client(MQTT_5)
    answer = await client.connect()
    assert answer.properties.topic_alias_maximum == 16
    client.send(
        signal(b"1", properties=Properties(topic_alias=16)),
        signal(b"2", topic="", packet_id=2, properties=Properties(topic_alias=16)),
        signal(b"3", topic="signals/a/b", packet_id=3, properties=Properties(topic_alias=16)),
        signal(b"4", topic="", packet_id=4, properties=Properties(topic_alias=16)),
    )
    await served.application.until_published(4)
    topics = [message.topic for _, message in served.application.published]
    assert topics == ["signals/front-door/verdict"] * 2 + ["signals/a/b"] * 2


@pytest.mark.parametrize(
    ("topic", "alias", "reason"),
    [
        ("signals/a/b", 17, Reason.TOPIC_ALIAS_INVALID),
        ("signals/a/b", 0, Reason.TOPIC_ALIAS_INVALID),
        ("", 5, Reason.PROTOCOL_ERROR),
    ],
)
async def test_a_topic_alias_that_is_not_valid_ends_the_connection(
    served: Served, topic: str, alias: int, reason: Reason
) -> None:
    client = await served.device(version=MQTT_5)
    client.send(signal(topic=topic, properties=Properties(topic_alias=alias)))
    assert (await client.expect(p.Disconnect)).reason == reason


async def test_a_subscription_identifier_in_a_client_s_publish_is_a_protocol_error(served: Served) -> None:
    client = await served.device(version=MQTT_5)
    client.send(signal(properties=Properties(subscription_ids=(1,))))
    assert (await client.expect(p.Disconnect)).reason == Reason.PROTOCOL_ERROR


# Replies.


async def test_a_reply_takes_the_form_of_the_filter_that_it_matches(served: Served, version: int) -> None:
    short = await served.device(client_id="short", version=version)
    long = await served.device(client_id="long", version=version)
    both = await served.device(client_id="both", version=version)
    none = await served.device(client_id="none", version=version)
    await short.subscribe("replies/#")
    await long.subscribe("d/door/replies/#")
    await both.subscribe("d/door/replies/#", "replies/#")
    none.send(signal())
    suffix = "replies/signals/front-door/verdict/accepted"
    assert (await short.expect(p.Publish)).topic == suffix
    assert (await long.expect(p.Publish)).topic == f"d/door/{suffix}"
    assert (await both.expect(p.Publish)).topic == suffix
    assert isinstance(await none.next(), p.PubAck)
    for client in (short, long, both, none):
        await client.ping()


async def test_a_reply_comes_before_the_acknowledgement(served: Served, version: int) -> None:
    client = await served.device(version=version)
    await client.subscribe(p.Filter("replies/#", 0))
    client.send(*(signal(packet_id=number) for number in range(1, 6)))
    for number in range(1, 6):
        assert isinstance(await client.next(), p.Publish)
        assert await client.expect(p.PubAck) == p.PubAck(number)


async def test_a_reply_for_another_device_goes_to_that_one_alone(served: Served, version: int) -> None:
    answer = Reply("replies/signals/front-door/verdict/accepted", b"{}", device="lamp")

    async def publish(who: Admitted, message: Published, *, address: str) -> Handled:
        return Handled((answer,))

    served.application.publish = publish  # type: ignore[method-assign]
    client, lamp = await served.device(version=version), await served.device("lamp", version=version)
    await client.subscribe("replies/#")
    await lamp.subscribe("d/lamp/replies/#")
    client.send(signal())
    assert (await lamp.expect(p.Publish)).topic == "d/lamp/replies/signals/front-door/verdict/accepted"
    await client.expect(p.PubAck)


async def test_no_other_device_gets_a_reply(served: Served) -> None:
    lamp = await served.device("lamp", "c1")
    await lamp.subscribe("replies/#")
    door = await served.device()
    door.send(signal())
    await door.expect(p.PubAck)
    await lamp.ping()


async def test_correlation_data_is_echoed_and_a_response_topic_of_one_s_own_replaces_the_reply_s(
    served: Served,
) -> None:
    client = await served.device(version=MQTT_5)
    await client.subscribe("replies/#")
    for wanted, got in [
        ("replies/mine/1", "replies/mine/1"),
        ("d/door/replies/mine/2", "replies/mine/2"),
        ("d/lamp/replies/x", "replies/signals/front-door/verdict/accepted"),
        ("news/1", "replies/signals/front-door/verdict/accepted"),
    ]:
        client.send(signal(qos=0, properties=Properties(response_topic=wanted, correlation_data=b"\x00\xff")))
        reply = await client.expect(p.Publish)
        assert (reply.topic, reply.properties.correlation_data) == (got, b"\x00\xff")
        client.send(p.PubAck(reply.packet_id or 0))


async def test_a_client_that_only_stopped_sending_still_gets_its_answers(served: Served, version: int) -> None:
    gate = served.application.gate = asyncio.Event()
    client = await served.device(version=version)
    await client.subscribe(p.Filter("replies/#", 0))
    client.send(signal(), signal(packet_id=2))
    await served.application.until_published(2)
    client.end()
    gate.set()
    assert [type(one) for one in await client.rest()] == [p.Publish, p.PubAck] * 2


async def test_what_is_said_after_disconnect_is_not_heard(served: Served) -> None:
    client = await served.device()
    client.send(p.Disconnect(), signal())
    assert await client.rest() == []
    assert served.application.published == []


async def test_packets_that_come_while_connect_is_being_answered_wait(served: Served, version: int) -> None:
    door = served.application.door = asyncio.Event()
    client = await served.client(version)
    client.send(connect(version=version), p.Subscribe(1, (p.Filter("replies/#", 1),)), signal())
    other = await served.client(version)
    del other
    assert served.application.published == []
    door.set()
    kinds = [type(await client.next()) for _ in range(4)]
    assert kinds == [p.ConnAck, p.SubAck, p.Publish, p.PubAck]
