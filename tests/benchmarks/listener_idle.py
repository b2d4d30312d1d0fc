"""Measure what an idle connection costs the listener: memory, and CPU for all of them together.

    python -m tests.benchmarks.listener_idle [--connections 10000] [--seconds 10] [--version 4] [--json]

The listener has a process of its own. Each connection is a device of its own that has authenticated, subscribes to
its replies and has a keep-alive of 60 s; then nothing is said. Ends with 1 when a connection costs 10 KB or more.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from functools import partial

from gateway.listener.codec import StreamDecoder, encode
from gateway.listener.codec import packets as p
from tests.support.listener_process import Process, listener_process

MOST_BYTES = 10_240
AT_ONCE = 200


class Idle(asyncio.Protocol):
    """Connects, subscribes, and is silent."""

    def __init__(self, number: int, version: int, ready: asyncio.Semaphore) -> None:
        self._name = f"device-{number}"
        self._version = version
        self._ready = ready
        self._decoder: StreamDecoder | None = StreamDecoder(65_536, version)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        connect = p.Connect(
            version=self._version, client_id=self._name, username=self._name, password=b"x", keep_alive=60
        )
        subscribe = p.Subscribe(1, (p.Filter("replies/#", 1),))
        transport.write(encode(connect, self._version) + encode(subscribe, self._version))

    def data_received(self, data: bytes) -> None:
        if self._decoder is not None:
            self._decoder.feed(data)
            while (packet := self._decoder.next()) is not None:
                if isinstance(packet, p.SubAck):
                    self._ready.release()
                    self._decoder = None
                    return


async def measure(process: Process, connections: int, version: int, seconds: float) -> dict[str, float]:
    """Open the connections, a few at a time, and look at the listener before and after."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Semaphore(AT_ONCE)
    before = process.resident_bytes()
    began = time.perf_counter()
    transports = []
    for number in range(connections):
        await ready.acquire()
        transport, _ = await loop.create_connection(partial(Idle, number, version, ready), "127.0.0.1", process.port)
        transports.append(transport)
    for _ in range(AT_ONCE):
        await ready.acquire()
    opened = time.perf_counter() - began
    await asyncio.sleep(1)
    grown = process.resident_bytes() - before
    used = process.cpu_seconds()
    await asyncio.sleep(seconds)
    used = process.cpu_seconds() - used
    for transport in transports:
        transport.abort()
    return {
        "connections": connections,
        "seconds_to_open": round(opened, 2),
        "resident_megabytes_before": round(before / 1e6, 1),
        "resident_megabytes_grown": round(grown / 1e6, 1),
        "bytes_per_connection": round(grown / connections),
        "idle_percent_of_a_core": round(100 * used / seconds, 2),
    }


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--version", type=int, default=4, choices=(4, 5))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with listener_process() as process:
        found = asyncio.run(measure(process, options.connections, options.version, options.seconds))
    if options.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:28} {value}")
    return 0 if found["bytes_per_connection"] < MOST_BYTES else 1


if __name__ == "__main__":
    sys.exit(main())
