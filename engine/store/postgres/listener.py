"""Tell other instances that something was written, and hear of it from them. A hint: nothing depends on it.

NOTIFY inside a transaction would make every commit wait for every other, and lose group commit. So it is sent after the
commit, at once and then at most every `POSTGRES_HINT_SECONDS`, on a connection of its own that commits
asynchronously. What is lost while the connection is, is made up for: whoever listens is told when it is back.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from time import monotonic
from typing import Final

import asyncpg

from engine.errors import WaysideError
from engine.limits import POSTGRES_BACKOFF_SECONDS, POSTGRES_HINT_SECONDS, STORE_TIMEOUT_SECONDS
from engine.store.postgres.connections import Connection, Connections

_CHANNEL: Final = "wayside"


class Listener:
    """Owns one connection and the task that keeps it, from the first time that somebody waits for a change."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._changed = asyncio.Event()
        self._wrote = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def wrote(self) -> None:
        """Take note that this instance has stored or deleted something."""
        self._wrote.set()
        self._start()

    async def changed(self) -> None:
        """Return when another instance may have written since the last call."""
        self._start()
        await self._changed.wait()
        self._changed.clear()

    async def close(self) -> None:
        """Let go of the connection."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def _start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._keep(), name="store hints")

    async def _keep(self) -> None:
        while True:
            try:
                connection = await self._connections.connect(monotonic() + STORE_TIMEOUT_SECONDS)
            except WaysideError:
                # Whoever reads or writes hears of it.
                await asyncio.sleep(POSTGRES_BACKOFF_SECONDS)
                continue
            try:
                await self._serve(connection)
            except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError):
                await asyncio.sleep(POSTGRES_HINT_SECONDS)
            finally:
                connection.terminate()

    async def _serve(self, connection: Connection) -> None:
        lost = asyncio.Event()
        own = connection.get_server_pid()

        def heard(_: object, sender: int, __: str, ___: object) -> None:
            if sender != own:
                self._changed.set()

        connection.add_termination_listener(lambda _: lost.set())
        await connection.execute("SET synchronous_commit = off")
        await connection.add_listener(_CHANNEL, heard)
        # What was written before we listened.
        self._changed.set()
        ended = asyncio.create_task(lost.wait(), name="store hints lost")
        try:
            while not lost.is_set():
                wrote = asyncio.create_task(self._wrote.wait(), name="store hints wrote")
                await asyncio.wait([ended, wrote], return_when=asyncio.FIRST_COMPLETED)
                wrote.cancel()
                if lost.is_set():
                    break
                self._wrote.clear()
                await connection.execute(f"NOTIFY {_CHANNEL}", timeout=STORE_TIMEOUT_SECONDS)
                await asyncio.sleep(POSTGRES_HINT_SECONDS)
        finally:
            ended.cancel()
