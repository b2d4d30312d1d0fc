"""A Mosquitto of the test's own, on a free loopback port."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path


def free_port() -> int:
    """Find a loopback port that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@asynccontextmanager
async def mosquitto(directory: Path, *settings: str, port: int | None = None) -> AsyncIterator[int]:
    """Run a broker, with `settings` as further lines of its configuration, and give its port once it is open."""
    program = shutil.which("mosquitto", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program, "mosquitto is not installed; deploy/test installs it"
    port = port or free_port()
    user = ("user root",) if os.geteuid() == 0 else ()
    configuration = directory / f"mosquitto-{port}.conf"
    configuration.write_text("\n".join([f"listener {port} 127.0.0.1", "log_dest stderr", *user, *settings, ""]))
    broker = await asyncio.create_subprocess_exec(
        program, "-c", str(configuration), stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    assert broker.stderr
    try:
        await _until_running(broker.stderr)
        drain = asyncio.create_task(_read_on(broker.stderr))
        yield port
        drain.cancel()
    finally:
        if broker.returncode is None:
            broker.terminate()
        await broker.wait()


ANYBODY: Sequence[str] = ("allow_anonymous true",)


async def _until_running(log: asyncio.StreamReader) -> None:
    said = []
    while line := await log.readline():
        said.append(line.decode(errors="replace"))
        if said[-1].rstrip().endswith(" running"):
            return
    raise AssertionError("mosquitto did not start: " + "".join(said))


async def _read_on(log: asyncio.StreamReader) -> None:
    while await log.read(65536):
        pass
