"""What a signal costs the gateway: microseconds of its own CPU, from the PUBLISH to the answer, beside the rate.

    python -m tests.benchmarks.signals [--door mqtt] [--case held held-id refused delivered] [--signals 5000]

`held`: stored, audited and answered (`held-id`: with a signal id, so its chain too); `refused`: by its schema;
`delivered`: to an open wait, and its run goes on to its end. CPU time is the gateway process's, both of its threads,
so that a busy machine changes the rate and hardly the cost. `--door bridge` goes through a Mosquitto of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import struct
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil

from tests.support.behind import Behind, behind
from tests.support.brokers import Broker
from tests.support.plain_mqtt import CONNECT, PUBACK, PUBLISH, SUBACK, SUBSCRIBE, packet, text

# Longer than any run. It is not 0, since amqtt ends a connection whose keep-alive is.
KEEP_ALIVE_SECONDS = 600
DEVICES = 100
CASES = ("held", "held-id", "refused", "delivered")
# Of the last pieces of a run that goes on after the answer.
TAIL_SECONDS = 0.5
LIMITS = {
    f"WAYSIDE_LIMITS__{what}_{which}": "100000" for what in ("SIGNALS", "RUNS") for which in ("PER_SECOND", "BURST")
}
WORKFLOW = """
name: {name}
jobs:
  - name: main
    steps:
      - name: verdict
        task:
          type: wait_for_signal
          key: verdict
          {early}
          timeout: 600
          schema: {{ type: object, required: [n], properties: {{ n: {{ type: integer }}, note: {{ type: string }} }} }}
"""
EARLY = "acceptEarly: 3600\n          earlyPolicy: latest"
NOTE = "x" * 120


@dataclass(eq=False)
class Sender(asyncio.Protocol):
    """One connection that keeps up to `window` publishes unacknowledged, and counts its replies."""

    user: str
    password: str
    window: int
    queue: list[tuple[str, bytes]] = field(default_factory=list)
    acknowledged: int = 0
    replies: dict[str, int] = field(default_factory=dict)
    subscribed: asyncio.Event = field(default_factory=asyncio.Event)
    step: asyncio.Event = field(default_factory=asyncio.Event)
    _buffer: bytearray = field(default_factory=bytearray)
    _in_flight: int = 0
    _number: int = 0
    _transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        flags, login = (0b1100_0010, text(self.user) + text(self.password)) if self.password else (2, b"")
        body = text("MQTT") + bytes([4, flags]) + struct.pack("!H", KEEP_ALIVE_SECONDS) + text(self.user) + login
        listen = "replies/#" if self.password else "d/+/replies/#"
        transport.write(packet(CONNECT, body) + packet(SUBSCRIBE, struct.pack("!H", 1) + text(listen) + b"\0"))

    def send(self, messages: list[tuple[str, bytes]]) -> None:
        self.queue = messages[::-1]
        self._pump()

    def _pump(self) -> None:
        assert self._transport is not None
        out = []
        while self.queue and self._in_flight < self.window:
            topic, payload = self.queue.pop()
            self._number = self._number % 60_000 + 1
            self._in_flight += 1
            out.append(packet(PUBLISH | 2, text(topic) + struct.pack("!H", self._number) + payload))
        if out:
            self._transport.write(b"".join(out))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        at = 0
        while (whole := _whole(self._buffer, at)) is not None:
            start, end = whole
            self._packet(self._buffer[at], bytes(self._buffer[start:end]))
            at = end
        del self._buffer[:at]
        self._pump()
        self.step.set()

    def _packet(self, kind: int, body: bytes) -> None:
        if kind == PUBACK:
            self._in_flight -= 1
            self.acknowledged += 1
        elif kind & 0xF0 == PUBLISH:
            (size,) = struct.unpack("!H", body[:2])
            word = "accepted" if body[2 : 2 + size].endswith(b"/accepted") else "rejected"
            self.replies[word] = self.replies.get(word, 0) + 1
        elif kind == SUBACK:
            self.subscribed.set()

    def close(self) -> None:
        assert self._transport is not None
        self._transport.abort()


def _whole(data: bytearray, at: int) -> tuple[int, int] | None:
    """Find the body of the packet that begins at `at`, once all of it is there."""
    size, shift, start = 0, 0, at + 1
    while start < len(data):
        digit = data[start]
        size |= (digit & 0x7F) << shift
        shift += 7
        start += 1
        if not digit & 0x80:
            return (start, start + size) if start + size <= len(data) else None
    return None


def _same(sender: Sender) -> Sender:
    return sender


@dataclass
class Bench:
    """A gateway, and the connections that load it."""

    site: Behind
    door: str
    senders: list[Sender]

    def cpu(self) -> float:
        assert self.site.gateway.process is not None
        used = psutil.Process(self.site.gateway.process.pid).cpu_times()
        return used.user + used.system

    async def send(self, messages: list[tuple[str, bytes]]) -> tuple[float, float]:
        """Send messages, spread over the devices; give the seconds and the CPU seconds until all were answered."""
        for sender in self.senders:
            sender.replies, sender.acknowledged = {}, 0
        cpu, began = self.cpu(), time.perf_counter()
        for number, sender in enumerate(self.senders):
            sender.send(messages[number :: len(self.senders)])
        while sum(sum(sender.replies.values()) for sender in self.senders) < len(messages):
            waits = [asyncio.create_task(sender.step.wait()) for sender in self.senders]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED, timeout=60)
            for sender, wait in zip(self.senders, waits, strict=True):
                sender.step.clear()
                wait.cancel()
            await asyncio.sleep(0.01)
        took = time.perf_counter() - began
        await asyncio.sleep(TAIL_SECONDS)
        return took, self.cpu() - cpu

    async def case(self, case: str, count: int) -> dict[str, float]:
        word = "rejected" if case == "refused" else "accepted"
        seconds = cpu = 0.0
        done = 0
        while done < count:
            if case == "delivered":
                await self._start_runs()
            part = DEVICES if case == "delivered" else count
            spent = await self.send([self._message(case, done + number) for number in range(part)])
            answered = sum(sender.replies.get(word, 0) for sender in self.senders)
            assert answered == part, f"{case}: {answered} of {part} were {word}"
            seconds, cpu, done = seconds + spent[0], cpu + spent[1], done + part
        return {"per_second": round(done / seconds), "cpu_us": round(1e6 * cpu / done, 1)}

    def _message(self, case: str, number: int) -> tuple[str, bytes]:
        device = number % DEVICES
        workflow = f"{'waits' if case == 'delivered' else 'early'}-{device:02d}"
        topic = f"signals/{workflow}/verdict" + (f"/{case}-{number}-{time.monotonic_ns()}" if case == "held-id" else "")
        if self.door == "bridge":
            topic = f"d/device-{device:02d}/{topic}"
        value = {"n": "none"} if case == "refused" else {"n": number, "note": NOTE}
        return topic, json.dumps(value).encode()

    async def _start_runs(self) -> None:
        async with self.site.api() as api:
            for device in range(DEVICES):
                answer = await api.post(f"/workflows/waits-{device:02d}/runs", json={})
                answer.raise_for_status()
            while len((await api.get("/waits", params={"limit": 500})).json()["waits"]) < DEVICES:
                await asyncio.sleep(0.05)
        await asyncio.sleep(TAIL_SECONDS)


@contextlib.asynccontextmanager
async def bench(directory: Path, door: str, window: int) -> AsyncIterator[Bench]:
    """Start all of it."""
    broker = Broker("mosquitto", directory / "broker")
    async with behind(directory, broker, start=False, **LIMITS) as site:
        for number in range(DEVICES):
            for name, early in ((f"early-{number:02d}", EARLY), (f"waits-{number:02d}", "")):
                definition = WORKFLOW.format(name=name, early=early)
                (directory / "data" / "workflows" / f"{name}.yaml").write_text(definition)
        await site.start()
        tokens = []
        async with site.api() as api:
            for number in range(DEVICES):
                grants = [f"signal:{kind}-{number:02d}/verdict" for kind in ("early", "waits")]
                tokens.append(await site.gateway.add_device(api, f"device-{number:02d}", grants))
        port = site.gateway.mqtt if door == "mqtt" else broker.port
        senders = [Sender(f"device-{number:02d}", tokens[number], window) for number in range(DEVICES)]
        if door == "bridge":
            senders = [Sender("all", "", window * DEVICES)]
        for sender in senders:
            await asyncio.get_running_loop().create_connection(partial(_same, sender), "127.0.0.1", port)
            await sender.subscribed.wait()
        try:
            yield Bench(site, door, senders)
        finally:
            for sender in senders:
                sender.close()


async def measure(directory: Path, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Warm up, then measure each case."""
    found: dict[str, dict[str, float]] = {}
    async with bench(directory, options.door, options.window) as running:
        await running.case("refused", 500)
        for case in options.case:
            found[case] = await running.case(case, options.signals if case != "delivered" else options.signals // 10)
            print(f"{case:<10} {found[case]['per_second']:7.0f} a second  {found[case]['cpu_us']:7.0f} us of CPU each")
    return found


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--door", choices=("mqtt", "bridge"), default="mqtt")
    parser.add_argument("--case", choices=CASES, nargs="*", default=list(CASES))
    parser.add_argument("--signals", type=int, default=5_000)
    parser.add_argument("--window", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wayside-bench-") as temporary:
        found = asyncio.run(measure(Path(temporary), options))
    print(json.dumps({"door": options.door, "found": found}))


if __name__ == "__main__":
    main()
