"""Proves that maps work on the bridge: a state message, retained by habit, signals as the device it is from."""

from __future__ import annotations

import struct
from pathlib import Path

from tests.support.behind import behind
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


async def test_map_test_says_what_comes_of_a_message(tmp_path: Path) -> None:
    (tmp_path / "wayside.toml").write_text(MAP)
    arguments = ("map", "test", "--data", str(tmp_path))
    ran = await wayside(*arguments, "zigbee2mqtt/door", '{"contact":false,"battery":3}')
    assert ran.out == 'map 1: door signals signals/porch/verdict {"n":3}\n'
    ran = await wayside(*arguments, "zigbee2mqtt/door", '{"contact":true}', "--json", status=1)
    assert ran.json["maps"][0]["why"] == "`when` is not true"
    ran = await wayside(*arguments, "other", "x", status=1)
    assert "no map has a topic that matches" in ran.out
