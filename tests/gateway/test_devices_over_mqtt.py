"""Proves on real sockets, with the real engine: signals move runs, floods are told so, revoked devices are put out."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from devices import operations
from devices.model import LimitOverrides, Rate
from engine.clock import SystemSource, rfc3339
from engine.events import Whose
from engine.service import Engine
from engine.store.memory import ManualClock, MemoryStore
from engine.workflows.loading import Catalog
from gateway.audit import Audit
from gateway.deliver import Deliver
from gateway.listener.codec import MQTT_3_1_1, MQTT_5
from gateway.listener.codec import packets as p
from gateway.listener.limits import ListenerLimits
from gateway.listener.server import Listener
from gateway.mqtt_door import MqttDoor
from tests.gateway.listener.client import RawClient
from tests.support.doors import Gatehouse

FRONT_DOOR = """
name: front-door
jobs:
  - name: main
    steps:
      - name: identify
        task: { type: wait_for_signal, key: kitchen-verdict, acceptEarly: 10, timeout: 30 }
"""
TOPIC = "signals/front-door/kitchen-verdict"
GRANT = "signal:front-door/kitchen-verdict"
KNOWN = b'{"verdict":"known"}'


class Silent:
    async def publish(self, topic: str, payload: bytes, whose: Whose) -> int:
        return 0


@dataclass
class Site:
    house: Gatehouse
    engine: Engine
    host: str
    port: int

    async def client(self, name: str, token: str, version: int = MQTT_3_1_1, *, client_id: str = "c1") -> RawClient:
        client = await RawClient.open(self.host, self.port, version=version)
        connack = await client.connect(name, client_id, password=token.encode())
        assert connack.reason == 0
        return client


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    (tmp_path / "front-door.yaml").write_text(FRONT_DOOR)
    catalog = Catalog(tmp_path)
    catalog.reload()
    store = MemoryStore(ManualClock())
    source = SystemSource()
    audit = Audit(store, "one", source)
    async with Engine(store, catalog, observer=audit, publisher=Silent(), source=source) as engine:
        house = Gatehouse(engine, store)
        house.audit = audit
        house.deliver = Deliver(engine, house.authority, house.limits, audit, source)
        door = MqttDoor(house.deliver, house.authority, house.limits, audit, source)
        listener = Listener(door, ListenerLimits(), source)
        door.attach(listener, house.registry)
        host, port = await listener.start_tcp("127.0.0.1", 0)
        yield Site(house, engine, host, port)
        await listener.stop(1.0)


async def added(site: Site, *grants: str, limits: LimitOverrides | None = None) -> str:
    limits = limits or LimitOverrides()
    return (await operations.add(site.house.registry, "kitchen", grants=grants, limits=limits, by="user:admin")).token


async def answered(client: RawClient) -> tuple[p.Publish, dict[str, Any]]:
    reply = await client.expect(p.Publish)
    if reply.packet_id is not None:
        client.send(p.PubAck(reply.packet_id))
    return reply, json.loads(reply.payload)


@pytest.mark.parametrize("version", [MQTT_3_1_1, MQTT_5])
@pytest.mark.parametrize("head", ["", "d/kitchen/"])
async def test_a_signal_in_time_moves_the_run_and_its_reply_comes_before_the_puback(
    site: Site, version: int, head: str
) -> None:
    client = await site.client("kitchen", await added(site, GRANT), version)
    assert await client.subscribe(f"{head}replies/#") == (1,)
    run = await site.engine.start_run("front-door", {}, by="user:admin")
    await site.engine.settled(run)
    client.send(p.Publish(topic=f"{TOPIC}/s-1", payload=KNOWN, qos=1, packet_id=7))
    reply, words = await answered(client)
    assert reply.topic == f"{head}replies/signals/front-door/kitchen-verdict/accepted"
    assert (words["ok"], words["code"], words["id"]) == (True, 202, "s-1")
    assert (await client.expect(p.PubAck)).packet_id == 7
    await site.engine.settled(run)
    step = (await site.engine.run(run))["jobs"][0]["steps"][0]
    assert step["outputs"] == {"payload": {"verdict": "known"}, "receipt": words["receipt"]}
    await client.close()


async def test_early_late_and_refused_signals_are_answered_on_one_connection_in_order(site: Site) -> None:
    client = await site.client("kitchen", await added(site, GRANT), MQTT_5)
    await client.subscribe("replies/#")
    client.send(
        p.Publish(topic=TOPIC, payload=KNOWN, qos=1, packet_id=1),
        p.Publish(topic=TOPIC, payload=KNOWN, qos=1, packet_id=2),
        p.Publish(topic="signals/front-door/other", payload=KNOWN, qos=1, packet_id=3),
        p.Publish(topic=TOPIC, payload=b"not json", qos=1, packet_id=4),
    )
    errors, reasons = [], []
    for _ in range(8):
        packet = await client.next()
        match packet:
            case p.Publish(payload=payload):
                errors.append(json.loads(payload).get("error", ""))
            case p.PubAck(packet_id=number, reason=reason):
                reasons.append((number, reason))
            case _:
                pytest.fail(repr(packet))
    assert sorted(errors) == ["", "bad_payload", "early_signal_held", "not_found"]
    assert reasons == [(1, 0x00), (2, 0x83), (3, 0x87), (4, 0x99)]
    await client.close()


@pytest.mark.parametrize("version", [MQTT_3_1_1, MQTT_5])
async def test_over_its_rate_each_signal_with_an_id_is_told_the_limit_and_of_others_one_a_second(
    site: Site, version: int
) -> None:
    slow = LimitOverrides(signals=Rate(per_second=0.001, burst=2))
    client = await site.client("kitchen", await added(site, GRANT, limits=slow), version)
    await client.subscribe("replies/#")
    named = [p.Publish(topic=f"{TOPIC}/s-{n}", payload=KNOWN, qos=1, packet_id=n) for n in range(1, 11)]
    nameless = [p.Publish(topic=TOPIC, payload=b'{"n":%d}' % n, qos=1, packet_id=n) for n in range(11, 31)]
    began = time.monotonic()
    client.send(*named, *nameless)
    acknowledged: list[tuple[int, int]] = []
    answers: dict[str, dict[str, Any]] = {}
    while len(acknowledged) < 30:
        packet = await client.next()
        match packet:
            case p.Publish(payload=payload):
                words = json.loads(payload)
                answers[words["id"]] = words
                client.send(p.PubAck(packet.packet_id or 0))
            case p.PubAck(packet_id=number, reason=reason):
                acknowledged.append((number, reason))
            case _:
                pytest.fail(repr(packet))
    # Every one is acknowledged in its turn; the connection stays.
    assert [number for number, _ in acknowledged] == list(range(1, 31))
    assert {reason for _, reason in acknowledged[2:]} == ({0x97} if version == MQTT_5 else {0})
    limited = {name: words for name, words in answers.items() if words["code"] == 429}
    assert {name for name in limited if name.startswith("s-")} == {f"s-{n}" for n in range(3, 11)}
    assert {(words["error"], words["limit"]) for words in limited.values()} == {("rate_limited", "signals")}
    assert all(words["retry_after_ms"] > 0 for words in limited.values())
    assert len(limited) - 8 <= time.monotonic() - began
    await client.ping()
    await client.close()


@pytest.mark.parametrize("said", ["1970-01-01T00:00:00Z", "2099-12-31T23:59:59Z"])
async def test_a_device_whose_clock_is_wrong_is_answered_with_the_gateway_s_time(site: Site, said: str) -> None:
    client = await site.client("kitchen", await added(site, GRANT), MQTT_5)
    await client.subscribe("replies/#")
    payload = json.dumps({"verdict": "known", "at": said}).encode()
    stamped = p.Properties(user=(("time", said),), message_expiry=1)
    client.send(p.Publish(topic=f"{TOPIC}/s-1", payload=payload, qos=1, packet_id=1, properties=stamped))
    _, words = await answered(client)
    assert (words["ok"], words["id"]) == (True, "s-1")
    assert words["at"] == rfc3339(ManualClock().now())
    assert (await client.expect(p.PubAck)).reason == 0
    await client.close()


@pytest.mark.parametrize("end", ["revoke", "disable", "delete"])
async def test_a_device_that_is_put_out_is_disconnected_and_kept_out(site: Site, end: str) -> None:
    token = await added(site, GRANT)
    client = await site.client("kitchen", token)
    await client.ping()
    await getattr(operations, end)(site.house.registry, "kitchen", by="user:admin")
    assert [packet for packet in await client.rest() if not isinstance(packet, p.Disconnect)] == []
    await client.close()
    again = await RawClient.open(site.host, site.port)
    assert (await again.connect("kitchen", password=token.encode())).reason != 0
    await again.close()


@pytest.mark.parametrize("version", [MQTT_3_1_1, MQTT_5])
async def test_a_finished_rotation_ends_the_old_token_s_connection_and_not_the_new_one_s(
    site: Site, version: int
) -> None:
    token = await added(site, GRANT, "listen:lamps/#")
    rotated = await operations.rotate(site.house.registry, "kitchen", by="user:admin")
    old = await site.client("kitchen", token, version, client_id="old")
    new = await site.client("kitchen", rotated.token, version, client_id="new")
    assert await new.subscribe("lamps/#", "replies/#") == (1, 1)
    # What is looked at again for a changed grant stays the connection of the token that it was made with.
    await operations.ungrant(site.house.registry, "kitchen", "listen:lamps/#", by="user:admin")
    await operations.finish_rotation(site.house.registry, "kitchen", by="user:admin")
    told = await old.rest()
    assert [it.reason for it in told if isinstance(it, p.Disconnect)] == ([0x87] if version == MQTT_5 else [])
    new.send(p.Publish(topic=TOPIC, payload=KNOWN, qos=1, packet_id=1))
    _, words = await answered(new)
    assert words["ok"]
    await old.close()
    await new.close()


async def test_a_wrong_token_and_an_unknown_name_get_the_same_connack(site: Site) -> None:
    await added(site, GRANT)
    answers = []
    for name in ("kitchen", "nobody"):
        client = await RawClient.open(site.host, site.port)
        answers.append(await client.connect(name, password=b"wsd_wrong"))
        await client.close()
    assert answers[0] == answers[1]
    assert answers[0].reason != 0


async def test_a_grant_that_is_taken_away_ends_the_subscription_that_it_allowed(site: Site) -> None:
    client = await site.client("kitchen", await added(site, "listen:lamps/#"))
    assert await client.subscribe("lamps/#", "sirens/#") == (1, 0x80)
    await operations.ungrant(site.house.registry, "kitchen", "listen:lamps/#", by="user:admin")
    assert await client.subscribe("lamps/#") == (0x80,)
    await client.close()
