"""Measure a storm: thousands of devices connect at once while one that is connected goes on signalling.

    python -m tests.benchmarks.listener_storm [--devices 2000] [--allowed 200] [--json]

First within the limits: how long until all are in, and the steady device's time from PUBLISH to PUBACK meanwhile.
Then with a limit of `--allowed` connects: how long until every device has been let in or told why not. Ends with 1
when either takes 10 s or more, or the steady device's 99th percentile reaches 1 s.
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
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

from gateway.listener.codec import MQTT_5, StreamDecoder, encode
from gateway.listener.codec import packets as p
from tests.support.listener_process import listener_process

MOST_SECONDS = 10.0
MOST_P99_SECONDS = 1.0
PATIENCE_SECONDS = 30.0
REASON_AT = 3  # of a CONNACK whose remaining length takes one byte


class Device(asyncio.Protocol):
    """Connects, and tells each packet that it gets."""

    def __init__(self, name: str, heard: Callable[[p.Packet], None]) -> None:
        self._name = name
        self._heard = heard
        self._decoder = StreamDecoder(65_536, MQTT_5)
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.send(p.Connect(version=MQTT_5, client_id=self._name, username=self._name, password=b"x", keep_alive=60))

    def send(self, packet: p.Packet) -> None:
        assert self.transport is not None
        self.transport.write(encode(packet, MQTT_5))

    def data_received(self, data: bytes) -> None:
        self._decoder.feed(data)
        while (packet := self._decoder.next()) is not None:
            self._heard(packet)


async def _steady(port: int, pipe: Connection) -> None:
    """Signal at QoS 1 twenty times a second, and time each PUBACK, until the pipe says stop."""
    answered: asyncio.Queue[p.Packet] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    _, device = await loop.create_connection(lambda: Device("steady", answered.put_nowait), "127.0.0.1", port)
    await answered.get()
    delays: list[float] = []
    stop = asyncio.Event()
    loop.add_reader(pipe.fileno(), stop.set)
    pipe.send("ready")
    while not stop.is_set():
        began = time.perf_counter()
        device.send(p.Publish(topic="signals/front-door/verdict", payload=b'{"open":true}', qos=1, packet_id=1))
        await answered.get()
        delays.append(time.perf_counter() - began)
        await asyncio.sleep(0.05)
    pipe.send(delays)


def steady(port: int, pipe: Connection) -> None:
    """Be the steady device, in a process of its own: only then does it time the listener, not the storm's own work."""
    asyncio.run(_steady(port, pipe))


def storm(port: int, devices: int) -> tuple[float, list[int | None]]:
    """Connect all at once; return the seconds until the last answer, and each one's reason code, None if cut off.

    Plain sockets, so that each CONNECT follows its connection at once: on an event loop of this size they would wait
    for each other, and the listener would close those that keep it waiting.
    """
    answers: list[int | None] = []
    sockets = []
    selector = selectors.DefaultSelector()
    began = time.perf_counter()
    for number in range(devices):
        name = f"device-{number}"
        one = socket.create_connection(("127.0.0.1", port))
        one.sendall(encode(p.Connect(version=MQTT_5, client_id=name, username=name, password=b"x"), MQTT_5))
        one.setblocking(False)
        selector.register(one, selectors.EVENT_READ)
        sockets.append(one)
    while len(answers) < devices:
        ready = selector.select(PATIENCE_SECONDS)
        assert ready, f"{devices - len(answers)} devices wait for an answer in vain"
        for key, _ in ready:
            assert isinstance(key.fileobj, socket.socket)
            answer = key.fileobj.recv(256)
            answers.append(answer[REASON_AT] if answer else None)
            selector.unregister(key.fileobj)
    took = time.perf_counter() - began
    for one in sockets:
        one.close()
    return took, answers


def measure(port: int, devices: int) -> dict[str, float]:
    """Run the storm beside the steady device."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=steady, args=(port, there), daemon=True)
    process.start()
    here.recv()
    took, answers = storm(port, devices)
    here.send("stop")
    delays: list[float] = here.recv()
    process.join()
    return {
        "devices": devices,
        "let_in": answers.count(0),
        "refused": sum(bool(answer) for answer in answers),
        "cut_off": answers.count(None),
        "seconds_until_all_answered": round(took, 2),
        "steady_signals": len(delays),
        "steady_p50_ms": round(1_000 * statistics.median(delays), 1),
        "steady_p99_ms": round(1_000 * sorted(delays)[int(0.99 * (len(delays) - 1))], 1),
        "steady_worst_ms": round(1_000 * max(delays), 1),
    }


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=2_000)
    parser.add_argument("--allowed", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    with listener_process(connects_burst=options.devices + 10) as process:
        found["within the limits"] = measure(process.port, options.devices)
    with listener_process(connects_burst=options.allowed, connects_per_second=1) as process:
        found["over the limits"] = measure(process.port, options.devices)
    if options.json:
        print(json.dumps(found))
    else:
        for title, figures in found.items():
            print(title)
            for name, value in figures.items():
                print(f"    {name:28} {value}")
    good = all(
        one["seconds_until_all_answered"] < MOST_SECONDS and one["steady_p99_ms"] < 1_000 * MOST_P99_SECONDS
        for one in found.values()
    )
    within = found["within the limits"]
    return 0 if good and within["let_in"] == within["devices"] else 1


if __name__ == "__main__":
    sys.exit(main())
