"""A real `wayside serve` as a process of its own, on loopback ports, and its HTTP API."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.support.mosquitto import free_port

READY_SECONDS = 30.0
ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Gateway:
    """One gateway over `data`; it can be started again after it was killed, on the same ports, also from other code."""

    data: Path
    program: Sequence[str] = (sys.executable, "-m", "gateway.cli")
    mqtt: int = field(default_factory=free_port)
    http: int = field(default_factory=free_port)
    environment: dict[str, str] = field(default_factory=dict)
    process: asyncio.subprocess.Process | None = None
    log: Path | None = None
    root: Path = ROOT

    async def start(self, *options: str, **environment: str) -> None:
        """Start and wait until it says that it is ready."""
        self.log = self.data.parent / f"{self.data.name}.log"
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self.program,
                "serve",
                "--data",
                str(self.data),
                "--mqtt",
                f"127.0.0.1:{self.mqtt}",
                "--http",
                f"127.0.0.1:{self.http}",
                *options,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={**os.environ, **self.environment, **environment},
                cwd=self.root,
            )
        assert self.process.stdout is not None
        try:
            line = await asyncio.wait_for(self.process.stdout.readline(), READY_SECONDS)
        except TimeoutError:
            await self.kill()
            raise
        assert line.startswith(b"ready"), f"the gateway did not start: {self.log.read_text()[-2000:]}"

    async def kill(self) -> None:
        """Send SIGKILL and wait for the end."""
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self._ended()

    async def _ended(self) -> int:
        assert self.process is not None
        assert self.process.stdout is not None
        # The pipe is read to its end, so that nothing of the process stays open here.
        await self.process.stdout.read()
        return await self.process.wait()

    async def stop(self) -> int:
        """Send SIGTERM; return the exit status."""
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        return await asyncio.wait_for(self._ended(), 30)

    def client(self, token: str = "") -> httpx.AsyncClient:
        """Make a client of the HTTP API with the admin's token, or another operator's."""
        token = token or (self.data / "admin.token").read_text().strip()
        return httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{self.http}/api/v1",
            headers={"authorization": f"Bearer {token}"},
            timeout=30,
            trust_env=False,
        )

    async def add_device(self, client: httpx.AsyncClient, name: str, grants: Sequence[str]) -> str:
        """Add a device; return its token."""
        answer = await client.post("/devices", json={"device": name, "grants": list(grants)})
        answer.raise_for_status()
        token: str = answer.json()["token"]
        return token

    async def run(self, client: httpx.AsyncClient, run: str) -> dict[str, Any]:
        """Show a run."""
        answer = await client.get(f"/runs/{run}")
        answer.raise_for_status()
        shown: dict[str, Any] = answer.json()
        return shown
