"""A gateway behind a broker: both real, and devices that speak to the broker alone."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.support.brokers import Broker
from tests.support.plain_mqtt import PlainClient
from tests.support.serving import Gateway

SECONDS = 20.0
WORKFLOW = """
name: {name}
trigger: {{ topic: true }}
jobs:
  - name: main
    steps:
      - name: verdict
        task:
          type: wait_for_signal
          key: verdict
          {early}
          timeout: 600
          schema:
            type: object
            required: [n]
            properties: {{ n: {{ type: integer }} }}
      - name: tell
        dependsOn: [{{ step: verdict }}]
        task: {{ type: publish, topic: "sirens/{name}", payload: {{ n: "${{{{ steps.verdict.payload.n }}}}" }} }}
"""


def workflow(name: str, *, early_seconds: int | None = None) -> str:
    early = f"acceptEarly: {early_seconds}" if early_seconds else ""
    return WORKFLOW.format(name=name, early=early)


@dataclass
class Ear:
    """A connection to the broker that remembers what it hears, in order."""

    client: PlainClient
    heard: asyncio.Queue[tuple[str, bytes]]

    async def next(self) -> tuple[str, Any]:
        """Give the next message; its payload as JSON, or None when there is none."""
        topic, payload = await asyncio.wait_for(self.heard.get(), SECONDS)
        return topic, json.loads(payload) if payload else None

    async def tell(self, topic: str, payload: object) -> None:
        assert await self.client.publish(topic, payload if isinstance(payload, bytes) else json.dumps(payload).encode())

    async def ask(self, topic: str, payload: object) -> tuple[str, Any]:
        """Publish, and give the next message that comes."""
        await self.tell(topic, payload)
        return await self.next()


@contextlib.asynccontextmanager
async def ear(
    port: int,
    name: str,
    listen: str,
    *,
    password: str = "none",
    user: str = "",
    will: tuple[str, bytes] | None = None,
    clean: bool = True,
) -> AsyncIterator[Ear]:
    """Connect to the broker as `name`, listening to one filter."""
    queue: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
    client = await PlainClient.connect(
        port,
        user or name,
        password,
        client_id=name,
        heard=lambda topic, payload: queue.put_nowait((topic, payload)),
        replies=listen,
        will=will,
        clean=clean,
    )
    try:
        yield Ear(client, queue)
    finally:
        await client.close()


@dataclass
class Behind:
    """The broker, and the gateway behind it."""

    broker: Broker
    gateway: Gateway
    settings: dict[str, str] = field(default_factory=dict)

    async def start(self, *options: str) -> None:
        """Start the gateway and wait until its bridge has caught up."""
        await self.gateway.start(*options, **self.settings)
        await self.ready()

    async def ready(self) -> None:
        """Wait until the gateway's log says that the bridge is connected."""
        await self.logged("bridge connected", self._starts() + 1)

    def _starts(self) -> int:
        return self._connections

    _connections: int = 0

    async def logged(self, words: str, times: int = 1) -> None:
        """Wait until the log has said something so many times."""
        assert self.gateway.log is not None
        async with asyncio.timeout(30):
            while self.gateway.log.read_text().count(words) < times:
                await asyncio.sleep(0.05)
        if words == "bridge connected":
            self._connections = times

    def device(self, name: str) -> contextlib.AbstractAsyncContextManager[Ear]:
        """Be a device: connected to the broker, listening to its replies."""
        return ear(self.broker.port, name, f"d/{name}/replies/#")

    def listener(self, topic_filter: str) -> contextlib.AbstractAsyncContextManager[Ear]:
        return ear(self.broker.port, f"ear-{abs(hash(topic_filter)) % 10_000}", topic_filter)

    def api(self) -> httpx.AsyncClient:
        return self.gateway.client()

    async def add(self, name: str, *grants: str) -> None:
        async with self.api() as api:
            await self.gateway.add_device(api, name, grants)

    async def status(self, run: str, wanted: str) -> None:
        """Wait until a run has a status."""
        async with self.api() as api, asyncio.timeout(SECONDS):
            after = 0
            while (await self.gateway.run(api, run))["status"] != wanted:
                answer = await api.get(f"/runs/{run}/events", params={"after": after, "wait": 5})
                after = max([after, *(event["seq"] for event in answer.json()["events"])])

    async def audited(self, **fields: object) -> list[dict[str, Any]]:
        """Wait for audit events with these fields; give all of them."""
        async with self.api() as api, asyncio.timeout(SECONDS):
            while True:
                answer = await api.get("/audit", params={"limit": 500})
                answer.raise_for_status()
                events = [it for it in answer.json()["events"] if fields.items() <= it.items()]
                if events:
                    return events
                await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def behind(directory: Path, broker: Broker, *, start: bool = True, **settings: str) -> AsyncIterator[Behind]:
    """Run a broker and a gateway behind it, with the workflows `door` (no early signals) and `porch` (60 s)."""
    folder = directory / "data" / "workflows"
    folder.mkdir(parents=True)
    (directory / "data").chmod(0o700)
    (folder / "door.yaml").write_text(workflow("door"))
    (folder / "porch.yaml").write_text(workflow("porch", early_seconds=60))
    url = broker.url + ("?protocol=3.1.1" if broker.kind == "amqtt" else "")
    given = {"WAYSIDE_BRIDGE__URL": url, "WAYSIDE_BRIDGE__RECONNECT_MAX": "1"} | settings
    found = Behind(broker, Gateway(directory / "data"), given)
    async with broker:
        try:
            if start:
                await found.start()
            yield found
        finally:
            if found.gateway.process is not None and found.gateway.process.returncode is None:
                await found.gateway.kill()
