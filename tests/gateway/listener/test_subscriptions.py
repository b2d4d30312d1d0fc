"""Proves who receives what: filters and grants, one delivery for overlapping filters, the options of MQTT 5."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.listener.codec import MQTT_5, Properties, Reason
from gateway.listener.codec import packets as p
from gateway.listener.filters import FilterTree, filter_problem, matches
from gateway.listener.port import Admitted
from tests.gateway.listener.conftest import Served

levels = st.sampled_from(["a", "b", "", "$x"])
topics = st.lists(levels, min_size=1, max_size=4).map("/".join).filter(bool)
filters = st.lists(levels | st.just("+"), min_size=0, max_size=4).flatmap(
    lambda parts: st.sampled_from(["/".join([*parts, "#"]), "/".join(parts) or "#"])
)


@given(st.lists(st.tuples(filters, st.integers(0, 3)), max_size=12), st.data(), topics)
def test_the_tree_finds_what_matching_one_by_one_finds(
    entries: list[tuple[str, int]], data: st.DataObject, topic: str
) -> None:
    tree: FilterTree[int, str] = FilterTree()
    for topic_filter, subscriber in entries:
        tree.add(topic_filter, subscriber, topic_filter)
    gone = data.draw(st.lists(st.sampled_from(entries), max_size=4)) if entries else []
    for topic_filter, subscriber in gone:
        tree.remove(topic_filter, subscriber)
    left = {entry for entry in entries if entry not in gone}
    expected = sorted((who, one) for one, who in left if matches(one, topic))
    assert sorted(tree.match(topic)) == expected


@pytest.mark.parametrize(
    ("topic_filter", "topic", "matched"),
    [
        ("sport/tennis/player1/#", "sport/tennis/player1", True),  # 4.7.1.2
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
        ("sport/#", "sport", True),
        ("#", "anything/at/all", True),
        ("sport/tennis/+", "sport/tennis/player1/ranking", False),  # 4.7.1.3
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("+/+", "/finance", True),
        ("/+", "/finance", True),
        ("+", "/finance", False),
        ("#", "$SYS/monitor", False),  # 4.7.2
        ("+/monitor/Clients", "$SYS/monitor/Clients", False),
        ("$SYS/#", "$SYS/monitor", True),
        ("ACCOUNTS", "Accounts", False),  # 4.7.3
    ],
)
def test_the_standard_s_own_examples(topic_filter: str, topic: str, matched: bool) -> None:
    assert matches(topic_filter, topic) is matched


@pytest.mark.parametrize("topic_filter", ["a#", "a/#/b", "#/", "a+", "+a/b", "a/b+c", "/".join("a" * 33), "ä" * 513])
def test_a_filter_that_is_not_well_formed_is_named(topic_filter: str) -> None:
    assert filter_problem(topic_filter, 32, 1_024) is Reason.TOPIC_FILTER_INVALID


async def test_each_filter_of_a_subscribe_gets_its_own_answer(served: Served, version: int) -> None:
    client = await served.device("lamp", version=version)
    reasons = await client.subscribe(
        p.Filter("replies/#", 0),
        p.Filter("lamp/+/set", 2),
        p.Filter("d/door/replies/#", 1),
        p.Filter("#", 0),
        p.Filter("lamp/#/set", 0),
        p.Filter("$share/group/replies/#", 0),
    )
    five = (Reason.NOT_AUTHORIZED, Reason.NOT_AUTHORIZED, Reason.TOPIC_FILTER_INVALID, 0x9E)
    assert reasons == (0, 1, *(five if version == MQTT_5 else (0x80,) * 4))


async def test_an_unsubscribed_filter_delivers_nothing_more(served: Served, version: int) -> None:
    client = await served.device("lamp", version=version)
    await client.subscribe("lamp/+/set")
    client.send(p.Unsubscribe(4, ("lamp/+/set", "replies/#")))
    answer = await client.expect(p.UnsubAck)
    assert answer == p.UnsubAck(4, (0, Reason.NO_SUBSCRIPTION_EXISTED) if version == MQTT_5 else ())
    assert await served.listener.deliver("lamp/1/set", b"on") == 0
    await client.ping()


async def test_a_command_is_counted_for_each_connection_that_gets_it(served: Served, version: int) -> None:
    clients = [await served.device("lamp", f"c{number}", version) for number in range(3)]
    for client in clients:
        await client.subscribe("lamp/+/set")
    await served.device("door", "other", version)
    assert await served.listener.deliver("lamp/1/set", b"on") == 3
    for client in clients:
        message = await client.expect(p.Publish)
        assert (message.topic, message.payload, message.qos) == ("lamp/1/set", b"on", 1)


async def test_a_message_carries_the_identifiers_of_all_its_filters(served: Served) -> None:
    client = await served.device(version=MQTT_5)
    await client.subscribe("replies/#", properties=Properties(subscription_ids=(7,)))
    await client.subscribe("replies/+/+/+/accepted", properties=Properties(subscription_ids=(8,)))
    client.send(p.Publish(topic="signals/a/b", payload=b"{}"))
    message = await client.expect(p.Publish)
    assert sorted(message.properties.subscription_ids) == [7, 8]


async def test_no_local_keeps_a_message_from_its_publisher(served: Served) -> None:
    own, other = await served.device("lamp", "own", MQTT_5), await served.device("lamp", "other", MQTT_5)
    for client in (own, other):
        await client.subscribe(p.Filter("lamp/+/set", 1, no_local=True))
    assert await served.listener.deliver("lamp/1/set", b"on", publisher=("lamp", "own")) == 1
    await other.expect(p.Publish)
    await own.ping()


async def test_topics_are_shortened_by_aliases_where_the_client_takes_them(served: Served) -> None:
    client = await served.device("lamp", version=MQTT_5, properties=Properties(topic_alias_maximum=1))
    await client.subscribe(p.Filter("lamp/+/set", 0))
    for topic in ("lamp/1/set", "lamp/1/set", "lamp/2/set"):
        await served.listener.deliver(topic, b"on")
    first, second, third = [await client.expect(p.Publish) for _ in range(3)]
    assert (first.topic, first.properties.topic_alias) == ("lamp/1/set", 1)
    assert (second.topic, second.properties.topic_alias) == ("", 1)
    assert (third.topic, third.properties.topic_alias) == ("lamp/2/set", None)


async def test_a_subscription_replaced_takes_the_new_qos(served: Served, version: int) -> None:
    client = await served.device("lamp", version=version)
    await client.subscribe(p.Filter("lamp/+/set", 1))
    await client.subscribe(p.Filter("lamp/+/set", 0))
    await served.listener.deliver("lamp/1/set", b"on")
    assert (await client.expect(p.Publish)).qos == 0
    await client.ping()


async def test_thousands_of_receivers_leave_the_loop_to_others(served: Served) -> None:
    client = await served.device("lamp")
    await client.subscribe("lamp/+/set")
    turns = list(
        served.listener.around.sessions.deliver("lamp/1/set", b"on", qos=0, now=0.0, expires_at=None, publisher=None)
    )
    assert turns == [1]


async def test_a_flood_of_subscriptions_leaves_the_loop_to_others(
    serve: Callable[..., Awaitable[Served]],
) -> None:
    served = await serve(packets_burst=60 * 256)
    asked: list[str] = []

    def may_subscribe(who: Admitted, topic_filter: str) -> bool:
        asked.append(topic_filter)
        return True

    flood, other = await served.device("door", "flood"), await served.device("bell", "other")
    served.application.may_subscribe = may_subscribe  # type: ignore[method-assign]
    wanted = p.Subscribe(1, tuple(p.Filter(f"replies/{number}", 0) for number in range(256)))
    flood.send(*[wanted] * 60)
    await other.ping()
    assert len(asked) < 60 * 256
    for _ in range(60):
        assert len((await flood.expect(p.SubAck)).reasons) == 256
