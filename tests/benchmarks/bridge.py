"""How many signals a second the bridge takes from a broker, against a bare aiomqtt subscriber with manual ack.

`python -m tests.benchmarks.bridge --broker mosquitto --signals 30000`: the same broker, the same messages, in one run.
`held` are signals that are stored, audited and answered; `refused` are read, checked and answered. `answering` is the
bare subscriber when it publishes an answer to each message, as the gateway does, and knows nothing else of it. Beside
the rates stands the CPU time that the subscriber's or the gateway's process took for each: what else the machine does
moves it less. A table, and JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import struct
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from tests.benchmarks.signals import KEEP_ALIVE_SECONDS, Sender
from tests.support.behind import Behind, behind, workflow
from tests.support.brokers import KINDS, Broker, Kind
from tests.support.plain_mqtt import CONNECT, PUBLISH, packet, read_packet, text

DEVICES = 100
LIMITS = {f"WAYSIDE_LIMITS__SIGNALS_{what}": "100000" for what in ("PER_SECOND", "BURST")}
BARE = """
import asyncio, sys, time
import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
ANSWER = b'{"v":1,"ok":true,"code":202,"id":"%22d","receipt":"%26d","at":"2026-01-01T00:00:00.000Z"}' % (1, 1)
async def main(port, count, version, answers):
    properties = None
    if version == 5:
        properties = Properties(PacketTypes.CONNECT)
        properties.ReceiveMaximum = 256
        properties.SessionExpiryInterval = 600
    protocol = aiomqtt.ProtocolVersion.V5 if version == 5 else aiomqtt.ProtocolVersion.V311
    more = {"clean_start": True} if version == 5 else {"clean_session": True}
    client = aiomqtt.Client("127.0.0.1", port, identifier="bare", protocol=protocol, properties=properties, **more)
    client._client.manual_ack_set(True)
    async with client:
        await client.subscribe("d/+/signals/#", qos=1)
        print("ready", flush=True)
        seen, began, used = 0, 0.0, time.process_time()
        async for message in client.messages:
            began = began or time.monotonic()
            if answers:
                _, device, _, workflow, key, _ = message.topic.value.split("/")
                await client.publish(f"d/{device}/replies/signals/{workflow}/{key}/accepted", ANSWER)
            client._client.ack(message.mid, message.qos)
            seen += 1
            if seen == count:
                print(time.monotonic() - began, time.process_time() - used, flush=True)
                return
asyncio.run(main(*map(int, sys.argv[1:])))
"""


async def raw(port: int, name: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(packet(CONNECT, text("MQTT") + bytes([4, 2]) + struct.pack("!H", KEEP_ALIVE_SECONDS) + text(name)))
    await read_packet(reader)
    return reader, writer


async def flood(port: int, count: int, workflow_of: str, tag: str) -> None:
    """Publish as fast as the broker takes it, from one connection, `count` signals of all devices in turn."""
    reader, writer = await raw(port, f"flood-{tag}")

    async def acknowledged() -> None:
        for _ in range(count):
            await read_packet(reader)

    reading = asyncio.create_task(acknowledged())
    for number in range(count):
        device = f"device-{number % DEVICES:02d}"
        topic = text(f"d/{device}/signals/{workflow_of.format(device=device)}/verdict/{tag}{number}")
        payload = json.dumps({"n": number}).encode()
        writer.write(packet(PUBLISH | 2, topic + struct.pack("!H", number % 60_000 + 1) + payload))
        if number % 200 == 0:
            await writer.drain()
    await reading
    writer.close()


async def answered(answers: Sender, count: int) -> float:
    """Give the seconds from the gateway's first reply to the last of `count`."""
    began = 0.0
    while sum(answers.replies.values()) < count:
        await answers.step.wait()
        answers.step.clear()
        began = began or time.monotonic()
    return time.monotonic() - began


@dataclass(frozen=True)
class Rate:
    """Messages a second, and microseconds of CPU for each."""

    per_second: float
    cpu_us: float


async def listener(port: int) -> Sender:
    """Connect who hears all answers."""
    answers = Sender("answers", "", 0)
    await asyncio.get_running_loop().create_connection(lambda: answers, "127.0.0.1", port)
    await answers.subscribed.wait()
    answers.step.clear()
    return answers


async def bare(broker: Broker, count: int, *, answering: bool = False) -> Rate:
    version = 5 if broker.kind == "mosquitto" else 3
    numbers = (broker.port, count, version, int(answering))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", BARE, *map(str, numbers), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    await process.stdout.readline()
    answers = await listener(broker.port) if answering else None
    flooding = asyncio.create_task(flood(broker.port, count, "none", f"b{time.monotonic_ns()}-"))
    heard = await answered(answers, count) if answers else 0.0
    seconds, used = map(float, (await process.stdout.readline()).split())
    await flooding
    await process.wait()
    if answers:
        answers.close()
    return Rate(count / (heard or seconds), 1e6 * used / count)


async def bridged(site: Behind, count: int, workflow_of: str) -> Rate:
    assert site.gateway.process is not None
    port, used = site.broker.port, cpu_seconds(site.gateway.process.pid)
    answers = await listener(port)
    flooding = asyncio.create_task(flood(port, count, workflow_of, f"g{time.monotonic_ns()}-"))
    seconds = await answered(answers, count)
    await flooding
    answers.close()
    return Rate(count / seconds, 1e6 * (cpu_seconds(site.gateway.process.pid) - used) / count)


def cpu_seconds(pid: int) -> float:
    """Read what a process has used in all its threads."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


async def measure(kind: Kind, count: int, rounds: int, directory: Path) -> dict[str, Rate]:
    broker = Broker(kind, directory / "broker")
    found: dict[str, list[Rate]] = {"bare": [], "answering": [], "refused": [], "held": []}
    async with behind(directory, broker, start=False, **LIMITS) as site:
        for number in range(DEVICES):
            name = f"device-{number:02d}"
            definition = workflow(name, early_seconds=3600).replace(
                "timeout: 600", "timeout: 600\n          earlyPolicy: latest"
            )
            (directory / "data" / "workflows" / f"{name}.yaml").write_text(definition)
        # Alone: a gateway that is there reads the same messages, on the same cores.
        for _ in range(rounds):
            found["bare"].append(await bare(broker, count))
            found["answering"].append(await bare(broker, count, answering=True))
        await site.start()
        for number in range(DEVICES):
            await site.add(f"device-{number:02d}", f"signal:device-{number:02d}/verdict", "signal:door/verdict")
        for _ in range(rounds):
            found["refused"].append(await bridged(site, count, "door"))
            found["held"].append(await bridged(site, count, "{device}"))
    return {name: sorted(rates, key=lambda rate: rate.per_second)[len(rates) // 2] for name, rates in found.items()}


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--broker", choices=KINDS, default="mosquitto")
    # Less is over before it is sustained.
    parser.add_argument("--signals", type=int, default=30_000)
    parser.add_argument("--rounds", type=int, default=1)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wayside-bench-") as temporary:
        rates = asyncio.run(measure(chosen.broker, chosen.signals, chosen.rounds, Path(temporary)))
    for name, rate in rates.items():
        part = 100 * rate.per_second / rates["bare"].per_second
        print(f"{name:<9} {rate.per_second:8.0f} a second   {part:5.0f} % of bare   {rate.cpu_us:6.0f} us of CPU each")
    shown = {name: asdict(rate) for name, rate in rates.items()}
    print(json.dumps({"broker": chosen.broker, "signals": chosen.signals, "rates": shown}))


if __name__ == "__main__":
    main()
