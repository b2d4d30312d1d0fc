"""What a gateway asks of an object store: requests a signal by kind, those of an idle minute, and what they cost.

    python -m tests.benchmarks.requests [--store s3|gs] [--idle-seconds 60] [--signals 20]

One gateway with its doors, over moto's S3 or the stand-in for Google's, in this process. Signals come one after the
other, so that none shares a request with another's: with more at once, audit events and times are asked for together.
Prices are arithmetic with list prices of S3 Standard (us-east-1), not measured: check your own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import httpx

from engine.store.base import Store
from engine.store.objects import ObjectStore
from engine.store.open import open_store
from gateway import app, composing
from gateway.config import load
from tests.support.mosquitto import free_port
from tests.support.objects import bucket, shared_service
from tests.support.plain_mqtt import PlainClient

# US dollars for a thousand.
PRICES = {"PUT": 0.005, "LIST": 0.005, "GET": 0.0004, "HEAD": 0.0004, "DELETE": 0.0}
WORKFLOW = """
name: {name}
jobs:
  - name: main
    steps:
      - name: verdict
        task: {{ type: wait_for_signal, key: verdict, {early} timeout: 3600 }}
"""


@dataclass
class Rig:
    """A gateway in this process, its store, a device, and the background that is not a signal's."""

    store: ObjectStore
    api: httpx.AsyncClient
    device: PlainClient
    heard: asyncio.Queue[dict[str, Any]]
    idle: Counter[str]
    idle_seconds: float

    async def signal(self, workflow: str, signal_id: str = "") -> dict[str, Any]:
        tail = f"/{signal_id}" if signal_id else ""
        await self.device.publish(f"signals/{workflow}/verdict{tail}", b'{"n": 1}')
        return await self.heard.get()

    async def start(self, workflow: str) -> str:
        answer = await self.api.post(f"/api/v1/workflows/{workflow}/runs", json={"inputs": {}})
        answer.raise_for_status()
        return str(answer.json()["run"])

    async def becomes(self, run: str, status: str) -> None:
        """Wait for a run's state by looking into the store beside the gateway, which counts no request."""
        while True:
            answer = await self.api.get(f"/api/v1/runs/{run}")
            if answer.json()["status"] == status:
                return
            await asyncio.sleep(0.2)


@asynccontextmanager
async def rig(kind: str, directory: Path) -> AsyncIterator[Rig]:
    opened: list[ObjectStore] = []

    def opening(url: str, *, create: bool = True) -> Store:
        store = open_store(url, create=create)
        assert isinstance(store, ObjectStore)
        opened.append(store)
        return store

    composing.open_store = opening  # type: ignore[attr-defined]
    (directory / "workflows").mkdir()
    for name, early in (("early", "acceptEarly: 3600, earlyPolicy: latest,"), ("strict", "")):
        (directory / "workflows" / f"{name}.yaml").write_text(WORKFLOW.format(name=name, early=early))
    service = shared_service(kind)
    mqtt, http = free_port(), free_port()
    async with bucket(service) as name:
        loaded = load(
            {"data": str(directory), "store": service.url(name), "mqtt": f"127.0.0.1:{mqtt}",
             "http": f"127.0.0.1:{http}", "log.level": "error", "limits.signals_burst": 10_000,
             "limits.signals_per_second": 10_000},
            environment={},
        )  # fmt: skip
        ready = asyncio.Event()
        serving = asyncio.create_task(app.serve(loaded, ready=lambda _: ready.set()))
        await asyncio.wait({serving, asyncio.ensure_future(ready.wait())}, return_when=asyncio.FIRST_COMPLETED)
        token = (directory / "admin.token").read_text().strip()
        heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{http}", headers={"authorization": f"Bearer {token}"}, timeout=60,
            trust_env=False,
        ) as api:  # fmt: skip
            added = await api.post(
                "/api/v1/devices", json={"device": "camera", "grants": ["signal:early", "signal:strict"]}
            )
            device = await PlainClient.connect(
                mqtt, "camera", added.raise_for_status().json()["token"], client_id="camera",
                heard=lambda _, payload: heard.put_nowait(json.loads(payload)),
            )  # fmt: skip
            yield Rig(opened[0], api, device, heard, Counter(), 0.0)
            await device.close()
        serving.cancel()
        await asyncio.wait({serving})


async def measure(one: Rig, what: str, times: int, deed: Callable[[int], Awaitable[None]]) -> None:
    """Do something so many times; print the requests of one, less those that come anyway."""
    before, began = one.store.counts.copy(), monotonic()
    for number in range(times):
        await deed(number)
    # What is written after the answer belongs to it.
    await asyncio.sleep(2)
    spent = monotonic() - began
    used = {
        kind: max(0.0, (one.store.counts[kind] - before[kind] - one.idle[kind] * spent / one.idle_seconds) / times)
        for kind in PRICES
    }
    tell(what, used, 1_000_000, "a million")


def tell(what: str, used: dict[str, float], count: int, unit: str) -> None:
    dollars = sum(used[kind] * PRICES[kind] / 1_000 for kind in PRICES) * count
    told = "  ".join(f"{kind} {used[kind]:6.1f}" for kind in PRICES)
    print(f"{what:<46} {told}   {dollars:8.2f} $ {unit}", flush=True)


async def main(kind: str, idle_seconds: float, signals: int) -> None:
    """Run the command."""
    with tempfile.TemporaryDirectory(prefix="wayside-requests-") as directory:
        async with rig(kind, Path(directory)) as one:
            before = one.store.counts.copy()
            await asyncio.sleep(idle_seconds)
            one.idle, one.idle_seconds = one.store.counts - before, idle_seconds
            minute = {kind: one.idle[kind] * 60 / idle_seconds for kind in PRICES}
            tell("an idle minute, with the sweep", minute, 60 * 24 * 30, "a month")

            async def held(number: int) -> None:
                assert (await one.signal("early"))["ok"]

            async def held_id(number: int) -> None:
                assert (await one.signal("early", f"s{number}"))["ok"]

            async def refused(number: int) -> None:
                assert not (await one.signal("strict"))["ok"]

            await measure(one, "a signal that is held", signals, held)
            await measure(one, "a signal that is held, with an id", signals, held_id)
            await measure(one, "a signal that is refused (no wait is open)", signals, refused)

            async def opened(number: int) -> None:
                runs.append(await one.start("strict"))
                await asyncio.sleep(0.5)
                assert (await one.signal("strict", f"d{number}"))["ok"]
                await asyncio.sleep(0.5)

            runs: list[str] = []
            await measure(one, "a run: start, wait, signal with an id, end", signals, opened)
            for run in runs:
                await one.becomes(run, "succeeded")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=["s3", "gs"], default="s3")
    parser.add_argument("--idle-seconds", type=float, default=60.0)
    parser.add_argument("--signals", type=int, default=20)
    chosen = parser.parse_args()
    sys.exit(asyncio.run(main(chosen.store, chosen.idle_seconds, chosen.signals)))
