"""Proves on real sockets, with the real engine: a device's signal moves a run, and a revoked device is put out."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from devices import operations
from engine.clock import SystemSource
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
    async def publish(self, topic: str, payload: bytes) -> int:
        return 0


@dataclass
class Site:
    house: Gatehouse
    engine: Engine
    host: str
    port: int

    async def client(self, name: str, token: str, version: int = MQTT_3_1_1) -> RawClient:
        client = await RawClient.open(self.host, self.port, version=version)
        connack = await client.connect(name, password=token.encode())
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


async def added(site: Site, *grants: str) -> str:
    return (await operations.add(site.house.registry, "kitchen", grants=grants, by="user:admin")).token


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
