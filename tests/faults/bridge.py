"""Kill gateway and broker again and again while devices signal through the broker, and count what became of it.

`python -m tests.faults.bridge --broker mosquitto --signals 10000 --devices 100 --kills 20 --restarts 5` is the whole
run, for each of mosquitto, nats and amqtt. Devices speak to the broker alone, whose PUBACK says nothing: a signal with
an id is sent again until the gateway's own answer has come, one without an id is sent once.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults import kill
from tests.faults.judging import Report, judge
from tests.faults.simulated import Simulated
from tests.support.brokers import KINDS, Broker, Kind
from tests.support.plain_mqtt import PlainClient, Refused
from tests.support.serving import Gateway

ANSWER_SECONDS = 4.0
# However long a broker holds a message back that was given to a gateway which then died (NATS: 30 s).
LAST_ANSWER_SECONDS = 180.0
LIMITS = {f"WAYSIDE_LIMITS__{name}_{what}": "10000" for name in ("SIGNALS", "RUNS") for what in ("PER_SECOND", "BURST")}


@dataclass
class Bridged(Simulated):
    """A device behind a broker."""

    counted: int = 0

    def _heard(self, topic: str, payload: bytes) -> None:
        super()._heard(topic.removeprefix(f"d/{self.name}/"), payload)

    async def connected(self) -> PlainClient:
        """Be connected to the broker, however long it takes to come back."""
        while self.client is None or self.client.lost.is_set():
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, Refused, TimeoutError):
                async with asyncio.timeout(10):
                    self.client = await PlainClient.connect(
                        self.port,
                        self.name,
                        self.token,
                        client_id=self.name,
                        heard=self._heard,
                        replies=f"d/{self.name}/replies/#",
                    )
                break
            await asyncio.sleep(0.1)
        assert self.client is not None
        return self.client

    async def exchange(self, topic: str, payload: bytes, reply_id: str) -> dict[str, Any]:
        """Publish until the gateway has answered; without an id, once."""
        identified = topic.count("/") != 2 or topic.startswith("runs/")
        while True:
            client = await self.connected()
            sought = self._sought[reply_id] = asyncio.get_running_loop().create_future()
            self.sent += 1
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    await client.publish(f"d/{self.name}/{topic}", payload)
                    reply: dict[str, Any] = await sought
                    return reply
            except TimeoutError:
                if not identified:
                    return {}

    async def live(self, stop: asyncio.Event) -> None:
        """Go round until told to stop; what was begun is finished."""
        while not stop.is_set():
            self.number += 1
            signal_id = f"s{self.number}" if self.dice.random() < 0.8 else None
            early = self.dice.random() < 0.3
            if not early:
                await self.start_run()
            await self.signal(signal_id)
            if early:
                await self.start_run()
            self.counted += 1


@dataclass
class Hunted:
    """What one run came to."""

    report: Report
    restarts: int = 0
    signals: int = 0
    seconds: float = 0.0
    unanswered: list[str] = field(default_factory=list)
    receipts: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return self.report.good and not self.unanswered and not self.receipts

    def lines(self) -> list[str]:
        return [
            *self.report.lines(),
            f"broker restarts              {self.restarts}",
            f"signals sent                 {self.signals}, devices without an answer {len(self.unanswered)}",
            f"identified with two receipts  {len(self.receipts)} {self.receipts[:5]}",
            f"seconds                      {self.seconds:.0f}",
        ]


async def hunt(
    directory: Path,
    *,
    kind: Kind,
    signals: int,
    devices: int,
    kills: int,
    restarts: int,
    seed: int,
    progress: bool = False,
) -> Hunted:
    """Do the whole run: the deeds are spread evenly over the signals."""
    dice, began = random.Random(seed), time.monotonic()
    async with Broker(kind, directory / "broker") as broker:
        gateway = Gateway(
            directory / "data", program=(sys.executable, "-m", "tests.faults.dying_gateway"), environment=dict(LIMITS)
        )
        gateway.environment["WAYSIDE_BRIDGE__URL"] = broker.url + ("?protocol=3.1.1" if kind == "amqtt" else "")
        gateway.environment["WAYSIDE_BRIDGE__RECONNECT_MAX"] = "2"
        made = await kill.prepare(gateway, devices, dice)
        everyone = [Bridged(it.name, it.token, broker.port, it.dice) for it in made]
        stop, found = asyncio.Event(), Hunted(Report())
        tasks = [asyncio.create_task(each.live(stop), name=each.name) for each in everyone]
        deeds = ["kill"] * kills + ["restart"] * restarts
        dice.shuffle(deeds)
        for number, deed in enumerate(deeds, start=1):
            await _until(everyone, tasks, signals * number // (len(deeds) + 1))
            if deed == "restart":
                # Half of them lose what the broker has not written down.
                await broker.end(dice.choice((signal.SIGTERM, signal.SIGKILL)))
                await broker.start()
                found.restarts += 1
            else:
                await _kill(gateway, dice, found.report, within=max(2, signals // (len(deeds) + 1) // 2))
            if progress:
                done = sum(each.counted for each in everyone)
                print(f"{deed} {number}/{len(deeds)}, {done} signals", file=sys.stderr, flush=True)
        await _until(everyone, tasks, signals)
        stop.set()
        found.unanswered = await _finished(tasks)
        await kill.all_ended(gateway)
        for each in everyone:
            if each.client is not None:
                await each.client.close()
            found.report.answers += each.answers
            found.receipts += _with_two_receipts(each)
        found.signals = sum(each.counted for each in everyone)
        assert await gateway.stop() == 0
        await judge(gateway.data, list(everyone), found.report)
    found.seconds = time.monotonic() - began
    return found


async def _finished(tasks: list[asyncio.Task[None]]) -> list[str]:
    """Let each device finish what it has begun; name those that wait for an answer in vain."""
    done, waiting = await asyncio.wait(tasks, timeout=LAST_ANSWER_SECONDS)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    for task in done:
        task.result()
    return [task.get_name() for task in waiting]


def _with_two_receipts(device: Bridged) -> list[str]:
    """Name the identified signals that were told accepted under more than one receipt: each would be applied."""
    receipts: dict[str, set[str]] = {}
    for told in device.told:
        if told.signal_id is not None:
            receipts.setdefault(f"{device.name}/{told.signal_id}", set()).add(told.receipt)
    return [name for name, found in receipts.items() if len(found) > 1]


async def _kill(gateway: Gateway, dice: random.Random, report: Report, *, within: int) -> None:
    """Kill the gateway; four times of ten a second time, between a commit and the acknowledgement to the broker."""
    await gateway.kill()
    report.kills += 1
    if dice.random() < 0.4:
        await gateway.start(DIE_AT="committed", DIE_AFTER=str(dice.randint(1, within)))
        assert gateway.process is not None
        await asyncio.wait_for(gateway.process.wait(), 60)
        report.kills += 1
        report.between += 1
    await gateway.start()


async def _until(everyone: list[Bridged], tasks: list[asyncio.Task[None]], count: int) -> None:
    """Return when so many signals have been sent and answered."""
    while sum(each.counted for each in everyone) < count:
        for task in tasks:
            if task.done():
                task.result()
        await asyncio.sleep(0.05)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--broker", choices=KINDS, default="mosquitto")
    parser.add_argument("--signals", type=int, default=10_000)
    parser.add_argument("--devices", type=int, default=100)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--restarts", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wayside-bridge-") as temporary:
        found = asyncio.run(
            hunt(
                Path(temporary),
                kind=chosen.broker,
                signals=chosen.signals,
                devices=chosen.devices,
                kills=chosen.kills,
                restarts=chosen.restarts,
                seed=chosen.seed,
                progress=True,
            )
        )
    print()
    print("\n".join(found.lines()))
    print("nothing was lost and nothing applied twice" if found.good else "FAILED")
    return 0 if found.good else 1


if __name__ == "__main__":
    sys.exit(main())
