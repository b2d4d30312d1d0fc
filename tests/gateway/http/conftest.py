"""One instance over a memory store, with its HTTP door called in-process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from devices import operations
from devices.model import Right
from gateway.app import compose
from gateway.config import load
from gateway.http.app import create_app
from gateway.http.front import Front
from gateway.services import Services

DOOR = """\
name: front-door
description: Somebody is at the door
inputs: { type: object, properties: { camera: { type: string } } }
jobs:
  - name: main
    steps:
      - name: identify
        allowFailure: true
        task:
          type: wait_for_signal
          key: verdict
          acceptEarly: 60
          timeout: 600
          schema: { type: object, required: [who], properties: { who: { enum: [known, intruder] } } }
      - name: strict
        dependsOn: [{ step: identify, condition: { type: completed } }]
        task: { type: wait_for_signal, key: strict, timeout: 600 }
"""
QUICK = """\
name: quick
jobs:
  - name: main
    steps:
      - name: check
        task: { type: assert, that: "${{ inputs.good }}", message: not good }
"""


@dataclass
class Door:
    """The HTTP door, and what is behind it."""

    services: Services
    app: Front

    def client(self, token: str | None) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        return httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://localhost", headers=headers)

    async def device(self, *grants: str, name: str = "camera") -> httpx.AsyncClient:
        issued = await operations.add(self.services.registry, name, by="user:test", grants=grants)
        return self.client(issued.token)

    async def operator(self, *rights: Right, name: str = "somebody") -> httpx.AsyncClient:
        issued = await operations.add_operator(self.services.registry, name, rights=rights, by="user:test")
        return self.client(issued.token)

    def admin(self) -> httpx.AsyncClient:
        return self.client((self.services.settings.data / "admin.token").read_text().strip())

    async def start(self, workflow: str = "front-door", **inputs: object) -> str:
        """Start a run and return once it suspends or ends."""
        run = await self.services.engine.start_run(workflow, inputs, by="user:test")
        await self.services.engine.settled(run)
        return run


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "front-door.yaml").write_text(DOOR)
    (tmp_path / "workflows" / "quick.yaml").write_text(QUICK)
    settings = load({"data": str(tmp_path), "store": "memory:"}, environment={}).settings

    async def ready() -> list[str]:
        return []

    async with compose(settings) as services:
        yield Door(services, Front(create_app(services), hosts=(), not_ready=ready))
