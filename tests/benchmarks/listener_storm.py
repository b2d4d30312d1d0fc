"""Measure a storm: thousands of devices connect at once while one that is connected goes on signalling.

    python -m tests.benchmarks.listener_storm [--devices 2000] [--allowed 200] [--json]

Against a `wayside serve` of its own with that many devices, and a workflow for which each of the steady device's
signals is held, on disk, in place of the one before. First within the limits: how long until all are in, the steady
device's time from PUBLISH to PUBACK meanwhile, and how long `/healthz` took to answer, asked over and over. Then with a
limit of `--allowed` connects: how long until every device has been let in or told why not. Ends with 1 when either
takes 10 s or more, the steady device's 99th percentile reaches 1 s, or `/healthz` does not answer within 1 s.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import selectors
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path

from devices import operations
from devices.model import LimitOverrides, Rate
from gateway.composing import compose
from gateway.config import load
from gateway.listener.codec import MQTT_5, StreamDecoder, encode
from gateway.listener.codec import packets as p
from tests.support.serving import Gateway

MOST_SECONDS = 10.0
MOST_P99_SECONDS = 1.0
MOST_HEALTHZ_SECONDS = 1.0
PATIENCE_SECONDS = 30.0
PAUSE_SECONDS = 0.05  # between two signals of the steady device, and two questions to /healthz
REASON_AT = 3  # of a CONNACK whose remaining length takes one byte
STEADY = "steady"
WORKFLOW = """\
name: front-door
jobs:
  - name: main
    steps:
      - name: identify
        task: { type: wait_for_signal, key: verdict, acceptEarly: 600, earlyPolicy: latest, timeout: 600 }
"""


class Device(asyncio.Protocol):
    """Connects, and tells each packet that it gets."""

    def __init__(self, name: str, token: str, heard: Callable[[p.Packet], None]) -> None:
        self._name = name
        self._token = token
        self._heard = heard
        self._decoder = StreamDecoder(65_536, MQTT_5)
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.send(connect(self._name, self._token))

    def send(self, packet: p.Packet) -> None:
        assert self.transport is not None
        self.transport.write(encode(packet, MQTT_5))

    def data_received(self, data: bytes) -> None:
        self._decoder.feed(data)
        while (packet := self._decoder.next()) is not None:
            self._heard(packet)


def connect(name: str, token: str) -> p.Connect:
    """Make a device's CONNECT."""
    return p.Connect(version=MQTT_5, client_id=name, username=name, password=token.encode(), keep_alive=60)


async def _steady(port: int, token: str, stop: asyncio.Event) -> list[float]:
    """Signal at QoS 1 twenty times a second, and time each PUBACK."""
    answered: asyncio.Queue[p.Packet] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    _, device = await loop.create_connection(lambda: Device(STEADY, token, answered.put_nowait), "127.0.0.1", port)
    assert isinstance(await answered.get(), p.ConnAck)
    delays: list[float] = []
    while not stop.is_set():
        began = time.perf_counter()
        verdict = b'{"number":%d}' % len(delays)
        device.send(p.Publish(topic="signals/front-door/verdict", payload=verdict, qos=1, packet_id=1))
        answer = await answered.get()
        assert isinstance(answer, p.PubAck)
        assert answer.reason == 0
        delays.append(time.perf_counter() - began)
        await asyncio.sleep(PAUSE_SECONDS)
    return delays


async def _healthy(port: int, stop: asyncio.Event) -> list[float]:
    """Ask `/healthz` on a connection of its own each time, and time each answer."""
    delays: list[float] = []
    while not stop.is_set():
        began = time.perf_counter()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        answer = await reader.readline()
        assert answer.startswith(b"HTTP/1.1 200"), answer
        delays.append(time.perf_counter() - began)
        writer.close()
        await asyncio.sleep(PAUSE_SECONDS)
    return delays


async def _watch(mqtt: int, http: int, token: str, pipe: Connection) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_reader(pipe.fileno(), stop.set)
    async with asyncio.TaskGroup() as group:
        signals = group.create_task(_steady(mqtt, token, stop))
        health = group.create_task(_healthy(http, stop))
        await asyncio.sleep(1.0)
        pipe.send("ready")
    pipe.send((signals.result(), health.result()))


def watch(mqtt: int, http: int, token: str, pipe: Connection) -> None:
    """Be the steady device and the one who asks, in a process of its own: only then do both time the gateway alone."""
    asyncio.run(_watch(mqtt, http, token, pipe))


def storm(port: int, devices: Mapping[str, str]) -> tuple[float, list[int | None]]:
    """Connect all at once; return the seconds until the last answer, and each one's reason code, None if cut off.

    Plain sockets, so that each CONNECT follows its connection at once: on an event loop of this size they would wait
    for each other, and the listener would close those that keep it waiting.
    """
    answers: list[int | None] = []
    sockets = []
    selector = selectors.DefaultSelector()
    began = time.perf_counter()
    for name, token in devices.items():
        one = socket.create_connection(("127.0.0.1", port))
        one.sendall(encode(connect(name, token), MQTT_5))
        one.setblocking(False)
        selector.register(one, selectors.EVENT_READ)
        sockets.append(one)
    while len(answers) < len(devices):
        ready = selector.select(PATIENCE_SECONDS)
        assert ready, f"{len(devices) - len(answers)} devices wait for an answer in vain"
        for key, _ in ready:
            assert isinstance(key.fileobj, socket.socket)
            answer = key.fileobj.recv(256)
            answers.append(answer[REASON_AT] if answer else None)
            selector.unregister(key.fileobj)
    took = time.perf_counter() - began
    for one in sockets:
        one.close()
    return took, answers


def measure(gateway: Gateway, tokens: Mapping[str, str]) -> dict[str, float]:
    """Run the storm beside the steady device."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=watch, args=(gateway.mqtt, gateway.http, tokens[STEADY], there), daemon=True)
    process.start()
    here.recv()
    devices = {name: token for name, token in tokens.items() if name != STEADY}
    took, answers = storm(gateway.mqtt, devices)
    here.send("stop")
    delays, health = here.recv()
    process.join()
    return {
        "devices": len(devices),
        "let_in": answers.count(0),
        "refused": sum(bool(answer) for answer in answers),
        "cut_off": answers.count(None),
        "seconds_until_all_answered": round(took, 2),
        **_figures("steady", delays),
        **_figures("healthz", health),
    }


def _figures(what: str, seconds: list[float]) -> dict[str, float]:
    return {
        f"{what}_answers": len(seconds),
        f"{what}_p50_ms": round(1_000 * statistics.median(seconds), 1),
        f"{what}_p99_ms": round(1_000 * sorted(seconds)[int(0.99 * (len(seconds) - 1))], 1),
        f"{what}_worst_ms": round(1_000 * max(seconds), 1),
    }


async def add(data: Path, count: int) -> dict[str, str]:
    """Add devices to the store before a gateway serves it; return their tokens."""
    often = LimitOverrides(signals=Rate(per_second=1_000, burst=1_000))
    async with compose(load({"data": data}).settings, serves=False) as services:
        registry = services.registry
        issued = await operations.add(
            registry, STEADY, grants=["signal:front-door/verdict"], limits=often, by="user:admin"
        )
        tokens = {STEADY: issued.token}
        for number in range(count):
            name = f"device-{number}"
            tokens[name] = (await operations.add(registry, name, by="user:admin")).token
    return tokens


async def run(devices: int, allowed: int, directory: Path) -> dict[str, dict[str, float]]:
    """Measure within the limits, then over them."""
    data = directory / "data"
    (data / "workflows").mkdir(parents=True)
    data.chmod(0o700)
    (data / "workflows" / "front-door.yaml").write_text(WORKFLOW)
    tokens = await add(data, devices)
    found: dict[str, dict[str, float]] = {}
    for title, burst, rate in (("within the limits", devices + 10, 500), ("over the limits", allowed, 1)):
        (data / "wayside.toml").write_text(f"[listener]\nconnects_burst = {burst}\nconnects_per_second = {rate}\n")
        gateway = Gateway(data)
        await gateway.start()
        found[title] = await asyncio.to_thread(measure, gateway, tokens)
        assert await gateway.stop() == 0
    return found


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=2_000)
    parser.add_argument("--allowed", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        found = asyncio.run(run(options.devices, options.allowed, Path(directory)))
    if options.json:
        print(json.dumps(found))
    else:
        for title, figures in found.items():
            print(title)
            for name, value in figures.items():
                print(f"    {name:28} {value}")
    good = all(
        one["seconds_until_all_answered"] < MOST_SECONDS
        and one["steady_p99_ms"] < 1_000 * MOST_P99_SECONDS
        and one["healthz_worst_ms"] < 1_000 * MOST_HEALTHZ_SECONDS
        for one in found.values()
    )
    within = found["within the limits"]
    return 0 if good and within["let_in"] == within["devices"] else 1


if __name__ == "__main__":
    sys.exit(main())
