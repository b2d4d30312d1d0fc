"""Proves that no door tells who may only signal whether a signal was held or delivered: byte by byte, on the wire."""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from tests.support import wire
from tests.support.command import typed
from tests.support.mosquitto import ANYBODY, free_port, mosquitto
from tests.support.serving import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

PORCH = """\
name: porch
jobs:
  - name: main
    steps:
      - name: identify
        task: { type: wait_for_signal, key: who, acceptEarly: 600, earlyPolicy: latest, timeout: 600 }
"""
PAYLOAD = b'{"who":"known"}'
DOORS = (
    *("listener 3.1.1", "listener 5", "listener WebSocket", "bridge 3.1.1", "bridge 5"),
    *("HTTP", "HTTP by wait", "WebSocket", "WebSocket by wait", "command"),
)
VALUES = re.compile(rb'("(?:receipt|at|id)": ?")([^"]+)"')
DATE = re.compile(rb"(?<=\r\ndate: )[^\r]+")


def masked(answer: bytes) -> bytes:
    """Make the values of receipt, time and id equal, each at its own length; nothing else is touched."""
    told = VALUES.sub(lambda found: found[1] + b"#" * len(found[2]) + b'"', answer)
    return DATE.sub(lambda found: b"#" * len(found[0]), told)


@dataclass
class House:
    """A gateway with every door, the broker that it is behind, and a caller at each door who may only signal."""

    gateway: Gateway
    api: httpx.AsyncClient
    broker: int
    web: int
    device: str
    operator: Path

    async def run(self, status: str) -> str:
        """Start a run, and return once it waits or has ended as `status` says."""
        run: str = (await self.api.post("/workflows/porch/runs", json={})).json()["run"]
        await self.until(run, status)
        return run

    async def until(self, run: str, status: str) -> None:
        after = 0
        while (await self.gateway.run(self.api, run))["status"] != status:
            events = (await self.api.get(f"/runs/{run}/events", params={"after": after, "wait": 5})).json()["events"]
            after = events[-1]["seq"] if events else after

    async def send(self, door: str, signal_id: str, wait: str = "") -> bytes:
        """Send the payload at a door; give what comes back, as it is on the wire."""
        gateway, where = self.gateway, "/".join(["signals/porch/who", *([signal_id] if signal_id else [])])
        version = 5 if door.endswith("5") else 4
        match door.split(maxsplit=1)[0]:
            case "listener":
                port, web = (self.web, True) if door.endswith("WebSocket") else (gateway.mqtt, False)
                return await wire.mqtt(port, "camera", self.device, where, PAYLOAD, version=version, web=web)
            case "bridge":
                return await wire.broker(self.broker, "camera", where, PAYLOAD, version=version)
            case "HTTP":
                headers = [f"Authorization: Bearer {self.device}"]
                headers += [f"Idempotency-Key: {signal_id}"] if signal_id else []
                path = f"/api/v1/waits/{wait}/signal" if wait else "/api/v1/signals/porch/who"
                return await wire.http(gateway.http, "POST", path, *headers, body=PAYLOAD)
            case "WebSocket":
                to = {"wait": wait} if wait else {"workflow": "porch", "key": "who"}
                message = {"type": "signal", "ref": 1, **to, "payload": json.loads(PAYLOAD)}
                message |= {"id": signal_id} if signal_id else {}
                return await wire.socket_message(gateway.http, self.device, json.dumps(message).encode())
            case _:
                to_cli = ("--id", signal_id) if signal_id else ()
                server = ("--server", f"127.0.0.1:{gateway.http}", "--token-file", str(self.operator))
                ran = await typed("signal", "porch", "who", PAYLOAD.decode(), "--json", *to_cli, *server)
                return (ran.out + ran.err).encode()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house() -> AsyncIterator[House]:
    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory) / "data"
        (data / "workflows").mkdir(parents=True)
        (data / "workflows" / "porch.yaml").write_text(PORCH)
        (data / "wayside.toml").write_text("[limits]\nsignals_burst = 1000\nconnects_burst = 1000\n")
        async with mosquitto(Path(directory), *ANYBODY) as broker:
            web = free_port()
            gateway = Gateway(data, environment={"WAYSIDE_BRIDGE__URL": f"mqtt://127.0.0.1:{broker}"})
            await gateway.start("--mqtt-ws", f"127.0.0.1:{web}")
            try:
                async with gateway.client() as api, asyncio.timeout(120):
                    yield await _house(gateway, api, broker, web, Path(directory))
            finally:
                await gateway.stop()


async def _house(gateway: Gateway, api: httpx.AsyncClient, broker: int, web: int, directory: Path) -> House:
    device = await gateway.add_device(api, "camera", ["signal:porch/who"])
    answer = await api.post("/operators", json={"operator": "porter", "rights": ["signal"]})
    answer.raise_for_status()
    operator = directory / "porter.token"
    operator.write_text(answer.json()["token"])
    base = f"http://127.0.0.1:{gateway.http}"
    async with httpx.AsyncClient(base_url=base, trust_env=False) as plain, asyncio.timeout(30):
        while (await plain.get("/readyz")).status_code != 200:
            await asyncio.sleep(0.05)  # the bridge has to be connected, too
    return House(gateway, api, broker, web, device, operator)


@pytest.mark.parametrize("door", DOORS)
async def test_held_delivered_repeated_and_superseded_are_the_same_bytes(house: House, door: str) -> None:
    names = [f"{door.replace(' ', '-').replace('.', '')}-{letter}" for letter in "abc"]
    by_key = door.removesuffix(" by wait")
    answers = {
        "held": await house.send(by_key, names[0]),
        "held in its place": await house.send(by_key, names[1]),
        "superseded, again": await house.send(by_key, names[0]),
    }
    await house.run("succeeded")
    answers["taken since, again"] = await house.send(by_key, names[1])
    run = await house.run("suspended")
    (wait,) = [it["wait"] for it in (await house.api.get("/waits")).json()["waits"] if it["run"] == run]
    to = wait if by_key != door else ""
    answers["delivered"] = await house.send(door, names[2], to)
    await house.until(run, "succeeded")
    answers["delivered, again"] = await house.send(door, names[2], to)
    assert len({VALUES.findall(answer)[1] for answer in answers.values()}) == 3, "three receipts"
    assert {name: masked(answer) for name, answer in answers.items()} == dict.fromkeys(answers, masked(answers["held"]))


@pytest.mark.parametrize("door", [door for door in DOORS if not door.endswith("by wait")])
async def test_without_a_signal_id_held_and_delivered_are_the_same_bytes(house: House, door: str) -> None:
    held = await house.send(door, "")
    await house.run("succeeded")
    run = await house.run("suspended")
    delivered = await house.send(door, "")
    await house.until(run, "succeeded")
    assert held != delivered
    assert masked(held) == masked(delivered)
