"""Proves that a crowd over the limits is answered quickly, with `/healthz` answering and a device served throughout."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from tests.acceptance.conftest import DOOR
from tests.support.plain_mqtt import packet, read_packet, text
from tests.support.serving import Gateway

CROWD, LIMIT = 300, 100
A_DEVICE_S = 8  # connections at once
SECONDS = 5.0
FEW_FILES = ("bash", "-c", f'ulimit -n {LIMIT + 512}; exec "$0" "$@"', sys.executable, "-m", "gateway.cli")
ACCEPTED = 0


def connect(device: str, token: str) -> bytes:
    return packet(0x10, text("MQTT") + b"\x04\xc2\x00\x3c" + text("") + text(device) + text(token))


class Crowd:
    """Connections that are opened at once and stay."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open: list[asyncio.StreamWriter] = []

    async def member(self, device: str, token: str) -> int | None:
        """Connect; return the code of the answer, or None for a connection that was closed without one."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            self._open.append(writer)
            writer.write(connect(device, token))
            _, body = await read_packet(reader)
        except (OSError, asyncio.IncompleteReadError):
            return None
        return body[1]

    async def leave(self) -> None:
        for writer in self._open:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in self._open), return_exceptions=True)


async def healthy(gateway: Gateway, until: asyncio.Event) -> list[float]:
    """Ask `/healthz` over and over, each time on a connection of its own; return how long each answer took."""
    took = []
    while not until.is_set():
        began = time.monotonic()
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.http)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()
        await writer.wait_closed()
        took.append(time.monotonic() - began)
        await asyncio.sleep(0.02)
    return took


async def test_where_few_files_may_be_open_connections_are_refused_in_time_and_healthz_answers(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "workflows").mkdir(parents=True)
    data.chmod(0o700)
    (data / "workflows" / "front-door.yaml").write_text(DOOR)
    gateway = Gateway(data, program=FEW_FILES)
    await gateway.start()
    crowd = Crowd(gateway.mqtt)
    try:
        names = [f"device-{number}" for number in range(CROWD // A_DEVICE_S + 1)]
        async with gateway.client() as api:
            tokens = {name: await gateway.add_device(api, name, ()) for name in names}
        over = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(healthy(gateway, over))
            began = time.monotonic()
            members = [names[number // A_DEVICE_S] for number in range(CROWD)]
            answers = await asyncio.gather(*(crowd.member(name, tokens[name]) for name in members))
            took = time.monotonic() - began
            over.set()
        assert took < SECONDS
        assert asking.result()
        assert max(asking.result()) < 2.0, "its slowest answer, in seconds"
        assert answers.count(ACCEPTED) == LIMIT
        assert answers.count(3) == CROWD - LIMIT  # "server unavailable", each with a reason and none left hanging
    finally:
        await crowd.leave()
        assert await gateway.stop() == 0
    assert gateway.log
    assert "too few files may be open" in gateway.log.read_text()
