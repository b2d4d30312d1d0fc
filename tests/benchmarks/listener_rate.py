"""Measure how many QoS 1 publishes a second the listener itself acknowledges, replies included, and how quickly.

    python -m tests.benchmarks.listener_rate [--devices 10] [--window 20] [--seconds 5] [--version 4] [--json]

The application behind it accepts everything at once, so this is what the MQTT side costs. Each device keeps `--window`
publishes unacknowledged and subscribes to its replies at QoS 0.
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
from tests.support.listener_process import listener_process

PAYLOAD = b'{"open":true,"confidence":0.97,"note":"' + b"x" * 160 + b'"}'


class Busy(asyncio.Protocol):
    """Keeps a window of publishes in flight."""

    def __init__(self, number: int, version: int, window: int, delays: list[float]) -> None:
        self._name = f"device-{number}"
        self._version = version
        self._window = window
        self._delays = delays
        self._sent: dict[int, float] = {}
        self._decoder = StreamDecoder(65_536, version)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._write(p.Connect(version=self._version, client_id="c", username=self._name, password=b"x"))
        self._write(p.Subscribe(1, (p.Filter("replies/#", 0),)))

    def _write(self, packet: p.Packet) -> None:
        assert self._transport is not None
        self._transport.write(encode(packet, self._version))

    def _publish(self, number: int) -> None:
        self._sent[number] = time.perf_counter()
        self._write(p.Publish(topic="signals/front-door/verdict", payload=PAYLOAD, qos=1, packet_id=number))

    def data_received(self, data: bytes) -> None:
        self._decoder.feed(data)
        while (packet := self._decoder.next()) is not None:
            if isinstance(packet, p.SubAck):
                for number in range(1, self._window + 1):
                    self._publish(number)
            elif isinstance(packet, p.PubAck):
                self._delays.append(time.perf_counter() - self._sent[packet.packet_id])
                self._publish(packet.packet_id)


async def measure(port: int, devices: int, version: int, window: int, seconds: float) -> dict[str, float]:
    """Publish for so long."""
    loop = asyncio.get_running_loop()
    delays: list[float] = []
    transports = []
    for number in range(devices):
        transport, _ = await loop.create_connection(partial(Busy, number, version, window, delays), "127.0.0.1", port)
        transports.append(transport)
    await asyncio.sleep(0.5)
    delays.clear()
    began = time.perf_counter()
    await asyncio.sleep(seconds)
    took = time.perf_counter() - began
    ordered = sorted(delays)
    for transport in transports:
        transport.abort()
    return {
        "acknowledged_per_second": round(len(ordered) / took),
        "p50_ms": round(1_000 * ordered[len(ordered) // 2], 2),
        "p99_ms": round(1_000 * ordered[int(0.99 * (len(ordered) - 1))], 2),
    }


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=10)
    parser.add_argument("--window", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--version", type=int, default=4, choices=(4, 5))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with listener_process() as process:
        used = process.cpu_seconds()
        found = asyncio.run(measure(process.port, options.devices, options.version, options.window, options.seconds))
        used = process.cpu_seconds() - used
    found["microseconds_of_cpu_each"] = round(
        1e6 * used / (found["acknowledged_per_second"] * (options.seconds + 0.5)), 1
    )
    print(json.dumps(found) if options.json else "\n".join(f"{name:28} {value}" for name, value in found.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
