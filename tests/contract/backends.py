"""The backends under the contract. To put another one under it, add a function to `BACKENDS`: nothing else."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from engine.store.base import Store
from engine.store.memory import MemoryStore, RunningClock
from engine.store.open import open_store
from tests.support.nats import bucket, shared_cluster
from tests.support.objects import bucket as object_bucket
from tests.support.objects import shared_service
from tests.support.postgres import database, shared_server

# `WAYSIDE_S3=full` asks as much of moto's S3 as of the others.
FULL = os.environ.get("WAYSIDE_S3") == "full"


@dataclass(frozen=True, slots=True)
class Backend:
    """A fresh, empty store: `store` is one handle to it, `another()` makes one as another process would have.

    `url` is what `open_store` opens in another process; empty when the records live in this one only. `many` records
    are more than it reads or writes at once. `percent` is how much of what other backends do a slow one is asked to.
    """

    store: Store
    another: Callable[[], Awaitable[Store]]
    url: str
    many: int = 2_500
    percent: int = 100
    examples: Iterator[int] = field(default_factory=count)

    def times(self, usual: int) -> int:
        """Say how often to do what is done `usual` times on other backends."""
        return max(3, usual * self.percent // 100)


@asynccontextmanager
async def memory(directory: Path) -> AsyncIterator[Backend]:
    store = MemoryStore(RunningClock())

    async def another() -> Store:
        return store.peer()

    yield Backend(store, another, "")


@asynccontextmanager
async def sqlite(directory: Path) -> AsyncIterator[Backend]:
    async with _by_url(f"sqlite://{directory / 'records.db'}") as backend:
        yield backend


@asynccontextmanager
async def postgres(directory: Path) -> AsyncIterator[Backend]:
    async with database(shared_server()) as url, _by_url(url) as backend:
        yield backend


@asynccontextmanager
async def nats(directory: Path) -> AsyncIterator[Backend]:
    async with bucket(shared_cluster()) as url, _by_url(url) as backend:
        yield backend


@asynccontextmanager
async def s3(directory: Path) -> AsyncIterator[Backend]:
    service = shared_service("s3")
    async with object_bucket(service) as name, _by_url(service.url(name)) as backend:
        # moto takes milliseconds for each request. Google's stand-in is quick, and the code is the same.
        yield replace(backend, many=1_100 if FULL else 60, percent=100 if FULL else 15)


@asynccontextmanager
async def gs(directory: Path) -> AsyncIterator[Backend]:
    service = shared_service("gs")
    async with object_bucket(service) as name, _by_url(service.url(name)) as backend:
        yield replace(backend, many=1_100)


@asynccontextmanager
async def _by_url(url: str) -> AsyncIterator[Backend]:
    async with AsyncExitStack() as stack:

        async def another() -> Store:
            store = open_store(url)
            stack.push_async_callback(store.close)
            return store

        yield Backend(await another(), another, url)


BACKENDS: dict[str, Callable[[Path], AbstractAsyncContextManager[Backend]]] = {
    "memory": memory,
    "sqlite": sqlite,
    "postgres": postgres,
    "nats": nats,
    "s3": s3,
    "gs": gs,
}
IN_ONE_PROCESS = {"memory"}
