"""Proves that maps make signals of what Zigbee2MQTT, Tasmota and a bare `ON` publish, by the mapped device's grants."""

from __future__ import annotations

from typing import Any

import pytest

from devices import operations
from engine.errors import BadInput
from gateway.listener.port import Admitted, Handled, Published
from gateway.maps import Mapped, Maps
from gateway.mqtt_door import MqttDoor
from gateway.settings import MapTable
from tests.gateway.test_mqtt_door import ADDRESS, Site


def maps(*tables: dict[str, str]) -> Maps:
    return Maps([MapTable(**table) for table in tables])


ZIGBEE = {
    "topic": "zigbee2mqtt/door",
    "device": "door",
    "when": "payload.contact == false",
    "signal": "front-door/door-opened",
    "payload": "{'open': true}",
}
TASMOTA = {
    "topic": "tele/+/SENSOR",
    "device": "cellar",
    "when": "has(payload.AM2301) && payload.AM2301.Temperature > 40.0",
    "signal": "alarm/heat",
    "payload": "{'celsius': payload.AM2301.Temperature, 'room': topic[1]}",
}
BARE = {
    "topic": "stat/+/POWER",
    "device": "bell",
    "when": "payload == 'ON'",
    "signal": "bell/rung",
    "payload": "{'n': 1}",
}
ALL = maps(ZIGBEE, TASMOTA, BARE)


@pytest.mark.parametrize(
    ("topic", "payload", "made"),
    [
        (
            "zigbee2mqtt/door",
            b'{"contact":false,"battery":91}',
            Mapped("door", "signals/front-door/door-opened", b'{"open":true}'),
        ),
        ("zigbee2mqtt/door", b'{"contact":true}', None),
        ("zigbee2mqtt/door", b'{"battery":91}', None),
        ("zigbee2mqtt/door", b"online", None),
        ("zigbee2mqtt/window", b'{"contact":false}', None),
        (
            "tele/boiler/SENSOR",
            b'{"Time":"2026-01-01T00:00:00","AM2301":{"Temperature":41.5,"Humidity":30}}',
            Mapped("cellar", "signals/alarm/heat", b'{"celsius":41.5,"room":"boiler"}'),
        ),
        ("tele/boiler/SENSOR", b'{"AM2301":{"Temperature":21.5}}', None),
        ("tele/boiler/SENSOR", b'{"AM2301":{"Temperature":null}}', None),
        ("stat/front/POWER", b"ON", Mapped("bell", "signals/bell/rung", b'{"n":1}')),
        ("stat/front/POWER", b"OFF", None),
        ("stat/front/POWER", b"", None),
        ("stat/front/POWER", b"\xff", None),
        ("stat/front/POWER", b'"\\u0000"', None),
        ("stat/front/POWER", b"[" * 5000, None),
    ],
)
def test_a_message_becomes_a_signal_or_nothing(topic: str, payload: bytes, made: Mapped | None) -> None:
    assert ALL.read(topic, payload) == ([made] if made else [])


def test_a_signal_id_can_be_made_from_the_message_and_a_bad_one_makes_no_signal() -> None:
    found = maps(ZIGBEE | {"id": "string(payload.seq)"})
    assert found.read("zigbee2mqtt/door", b'{"contact":false,"seq":7}')[0].topic == "signals/front-door/door-opened/7"
    tried = list(found.tried("zigbee2mqtt/door", b'{"contact":false,"seq":"a b"}'))
    assert tried[0].mapped is None
    assert "id" in tried[0].why


def test_without_expressions_an_object_goes_on_as_it_is() -> None:
    found = maps({"topic": "raw/x", "device": "x", "signal": "a/b"})
    assert found.read("raw/x", b'{"b":[1,2.5,null],"a":"\xc3\xa9"}') == [
        Mapped("x", "signals/a/b", '{"a":"é","b":[1,2.5,null]}'.encode())
    ]
    assert found.read("raw/x", b"[1]") == []


def test_every_mistake_is_named_at_the_start() -> None:
    with pytest.raises(BadInput) as caught:
        maps(
            ZIGBEE | {"when": "payload.contact = false"},
            ZIGBEE | {"topic": "d/+/signals/#"},
            ZIGBEE | {"signal": "front-door"},
            ZIGBEE | {"payload": "nothing_known"},
            {"topic": "a/+", "device": "x", "signal": "a/b"},
            {"topic": "+/a", "device": "x", "signal": "a/b"},
            {"topic": "c/+/a", "device": "x", "signal": "a/b"},
            {"topic": "c/b/+", "device": "X", "signal": "a/b"},
        )
    text = "\n".join(caught.value.problems)
    named = "map 1: when|map 2: topic|map 3: signal|map 4: payload|map 6: topic|map 8: device|c/+/a and c/b/+"
    for words in named.split("|"):
        assert words in text


def test_a_mistake_is_named_with_the_place_of_its_map() -> None:
    tables = [MapTable(**BARE), MapTable(**ZIGBEE | {"signal": "front-door"})]
    with pytest.raises(BadInput) as caught:
        Maps(tables, ["wayside.toml:1", "wayside.toml:7"])
    assert caught.value.problems == ("wayside.toml:7: map 2: signal: a signal is written WORKFLOW/KEY",)


def test_a_filter_that_another_covers_is_not_subscribed_to_twice() -> None:
    found = maps(ZIGBEE | {"topic": "zigbee2mqtt/#"}, ZIGBEE, BARE)
    assert found.filters == ["zigbee2mqtt/#", "stat/+/POWER"]


# -- on the listener ---------------------------------------------------------------------------------------------------


class Mapping(Site):
    """A site whose door has the maps."""

    def __init__(self, *tables: dict[str, str]) -> None:
        super().__init__()
        house = self.house
        self.door = MqttDoor(
            house.deliver, house.authority, house.limits, house.audit, house.source, maps=maps(*tables)
        )

    async def tell(self, who: Admitted, topic: str, payload: bytes) -> Any:
        return await self.door.publish(who, Published(topic, payload, 1), address=ADDRESS)


async def test_on_the_listener_the_mapped_device_signals_with_its_own_grants() -> None:
    site = Mapping(ZIGBEE)
    door = await site.device("door", "signal:front-door/door-opened")
    handled = await site.tell(door, "zigbee2mqtt/door", b'{"contact":false}')
    (reply,) = handled.replies
    assert (reply.device, reply.topic) == ("door", "replies/signals/front-door/door-opened/accepted")
    assert handled.reason == 0
    assert site.engine.asked == [("signal_key", "front-door", "door-opened", "door", None)]
    # What a map makes nothing of counts all the same.
    told = [await site.tell(door, "zigbee2mqtt/door", b'{"contact":true}') for _ in range(20)]
    assert told == [Handled()] * 19 + [Handled(reason=0x97, reason_string="Too many at a time")]
    assert len(site.engine.asked) == 1


async def test_on_the_listener_another_device_uses_a_map_only_where_it_says_so() -> None:
    site = Mapping(ZIGBEE)
    await site.device("door", "signal:front-door/door-opened")
    stranger = await site.device("stranger")
    handled = await site.tell(stranger, "zigbee2mqtt/door", b'{"contact":false}')
    assert handled.reason != 0
    assert site.engine.asked == []
    site = Mapping(ZIGBEE | {"via": "hub"})
    await site.device("door", "signal:front-door/door-opened")
    hub = await site.device("hub")
    handled = await site.tell(hub, "zigbee2mqtt/door", b'{"contact":false}')
    assert site.engine.asked == [("signal_key", "front-door", "door-opened", "door", None)]
    # It is the door that is answered: neither its receipts nor its refusals are anybody else's.
    assert [(reply.device, handled.reason) for reply in handled.replies] == [("door", 0)]


async def test_a_mapped_device_that_was_revoked_or_has_no_grant_signals_nothing() -> None:
    site = Mapping(ZIGBEE | {"via": "hub"})
    await site.device("door")
    hub = await site.device("hub", "signal:front-door/door-opened")
    await site.tell(hub, "zigbee2mqtt/door", b'{"contact":false}')
    await operations.grant(site.house.registry, "door", "signal:front-door/door-opened", by="user:admin")
    await operations.revoke(site.house.registry, "door", by="user:admin")
    await site.tell(hub, "zigbee2mqtt/door", b'{"contact":false}')
    assert site.engine.asked == []
