"""Take the store away from under a gateway, in every way that it has, while devices signal; count what became of it.

    python -m tests.faults.away [--stores sqlite postgres nats s3] [--times 3] [--devices 20] [--seed 1]

PostgreSQL is stopped and killed; NATS loses its leader, and then its majority; the object store answers 500, 503 and
409, hangs, loses its answers and refuses connections; SQLite's disk is full. Devices signal by MQTT and by HTTP, and
send again under its id what got no answer, and some of what got one: the answer is the first one's. Meanwhile `/readyz`
answers 503, a signal by HTTP 503 with Retry-After, and MQTT 5 acknowledges nothing and closes; nobody touches the
gateway, and it has to be ready again by itself.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

import httpx

from tests.faults import meanwhile
from tests.faults.doors import ByHttp
from tests.faults.judging import Report, judge
from tests.faults.kill import all_ended, prepare
from tests.faults.meanwhile import Probe
from tests.faults.simulated import Simulated
from tests.faults.tally import Tally
from tests.support.nats import cluster
from tests.support.objects import bucket, shared_service
from tests.support.postgres import server
from tests.support.proxy import Mode, proxy
from tests.support.serving import Gateway

READY_AGAIN_SECONDS = 60.0
Deed = Callable[[], Awaitable[None]]


@dataclass(frozen=True)
class Trouble:
    """How the store goes away and comes back; `felt` when nothing can be stored meanwhile."""

    name: str
    begin: Deed
    end: Deed
    felt: bool = True


@dataclass(frozen=True)
class Place:
    """A store that can be troubled."""

    url: str
    troubles: Sequence[Trouble]
    settings: dict[str, str] = field(default_factory=dict)
    ready_again_seconds: float = READY_AGAIN_SECONDS


@dataclass
class Seen:
    """What was seen of the gateway while its store was away."""

    troubles: int = 0
    unready: int = 0
    slowest: float = 0.0
    tally: Tally = field(default_factory=Tally)


@asynccontextmanager
async def postgres(directory: Path) -> AsyncIterator[Place]:
    with server() as own:

        def stopping(mode: str) -> Trouble:
            return Trouble(
                f"{mode} stop", lambda: asyncio.to_thread(own.stop, mode), lambda: asyncio.to_thread(own.start)
            )

        yield Place(own.url(), [stopping("immediate"), stopping("fast")])


@asynccontextmanager
async def nats(directory: Path) -> AsyncIterator[Place]:
    with cluster(3) as three:
        url = three.url("away")
        killed = []

        async def leader() -> None:
            killed.append(await three.leader("away"))
            killed[-1].kill()

        async def majority() -> None:
            for node in three.nodes[:2]:
                node.kill()
                killed.append(node)

        async def again() -> None:
            while killed:
                killed.pop().start()

        # Without a leader writes wait until there is another, some seconds: the gateway need not notice.
        yield Place(url, [Trouble("leader killed", leader, again, felt=False), Trouble("two killed", majority, again)])


def _answer(status: str) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()


@asynccontextmanager
async def s3(directory: Path) -> AsyncIterator[Place]:
    service = shared_service("s3")
    async with bucket(service) as name, proxy(service.port) as between:

        def setting(mode: Mode, canned: bytes = b"") -> Deed:
            async def deed() -> None:
                between.set(mode, canned)
                between.cut()

            return deed

        ways = [
            ("500", Mode.ANSWER, _answer("500 Internal Server Error")), ("losing answers", Mode.LOSE_ANSWERS, b""),
            ("503", Mode.ANSWER, _answer("503 Slow Down")), ("hanging", Mode.HANG, b""),
            ("409", Mode.ANSWER, _answer("409 Conflict")), ("refusing", Mode.REFUSE, b""),
        ]  # fmt: skip
        yield Place(
            service.url(name, port=between.port),
            [Trouble(name, setting(mode, canned), setting(Mode.PASS)) for name, mode, canned in ways],
            # A pass over what is due takes half a minute on this service, and more after a trouble.
            {"WAYSIDE_ENGINE__SWEEP_INTERVAL": "60"},
            ready_again_seconds=180.0,
        )


@asynccontextmanager
async def sqlite(directory: Path) -> AsyncIterator[Place]:
    small = directory / "small"
    small.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(small)]
    mounted = await asyncio.to_thread(subprocess.run, mounting, check=False)
    if mounted.returncode:
        raise SystemExit("a disk that fills up takes the right to mount one: run this as root")
    fill = small / "fill"

    async def full() -> None:
        with contextlib.suppress(OSError), fill.open("wb", buffering=0) as file:
            while True:
                file.write(b"\0" * 65_536)

    async def roomy() -> None:
        fill.unlink()

    try:
        yield Place(f"sqlite://{small}/wayside.db", [Trouble("disk full", full, roomy)])
    finally:
        await asyncio.to_thread(subprocess.run, ["umount", str(small)], check=False)


STORES: dict[str, Callable[[Path], AbstractAsyncContextManager[Place]]] = {
    "sqlite": sqlite, "postgres": postgres, "nats": nats, "s3": s3
}  # fmt: skip


async def hunt(
    kind: str, directory: Path, *, times: int, devices: int, seed: int, **settings: str
) -> tuple[Report, Seen]:
    """Do the whole run over one kind of store; `settings` are the gateway's environment."""
    dice, report, seen = random.Random(seed), Report(), Seen()
    async with STORES[kind](directory) as place, AsyncExitStack() as stack:
        gateway = Gateway(directory / "data", environment={"WAYSIDE_STORE": place.url, **place.settings, **settings})
        everyone, probe = await _devices(gateway, devices, dice, seen.tally)
        # However this ends: one that has stopped in order is beyond it.
        stack.push_async_callback(gateway.kill)
        stop = asyncio.Event()
        tasks = [asyncio.create_task(each.live(stop), name=each.name) for each in everyone]
        for number in range(times * len(place.troubles)):
            enough = sum(len(each.told) for each in everyone) + devices
            async with asyncio.timeout(120):
                while sum(len(each.told) for each in everyone) < enough:
                    await asyncio.sleep(0.05)
            trouble = place.troubles[number % len(place.troubles)]
            await _one_trouble(trouble, gateway, probe, seen, place.ready_again_seconds)
        stop.set()
        await asyncio.gather(*tasks)
        await all_ended(gateway)
        for each in everyone:
            await each.close()
            report.answers += each.answers
        await probe.close()
        assert gateway.process is not None
        assert gateway.process.returncode is None, "the gateway ended"
        assert await gateway.stop() == 0
        await judge(gateway.data, [*everyone, probe], report, url=place.url)
    report.wrong += seen.tally.wrong
    return report, seen


async def _devices(gateway: Gateway, count: int, dice: random.Random, tally: Tally) -> tuple[list[Simulated], Probe]:
    """Start the gateway; give its devices, every third of which signals by HTTP, and the one that asks meanwhile."""
    (gateway.data / "workflows").mkdir(parents=True)
    (gateway.data / "workflows" / f"{meanwhile.NAME}.yaml").write_text(meanwhile.WORKFLOW)
    everyone: list[Simulated] = []
    for number, each in enumerate(await prepare(gateway, count, dice)):
        who = (each.name, each.token, each.port, each.dice)
        by_http = number % 3 == 2
        everyone.append(ByHttp(*who, at=f"127.0.0.1:{gateway.http}") if by_http else each)
        everyone[-1].again, everyone[-1].tally = 0.2, tally
    async with gateway.client() as client:
        token = await gateway.add_device(client, meanwhile.NAME, [f"signal:{meanwhile.NAME}/verdict"])
    return everyone, Probe(token, gateway.mqtt, gateway.http, tally)


async def _one_trouble(trouble: Trouble, gateway: Gateway, probe: Probe, seen: Seen, within: float) -> None:
    seen.troubles += 1
    await probe.connect()
    seen.tally.fault = trouble.name
    await trouble.begin()
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_unready(trouble, gateway, seen))
            if trouble.felt:
                group.create_task(probe.is_turned_away())
    finally:
        await trouble.end()
    began = monotonic()
    async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
        while (answer := await client.get(f"http://127.0.0.1:{gateway.http}/readyz")).status_code != 200:
            waited = monotonic() - began
            assert waited < within, f"{trouble.name}: not ready {waited:.0f} s after it: {answer.text}"
            await asyncio.sleep(0.1)
    seen.slowest = max(seen.slowest, monotonic() - began)
    await probe.sends_again()


async def _unready(trouble: Trouble, gateway: Gateway, seen: Seen) -> None:
    """Look until the gateway says that it is not ready, which it must where the trouble is felt."""
    statuses: set[int] = set()
    give_up_at = monotonic() + (40 if trouble.felt else 3)
    async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
        while monotonic() < give_up_at and 503 not in statuses:
            statuses.add((await client.get(f"http://127.0.0.1:{gateway.http}/readyz")).status_code)
            await asyncio.sleep(0.1)
    if trouble.felt:
        assert 503 in statuses, f"{trouble.name}: /readyz answers {statuses}"
    if 503 in statuses:
        seen.unready += 1
        # Long enough for devices to be turned away, too.
        await asyncio.sleep(1)


def told(kind: str, report: Report, seen: Seen) -> list[str]:
    """Say in words what it came to."""
    refused = {name: count for name, count in report.answers.items() if name != "accepted"}
    return [
        (
            f"{kind}: {seen.troubles} times away; /readyz answered 503 in {seen.unready}; ready again by itself within "
            f"{seen.slowest:.1f} s of its return"
        ),
        (
            f"  signals acknowledged {report.told}, applied {report.outcomes}, held within their limit {report.held}, "
            f"refused {sum(refused.values())} {refused}, repeated {seen.tally.repeated.total()} under an id and "
            f"{seen.tally.anew.total()} without one (of which {report.repeats} are signals of their own)"
        ),
        *seen.tally.lines(report.applied),
        (
            f"  lost {len(report.lost)} {report.lost[:3]}, applied twice {len(report.twice)}, "
            f"runs {dict(report.runs)}, not ended {len(report.unfinished)}"
        ),
    ]


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stores", nargs="+", choices=list(STORES), default=list(STORES))
    parser.add_argument("--times", type=int, default=3, help="how often each trouble comes")
    parser.add_argument("--devices", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    good = True
    for kind in chosen.stores:
        with tempfile.TemporaryDirectory(prefix="wayside-away-") as directory:
            report, seen = asyncio.run(
                hunt(kind, Path(directory), times=chosen.times, devices=chosen.devices, seed=chosen.seed)
            )
        print("\n".join(told(kind, report, seen)), flush=True)
        good = good and report.good
    print("nothing was lost and nothing applied twice" if good else "FAILED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
