"""Stores that are closed whatever a test does, and a host whose clocks a test sets."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest

from engine.store.sqlite import SqliteStore

Open = Callable[..., SqliteStore]


class SetHost:
    """A host whose boot, boot-time clock and wall clock (microseconds) are what a test says."""

    def __init__(self, boot: str = "boot 1", boot_us: int = 5_000_000, wall_us: int = 1_800_000_000_000_000) -> None:
        self.boot_name = boot
        self.at_boot_us = boot_us
        self.at_wall_us = wall_us

    def boot(self) -> str:
        return self.boot_name

    def boot_us(self) -> int:
        return self.at_boot_us

    def wall_us(self) -> int:
        return self.at_wall_us

    def pass_seconds(self, seconds: float) -> None:
        self.at_boot_us += int(seconds * 1_000_000)
        self.at_wall_us += int(seconds * 1_000_000)

    def step_wall_seconds(self, seconds: float) -> None:
        self.at_wall_us += int(seconds * 1_000_000)


async def until_asked(store: SqliteStore, count: int = 1) -> None:
    """Return when the writer has been asked for so many things."""
    while len(store._waiting) < count:
        await asyncio.sleep(0)


async def until_taken(store: SqliteStore) -> None:
    """Return when the writer has been asked for something and has taken all of it from its queue."""
    while not store._writer._queue.empty() or not store._waiting:
        await asyncio.sleep(0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "records.db"


@pytest.fixture
async def open_sqlite(path: Path) -> AsyncIterator[Open]:
    async with AsyncExitStack() as stack:

        def open_one(*, at: Path = path, host: SetHost | None = None, lock_seconds: float = 5.0) -> SqliteStore:
            store = SqliteStore(at, host=host, lock_seconds=lock_seconds)
            stack.push_async_callback(store.close)
            return store

        yield open_one


@pytest.fixture
def shell(path: Path, open_sqlite: Open) -> Iterator[sqlite3.Connection]:
    """Another program with the file open."""
    open_sqlite()
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as connection:
        yield connection


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 3 MiB; only where the tests may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", place], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("no right to mount a small disk; the same is tested with a bound on the file")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)
