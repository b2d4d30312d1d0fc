"""A listener in a process of its own, before an application that admits everybody and accepts everything at once."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from engine.clock import SystemSource
from gateway.listener.limits import ListenerLimits
from gateway.listener.port import Admitted, Certificate, Denied, EndReason, Handled, Published, RefusalReason, Reply
from gateway.listener.server import Listener

_PAGE_BYTES = 4_096
_ACCEPTED = b'{"v":1,"ok":true,"code":202,"id":"0123456789abcdef","receipt":"01234567890123456789012345"}'


class Everybody:
    """Admits any user name; refuses nothing."""

    async def connect(
        self,
        *,
        username: str | None,
        password: bytes | None,
        certificate: Certificate | None,
        client_id: str,
        address: str,
    ) -> Admitted | Denied:
        return Admitted(username or "nobody")

    async def publish(self, who: Admitted, message: Published, *, address: str) -> Handled:
        return Handled((Reply(f"replies/{message.topic}/accepted", _ACCEPTED),))

    def may_subscribe(self, who: Admitted, topic_filter: str) -> bool:
        return True

    def connected(self, who: Admitted, client_id: str, address: str) -> None:
        pass

    def disconnected(self, who: Admitted, client_id: str, address: str, reason: EndReason) -> None:
        pass

    def refused(self, reason: RefusalReason, device: str, address: str) -> None:
        pass

    def presence(self, who: Admitted, payload: bytes) -> None:
        pass

    def will_dropped(self, who: Admitted, topic: str) -> None:
        pass


@dataclass(frozen=True)
class Process:
    """Where it listens, and how much memory it has."""

    port: int
    pid: int

    def resident_bytes(self) -> int:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * _PAGE_BYTES

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100


@contextmanager
def listener_process(**limits: Any) -> Iterator[Process]:
    """Run it until the block ends; `limits` are those of `ListenerLimits`."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_run, args=(there, limits), daemon=True)
    process.start()
    try:
        yield Process(port=here.recv(), pid=process.pid or 0)
    finally:
        here.send("stop")
        process.join(10)
        process.kill()


def _run(pipe: Connection, limits: dict[str, Any]) -> None:
    asyncio.run(_serve(pipe, limits))


async def _serve(pipe: Connection, limits: dict[str, Any]) -> None:
    listener = Listener(Everybody(), ListenerLimits(**limits), SystemSource())
    _, port = await listener.start_tcp("127.0.0.1", 0)
    pipe.send(port)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_reader(pipe.fileno(), stop.set)
    await stop.wait()
    await listener.stop(0)
