"""What gateways over one store do together, told from outside: by their doors, and by killing one of them."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import Any

import httpx

from tests.support.plain_mqtt import PlainClient, Refused
from tests.support.serving import Gateway

SECONDS = 90.0
DOOR = """
name: door
jobs:
  - name: main
    steps:
      - name: verdict
        task: {{ type: wait_for_signal, key: verdict, {early} timeout: 600 }}
"""
SHORT = """
name: {name}
jobs:
  - name: main
    steps:
      - name: verdict
        task: {{ type: wait_for_signal, key: verdict, timeout: 2 }}
"""
CALL = """
name: call
jobs:
  - name: main
    steps:
      - name: call
        idempotent: true
        task: {{ type: http, url: "http://127.0.0.1:{port}/", timeout: 120 }}
"""


@dataclass
class Bell:
    """An HTTP server for a step: it leaves the first who calls without an answer, and answers the others."""

    port: int = 0
    rung: asyncio.Event = field(default_factory=asyncio.Event)
    calls: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.calls += 1
        self.rung.set()
        if self.calls > 1:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
        else:
            await reader.read()
        writer.close()


@dataclass
class Device:
    """A device on one gateway, and its answers in order."""

    client: PlainClient
    heard: asyncio.Queue[dict[str, Any]]

    async def signal(self, number: int, signal_id: str = "", *, workflow: str = "door") -> dict[str, Any]:
        """Signal, and give the answer."""
        tail = f"/{signal_id}" if signal_id else ""
        assert await self.client.publish(f"signals/{workflow}/verdict{tail}", json.dumps({"n": number}).encode())
        return await asyncio.wait_for(self.heard.get(), SECONDS)


@dataclass
class Together:
    """The gateways, a device's token, and the clients of their APIs."""

    gateways: list[Gateway]
    apis: list[httpx.AsyncClient]
    bell: Bell
    stack: AsyncExitStack

    async def device(self, at: int, token: str, name: str) -> Device:
        heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        client = await PlainClient.connect(
            self.gateways[at].mqtt, name, token, client_id=f"{name}-{at}",
            heard=lambda _, payload: heard.put_nowait(json.loads(payload)),
        )  # fmt: skip
        self.stack.push_async_callback(client.close)
        return Device(client, heard)

    async def start(self, at: int, workflow: str = "door") -> str:
        answer = await self.apis[at].post(f"/workflows/{workflow}/runs", json={"inputs": {}})
        answer.raise_for_status()
        return str(answer.json()["run"])

    async def run(self, at: int, run: str) -> dict[str, Any]:
        return await self.gateways[at].run(self.apis[at], run)

    async def becomes(self, at: int, run: str, status: str) -> dict[str, Any]:
        """Ask one gateway until a run is in this state there."""
        give_up_at = monotonic() + SECONDS
        while True:
            shown = await self.run(at, run)
            if shown["status"] == status:
                return shown
            ended = shown["status"] in {"succeeded", "failed", "cancelled"}
            assert not ended, f"the run {shown['status']} and should be {status}: {shown}"
            assert monotonic() < give_up_at, f"the run stays {shown['status']}"
            await asyncio.sleep(0.05)


def taken(shown: dict[str, Any]) -> object:
    """Give the number that a run's wait was signalled with."""
    step = shown["jobs"][0]["steps"][0]
    return step["outputs"]["payload"]["n"]


@asynccontextmanager
async def together(
    directory: Path,
    url: str,
    shifts: Sequence[float],
    *,
    hosts: Sequence[str] | None = None,
    builds: Sequence[Path] = (),
    **environment: str,
) -> AsyncIterator[Together]:
    """Run a gateway for each of `shifts`, by which its host's clock is off; each has a directory of its own.

    With `hosts` none sees the others' locks, as if each ran on a host of its own. `builds` are the trees of code that
    they run from, where it is not this one; their clocks are right.
    """
    async with AsyncExitStack() as stack:
        bell = Bell()
        server = await asyncio.start_server(bell.serve, "127.0.0.1", 0)
        stack.callback(server.close)
        bell.port = server.sockets[0].getsockname()[1]
        workflows = directory / "workflows"
        workflows.mkdir()
        texts = {
            "door": DOOR.format(early="acceptEarly: 600,"), "call": CALL.format(port=bell.port),
            **{name: SHORT.format(name=name) for name in ("short", "short1", "short2")},
        }  # fmt: skip
        for name, text in texts.items():
            (workflows / f"{name}.yaml").write_text(text)
        gateways = []
        for at, shift in enumerate(shifts):
            data = directory / f"host{at}"
            data.mkdir(mode=0o700)
            own = {"SHIFT": str(shift), **({"HOST": hosts[at]} if hosts else {}), **environment}
            if builds:
                gateways.append(Gateway(data, environment=own, root=builds[at]))
            else:
                program = (sys.executable, "-m", "tests.instances.shifted")
                gateways.append(Gateway(data, program, environment=own))
        for gateway in gateways:
            stack.push_async_callback(_end, gateway)
        await asyncio.gather(*(gateway.start("--store", url, "--workflows", str(workflows)) for gateway in gateways))
        apis = [await stack.enter_async_context(gateway.client()) for gateway in gateways]
        async with AsyncExitStack() as clients:
            yield Together(gateways, apis, bell, clients)


async def _end(gateway: Gateway) -> None:
    if gateway.process is not None and gateway.process.returncode is None:
        await gateway.stop()


async def signals_and_waits_meet(all_: Together, token: str) -> None:
    """A wait opened on one and its signal at another, in both orders, for every pair; a repeat at a third."""
    count = len(all_.gateways)
    devices = [await all_.device(at, token, "camera") for at in range(count)]
    number = 0
    for opener in range(count):
        for sender in range(count):
            if opener == sender:
                continue
            number += 1
            run = await all_.start(opener)
            await all_.becomes(sender, run, "suspended")
            assert (await devices[sender].signal(number))["ok"]
            assert taken(await all_.becomes(opener, run, "succeeded")) == number
            number += 1
            answer = await devices[sender].signal(number, f"s{number}")
            assert answer["ok"]
            run = await all_.start(opener)
            assert taken(await all_.becomes(sender, run, "succeeded")) == number
            # What was taken already is neither held nor applied again, wherever it is sent to.
            again = await devices[opener].signal(number, f"s{number}")
            assert (again["ok"], again["receipt"]) == (True, answer["receipt"])
    run = await all_.start(0)
    await all_.becomes(count - 1, run, "suspended")
    for api in all_.apis:
        held = (await api.get("/waits")).json()["pending"]
        assert held == []
    # Sweeps have passed over the wait in between, by hosts whose clocks are off: it is still open.
    assert (await devices[-1].signal(1_000))["ok"]
    await all_.becomes(0, run, "succeeded")


async def a_deadline_is_the_stores(all_: Together) -> None:
    """A wait of two seconds lasts two seconds of the store's clock, whoever opens it and whoever times it out."""
    runs = [await all_.start(at, "short" if at == 0 else f"short{at}") for at in range(len(all_.gateways))]
    for at, run in enumerate(runs):
        await all_.becomes(at, run, "failed")
        events = (await all_.apis[at].get(f"/runs/{run}/events")).json()["events"]
        first, last = (datetime.fromisoformat(event["at"]) for event in (events[0], events[-1]))
        # Object stores stamp whole seconds.
        assert 1 <= (last - first).total_seconds() < 30, (first, last)


async def a_dead_ones_runs_go_on(all_: Together, token: str) -> None:
    """SIGKILL the first gateway in the middle of a step, with a wait of its own open; the others finish both."""
    waiting = await all_.start(0)
    await all_.becomes(1, waiting, "suspended")
    calling = await all_.start(0, "call")
    await asyncio.wait_for(all_.bell.rung.wait(), SECONDS)
    await all_.gateways[0].kill()
    device = await all_.device(1, token, "camera")
    assert (await device.signal(7))["ok"]
    assert taken(await all_.becomes(1, waiting, "succeeded")) == 7
    await all_.becomes(1, calling, "succeeded")
    assert all_.bell.calls == 2


async def a_revocation_binds_on_all(all_: Together) -> None:
    """Revoke at one: the device's connections to all end, and none of them lets it in again."""
    everywhere = range(len(all_.gateways))
    token = await all_.gateways[0].add_device(all_.apis[0], "lost", ["signal:door"])
    devices = [await _let_in(all_, at, token, "lost") for at in everywhere]
    (await all_.apis[-1].post("/devices/lost/revoke")).raise_for_status()
    for device in devices:
        await asyncio.wait_for(device.client.lost.wait(), SECONDS)
    for at in everywhere:
        try:
            await all_.device(at, token, "lost")
        except Refused:
            continue
        raise AssertionError(f"gateway {at} let a revoked device in")


async def whole_story(all_: Together) -> None:
    """Tell all of it; the first gateway is dead afterwards."""
    token = await all_.gateways[0].add_device(all_.apis[0], "camera", ["signal:door"])
    for at in range(len(all_.gateways)):
        await (await _let_in(all_, at, token, "camera")).client.close()
    await signals_and_waits_meet(all_, token)
    await a_deadline_is_the_stores(all_)
    await a_revocation_binds_on_all(all_)
    await a_dead_ones_runs_go_on(all_, token)


async def _let_in(all_: Together, at: int, token: str, name: str) -> Device:
    """Connect, once the gateway has heard of the device: within seconds, 10 of them on object stores."""
    give_up_at = monotonic() + SECONDS
    while True:
        try:
            return await all_.device(at, token, name)
        except Refused:
            assert monotonic() < give_up_at, f"gateway {at} does not learn of the device"
            await asyncio.sleep(0.1)
