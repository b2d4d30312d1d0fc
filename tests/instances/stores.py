"""An empty store of each kind that several processes can share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from tests.support.nats import bucket, shared_cluster
from tests.support.objects import bucket as object_bucket
from tests.support.objects import shared_service
from tests.support.postgres import database, shared_server


@asynccontextmanager
async def sqlite(directory: Path) -> AsyncIterator[str]:
    yield f"sqlite://{directory / 'shared.db'}"


@asynccontextmanager
async def postgres(directory: Path) -> AsyncIterator[str]:
    async with database(shared_server()) as url:
        yield url


@asynccontextmanager
async def nats(directory: Path) -> AsyncIterator[str]:
    async with bucket(shared_cluster()) as url:
        yield url


@asynccontextmanager
async def s3(directory: Path) -> AsyncIterator[str]:
    service = shared_service("s3")
    async with object_bucket(service) as name:
        yield service.url(name)


@asynccontextmanager
async def gs(directory: Path) -> AsyncIterator[str]:
    service = shared_service("gs")
    async with object_bucket(service) as name:
        yield service.url(name)


STORES: dict[str, Callable[[Path], AbstractAsyncContextManager[str]]] = {
    "sqlite": sqlite,
    "postgres": postgres,
    "nats": nats,
    "s3": s3,
    "gs": gs,
}
