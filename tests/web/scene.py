"""A gateway with something of everything to look at: waits, held signals, failures, devices, a broken definition."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.support.serving import Gateway

FRONT_DOOR = """\
name: front-door
description: Someone is at the door
inputs:
  type: object
  properties: { camera: { type: string, enum: [kitchen, porch] } }
trigger: { topic: true }
jobs:
  - name: main
    steps:
      - name: snapshot
        task: { type: publish, topic: cameras/kitchen/cmd, payload: { take: 1 } }
      - name: identify
        dependsOn: [{ step: snapshot, condition: { type: completed } }]
        allowFailure: true
        task:
          type: wait_for_signal
          key: kitchen-verdict
          acceptEarly: 600
          timeout: 900
          schema:
            type: object
            required: [verdict]
            properties: { verdict: { type: string, enum: [known, intruder] } }
      - name: alarm
        dependsOn: [{ step: identify, condition: { type: completed } }]
        guard: ${{ steps.identify.status == "succeeded" && steps.identify.payload.verdict == "known" }}
        task: { type: publish, topic: sirens/hall/cmd, payload: { "on": true } }
"""
GREENHOUSE = """\
name: greenhouse
description: Water the zones that are too dry
inputs: { type: object, required: [dry], properties: { dry: { type: boolean } } }
jobs:
  - name: ask
    steps:
      - name: dry-enough
        task: { type: assert, that: "${{ inputs.dry }}", message: The beds are wet }
      - name: minutes
        dependsOn: [{ step: dry-enough }]
        task: { type: wait_for_signal, key: minutes, acceptEarly: 3600, earlyPolicy: latest, timeout: 3600 }
  - name: water
    dependsOn: [{ job: ask }]
    steps:
      - name: valve-north
        task: { type: publish, topic: greenhouse/north/valve, payload: { open: true } }
      - name: valve-south
        task: { type: publish, topic: greenhouse/south/valve, payload: { open: true } }
      - name: report
        dependsOn: [{ step: valve-north }, { step: valve-south, condition: { type: always } }]
        task: { type: publish, topic: greenhouse/report, payload: {} }
"""
LIGHT = """\
name: night-light
description: A light for the stairs
jobs:
  - name: main
    steps:
      - name: dusk
        task: { type: wait_for_signal, key: dusk, acceptEarly: 3600, timeout: 3600 }
"""
BROKEN = """\
name: letter-box
jobs:
  - name: main
    steps:
      - name: flap
        task:
          type: wait_for_signal
          key: flap
          timeout: soon
      - name: tell
        dependOn: [{ step: flap }]
        task: { type: publish, topic: household/notice, payload: {} }
"""


@dataclass
class Scene:
    """The gateway, and the names of what is in it."""

    gateway: Gateway
    api: httpx.AsyncClient
    suspended: str = ""
    failed: str = ""
    succeeded: str = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.gateway.http}"

    async def login_path(self) -> str:
        answer = await self.api.post("/logins")
        answer.raise_for_status()
        path: str = answer.json()["path"]
        return path

    async def start(self, workflow: str, **inputs: object) -> str:
        answer = await self.api.post(f"/workflows/{workflow}/runs", json={"inputs": inputs})
        answer.raise_for_status()
        run: str = answer.json()["run"]
        return run

    async def until(self, run: str, *statuses: str) -> None:
        after = 0
        while (await self.gateway.run(self.api, run))["status"] not in statuses:
            events = (await self.api.get(f"/runs/{run}/events", params={"after": after, "wait": 5})).json()["events"]
            after = events[-1]["seq"] if events else after

    async def signal(self, key: str, payload: object) -> httpx.Response:
        return await self.api.post(f"/signals/{key}", json=payload)

    async def fill(self) -> None:
        """Have something of everything happen."""
        for name, grants, note in (
            (
                "kitchen-camera",
                ["signal:front-door/kitchen-verdict", "read:front-door", "run:front-door"],
                "above the sink",
            ),
            ("gardener", ["signal:greenhouse/minutes"], ""),
            ("old-siren", ["listen:sirens/#"], "in the hall"),
        ):
            answer = await self.api.post("/devices", json={"device": name, "grants": grants, "note": note})
            answer.raise_for_status()
        (await self.api.post("/devices/old-siren/disable")).raise_for_status()
        self.succeeded = await self.start("front-door", camera="porch")
        await self.until(self.succeeded, "suspended")
        (await self.signal("front-door/kitchen-verdict", {"verdict": "known"})).raise_for_status()
        await self.until(self.succeeded, "succeeded")
        self.failed = await self.start("greenhouse", dry=False)
        await self.until(self.failed, "failed")
        assert (await self.signal("greenhouse/minutes", {"minutes": 5})).status_code == 202
        assert (await self.signal("front-door/kitchen-verdict", {"verdict": "nobody"})).status_code == 422
        self.suspended = await self.start("front-door", camera="kitchen")
        await self.until(self.suspended, "suspended")


@asynccontextmanager
async def scene(directory: Path, *, empty: bool = False) -> AsyncIterator[Scene]:
    """Serve the scene, or a gateway with nothing in it, for as long as the context lasts."""
    data = directory / "data"
    (data / "workflows").mkdir(parents=True)
    data.chmod(0o700)
    if not empty:
        for name, text in (
            ("front-door", FRONT_DOOR),
            ("greenhouse", GREENHOUSE),
            ("night-light", LIGHT),
            ("letter-box", BROKEN),
        ):
            (data / "workflows" / f"{name}.yaml").write_text(text)
    gateway = Gateway(data)
    await gateway.start()
    try:
        async with gateway.client() as api:
            found = Scene(gateway, api)
            if not empty:
                await asyncio.wait_for(found.fill(), 60)
            yield found
    finally:
        assert await gateway.stop() == 0
