"""Signals a second of one gateway and of several over one store, under the same load, and what is saturated.

    python -m tests.benchmarks.gateways [--store postgres|nats|sqlite] [--gateways 1 2] [--signals 6000] [--rounds 3]
                                        [--nodes 3]

100 devices, spread over the gateways, send early signals over MQTT at QoS 1, each keeping four unacknowledged; each
signal is stored, audited and answered. The gateways take turns round by round, so that what else the machine does
meets all of them. Beside the rate stands how busy each process was, in hundredths of a core, and the whole machine:
where that is near its number of cores, more gateways on it cannot accept more.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

from tests.benchmarks.signals import DEVICES, EARLY, LIMITS, NOTE, WORKFLOW, Sender
from tests.support.nats import cluster
from tests.support.postgres import server
from tests.support.serving import Gateway


@dataclass(frozen=True)
class Part:
    """Processes that are looked at together."""

    name: str
    processes: list[psutil.Process]
    children: bool = True

    def cpu(self) -> float:
        """Seconds of CPU so far, of those that live."""
        used = 0.0
        for process in self.processes:
            for each in (process, *(process.children(recursive=True) if self.children else ())):
                try:
                    times = each.cpu_times()
                except psutil.NoSuchProcess:
                    continue
                used += times.user + times.system
        return used


@contextmanager
def store(kind: str, directory: Path, nodes: int) -> Iterator[tuple[str, list[psutil.Process]]]:
    """Run a store; give its URL, and the processes that are its servers."""
    match kind:
        case "postgres":
            with server() as own:
                number = int((own.directory / "data" / "postmaster.pid").read_text().split()[0])
                yield own.url(), [psutil.Process(number)]
        case "nats":
            with cluster(nodes) as servers:
                yield (
                    servers.url("bench"),
                    [psutil.Process(node._process.pid) for node in servers.nodes if node._process is not None],
                )
        case _:
            yield f"sqlite://{directory}/wayside.db", []


@dataclass
class Fleet:
    """Gateways with their devices."""

    gateways: list[Gateway]
    senders: list[Sender]
    parts: list[Part]
    sent: int = 0

    async def round(self, count: int) -> tuple[float, dict[str, float], float]:
        """Send so many signals; give the rate, each part's share of a core, and the whole machine's in cores."""
        for sender in self.senders:
            sender.replies, sender.acknowledged = {}, 0
        messages = [self._message(number) for number in range(count)]
        before, all_before = [part.cpu() for part in self.parts], psutil.cpu_times()
        began = time.perf_counter()
        for number, sender in enumerate(self.senders):
            sender.send(messages[number :: len(self.senders)])
        while (done := sum(sum(sender.replies.values()) for sender in self.senders)) < count:
            assert time.perf_counter() - began < 300, f"{done} of {count} were answered"
            await asyncio.sleep(0.005)
        took = time.perf_counter() - began
        self.sent += count
        refused = sum(sender.replies.get("rejected", 0) for sender in self.senders)
        assert not refused, f"{refused} were refused"
        shares = {part.name: (part.cpu() - was) / took for part, was in zip(self.parts, before, strict=True)}
        all_after = psutil.cpu_times()
        idle = all_after.idle + all_after.iowait - all_before.idle - all_before.iowait
        return count / took, shares, (psutil.cpu_count() or 1) - idle / took

    def _message(self, number: int) -> tuple[str, bytes]:
        topic = f"signals/early-{number % DEVICES:02d}/verdict"
        return topic, json.dumps({"n": self.sent + number, "note": NOTE}).encode()


@asynccontextmanager
async def fleet(kind: str, count: int, directory: Path, nodes: int) -> AsyncIterator[Fleet]:
    """Start `count` gateways over a new store, and connect the devices to them by turns."""
    async with AsyncExitStack() as stack:
        url, servers = stack.enter_context(store(kind, directory, nodes))
        workflows = directory / "workflows"
        workflows.mkdir()
        for number in range(DEVICES):
            name = f"early-{number:02d}"
            (workflows / f"{name}.yaml").write_text(WORKFLOW.format(name=name, early=EARLY))
        gateways = []
        for number in range(count):
            gateway = Gateway(directory / f"data{number}", environment={"WAYSIDE_STORE": url, **LIMITS})
            gateway.data.mkdir(mode=0o700)
            await gateway.start("--workflows", str(workflows), "--log-level", "error")
            stack.push_async_callback(gateway.stop)
            gateways.append(gateway)
        async with gateways[0].client() as api:
            tokens = [
                await gateways[0].add_device(api, f"device-{number:02d}", [f"signal:early-{number:02d}/verdict"])
                for number in range(DEVICES)
            ]
        # Every gateway has heard of them then.
        await asyncio.sleep(3)
        senders = [Sender(f"device-{number:02d}", tokens[number], 4) for number in range(DEVICES)]
        for number, sender in enumerate(senders):
            port = gateways[number % count].mqtt
            await asyncio.get_running_loop().create_connection(partial(_same, sender), "127.0.0.1", port)
            stack.callback(sender.close)
            await asyncio.wait_for(sender.subscribed.wait(), 30)
        parts = [
            Part(f"gateway {number + 1}", [psutil.Process(gateway.process.pid)])
            for number, gateway in enumerate(gateways)
            if gateway.process is not None
        ]
        if servers:
            parts.append(Part(kind, servers))
        yield Fleet(gateways, senders, [*parts, Part("the load", [psutil.Process()], children=False)])


def _same(sender: Sender) -> Sender:
    return sender


async def measure(kind: str, counts: list[int], signals: int, rounds: int, nodes: int) -> None:
    """Measure each number of gateways, round by round, and say how they compare."""
    rates: dict[int, list[float]] = {count: [] for count in counts}
    costs: dict[int, list[float]] = {count: [] for count in counts}
    cores = psutil.cpu_count() or 1
    async with AsyncExitStack() as stack:
        fleets = {}
        for count in counts:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="wayside-gateways-"))
            fleets[count] = await stack.enter_async_context(fleet(kind, count, Path(directory), nodes))
            await fleets[count].round(signals // 4)
        for _ in range(rounds):
            for count, running in fleets.items():
                rate, shares, machine = await running.round(signals)
                rates[count].append(rate)
                costs[count].append(sum(shares.values()) / rate)
                busy = ", ".join(f"{name} {share:.2f}" for name, share in shares.items())
                print(
                    f"{count} gateway{'s' * (count > 1)}: {rate:7.0f} signals a second; cores: {busy}; "
                    f"the whole machine {machine:.2f} of {cores}, others' {machine - sum(shares.values()):.2f}",
                    flush=True,
                )
    first = statistics.median(rates[counts[0]])
    for count in counts:
        rate, cost = statistics.median(rates[count]), statistics.median(costs[count])
        print(
            f"median of {count}: {rate:.0f} a second, {rate / first:.2f} times that of {counts[0]}; {1e6 * cost:.0f} "
            f"us of CPU a signal in all, so that {cores} cores without anything else bear {cores / cost:.0f} a second"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=["postgres", "nats", "sqlite"], default="postgres")
    parser.add_argument("--gateways", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--signals", type=int, default=6_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=3, help="how many servers NATS has")
    chosen = parser.parse_args()
    asyncio.run(measure(chosen.store, chosen.gateways, chosen.signals, chosen.rounds, chosen.nodes))
