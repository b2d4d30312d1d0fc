"""Proves that maps work at both MQTT doors: what Zigbee2MQTT, Tasmota and a bare `ON` say signals as the device."""

from __future__ import annotations

import struct
from pathlib import Path

from tests.support.behind import behind, ear, workflow
from tests.support.brokers import Broker
from tests.support.command import wayside
from tests.support.plain_mqtt import PUBLISH, packet, text

MAP = """
[[map]]
topic = "zigbee2mqtt/+"
device = "door"
when = "topic[1] == 'door' && payload.contact == false"
signal = "porch/verdict"
payload = "{'n': payload.battery}"
"""
# One gateway, both doors: at its own listener only the hub's connection may publish there.
HOUSE = """
[[map]]
topic = "zigbee2mqtt/door"
device = "door"
via = "hub"
when = "payload.contact == false"
signal = "door-seen/verdict"
payload = "{'n': payload.battery}"

[[map]]
topic = "tele/+/SENSOR"
device = "cellar"
via = "hub"
when = "has(payload.AM2301) && payload.AM2301.Temperature > 40.0"
signal = "cellar-seen/verdict"
payload = "{'n': int(payload.AM2301.Temperature)}"

[[map]]
topic = "stat/bell/POWER"
device = "bell"
via = "hub"
when = "payload == 'ON'"
signal = "bell-seen/verdict"
payload = "{'n': 1}"
"""
SAID: tuple[tuple[str, str, bytes, bytes, int], ...] = (
    ("door", "zigbee2mqtt/door", b'{"contact":true,"battery":7}', b'{"contact":false,"battery":92}', 92),
    ("cellar", "tele/cellar/SENSOR", b'{"AM2301":{"Temperature":21.5}}', b'{"AM2301":{"Temperature":41.5}}', 41),
    ("bell", "stat/bell/POWER", b"OFF", b"ON", 1),
)


async def test_a_state_message_signals_once_and_its_replay_does_not(tmp_path: Path, mosquitto: Broker) -> None:
    async with behind(tmp_path, mosquitto, start=False) as bridged:
        (tmp_path / "data" / "wayside.toml").write_text(MAP)
        async with bridged.device("hub") as hub:
            body = text("zigbee2mqtt/door") + struct.pack("!H", 60_000) + b'{"contact":false,"battery":1}'
            hub.client.writer.write(packet(PUBLISH | 3, body))
            await hub.tell("flush", b"")
        await bridged.start()
        await bridged.add("door", "signal:porch/verdict", "run:porch")
        async with bridged.device("door") as door, bridged.listener("sirens/#") as siren:
            await door.tell("zigbee2mqtt/door", {"contact": True, "battery": 90})
            await door.tell("zigbee2mqtt/window", {"contact": False, "battery": 91})
            await door.tell("zigbee2mqtt/door", {"contact": False, "battery": 92})
            topic, reply = await door.next()
            assert (topic, reply["ok"]) == ("d/door/replies/signals/porch/verdict/accepted", True)
            _, reply = await door.ask("d/door/runs/porch/r1", {})
            assert reply["ok"]
            assert await siren.next() == ("sirens/porch", {"n": 92})
        held = await bridged.audited(action="signal.held")
        assert [event["principal"] for event in held] == ["device:door"]


async def test_zigbee2mqtt_tasmota_and_a_bare_on_signal_at_the_bridge_and_at_the_listener(
    tmp_path: Path, mosquitto: Broker
) -> None:
    async with behind(tmp_path, mosquitto, start=False) as bridged:
        (tmp_path / "data" / "wayside.toml").write_text(HOUSE)
        for name, *_ in SAID:
            text = workflow(f"{name}-seen", early_seconds=60)
            (tmp_path / "data" / "workflows" / f"{name}-seen.yaml").write_text(text)
        await bridged.start()
        for name, *_ in SAID:
            await bridged.add(name, f"signal:{name}-seen/verdict")
        async with bridged.api() as api:
            token = await bridged.gateway.add_device(api, "hub", [])
        for port in (mosquitto.port, bridged.gateway.mqtt):
            async with (
                ear(port, "hub", "replies/#", password=token) as hub,
                bridged.listener("sirens/#") as siren,
                bridged.api() as api,
            ):
                for name, topic, idle, telling, n in SAID:
                    await hub.tell(topic, idle)
                    await hub.tell(topic, telling)
                    # The idle word before it was no signal.
                    (await api.post(f"/workflows/{name}-seen/runs", json={})).raise_for_status()
                    assert await siren.next() == (f"sirens/{name}-seen", {"n": n})
                assert siren.heard.empty()
        # At the bridge the run may have come to its wait before the signal, which is then delivered and not held.
        for door in ("bridge", "mqtt"):
            came = [
                it for it in await bridged.audited(door=door) if it["action"] in {"signal.held", "signal.delivered"}
            ]
            assert sorted(it["principal"] for it in came) == ["device:bell", "device:cellar", "device:door"]


async def test_map_test_says_what_comes_of_a_message(tmp_path: Path) -> None:
    (tmp_path / "wayside.toml").write_text(MAP)
    arguments = ("map", "test", "--data", str(tmp_path))
    ran = await wayside(*arguments, "zigbee2mqtt/door", '{"contact":false,"battery":3}')
    assert ran.out == 'map 1: door signals signals/porch/verdict {"n":3}\n'
    ran = await wayside(*arguments, "zigbee2mqtt/door", '{"contact":true}', "--json", status=1)
    assert ran.json["maps"][0]["why"] == "`when` is not true"
    ran = await wayside(*arguments, "other", "x", status=1)
    assert "no map has a topic that matches" in ran.out
