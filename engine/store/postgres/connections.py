"""A few connections to one database: made when they are needed, made again when they are lost.

While the server is away, whoever asks waits for it: for `POSTGRES_PATIENCE_SECONDS` from the moment it was first
missed, which a restart and a failover fit into. After that everybody is told at once, until it is back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, Final, TypeVar

import asyncpg

from engine.clock import secret_number
from engine.errors import StoreUnavailable, WaysideError
from engine.limits import (
    POSTGRES_BACKOFF_SECONDS,
    POSTGRES_CONNECT_SECONDS,
    POSTGRES_PATIENCE_SECONDS,
    POSTGRES_STATEMENT_SECONDS,
)
from engine.store.batching import again
from engine.store.postgres.faults import Place, connecting, is_lost, is_transient, may_pass, working
from engine.store.postgres.schema import prepare

T = TypeVar("T")
Connection = Any  # asyncpg has no types

_FIRST_BACKOFF_SECONDS: Final = 0.05
# What a session runs under. Durable when it returns: an account or a database set to commit asynchronously is not
# obeyed; a stronger setting (remote_apply) is. The functions rely on each statement's seeing what was committed.
_SESSION: Final = """SELECT set_config('application_name', 'wayside', false),
    set_config('statement_timeout', $1, false),
    set_config('idle_in_transaction_session_timeout', $1, false),
    set_config('default_transaction_isolation', 'read committed', false),
    set_config('jit', 'off', false),
    set_config('synchronous_commit', CASE current_setting('synchronous_commit')
        WHEN 'off' THEN 'on' WHEN 'local' THEN 'on' ELSE current_setting('synchronous_commit') END, false)"""


class Connections:
    """Lends connections, at most `size` at a time, to one event loop."""

    def __init__(self, dsn: str, place: Place, size: int) -> None:
        self._dsn = dsn
        self._place = place
        self._free = asyncio.Semaphore(size)
        self._idle: list[Connection] = []
        self._prepared = asyncio.Lock()
        self._ready = False
        self._closed = False
        # Of the present outage: since when, what came of the last attempt, how long to pause, when to try again.
        self._fault: StoreUnavailable | None = None
        self._away_since = 0.0
        self._backoff = _FIRST_BACKOFF_SECONDS
        self._next_attempt = 0.0

    async def run(self, work: Callable[[Connection], Awaitable[T]], *, deadline: float, writes: bool = False) -> T:
        """Do `work`, which may be done twice, on a connection; once more on another when one is lost under it.

        Raises `StoreUnavailable`, `uncertain` when `writes` and some attempt may have been committed; what is done by
        `deadline` (monotonic) is not.
        """
        uncertain = False
        while True:
            try:
                async with asyncio.timeout_at(_loop_time(deadline)):
                    await self._free.acquire()
            except TimeoutError as error:
                raise working(error, self._place, uncertain=uncertain) from None
            try:
                connection = await self._taken(deadline, uncertain=uncertain)
                try:
                    async with asyncio.timeout_at(_loop_time(deadline)):
                        answer = await work(connection)
                except BaseException as error:
                    self._drop_after(connection, error)
                    if not isinstance(error, Exception) or isinstance(error, WaysideError):
                        raise
                    in_time = monotonic() < deadline
                    lost = is_lost(error) or isinstance(error, TimeoutError)
                    uncertain = uncertain or (writes and lost)
                    if in_time and (lost or is_transient(error)):
                        continue
                    raise working(error, self._place, uncertain=uncertain) from error
                self._idle.append(connection)
                return answer
            finally:
                self._free.release()

    async def connect(self, deadline: float) -> Connection:
        """Make a connection of the caller's own, patiently (`run`); raises `StoreUnavailable` and `FormatTooNew`."""
        while True:
            if self._closed:
                raise StoreUnavailable(f"the store in {self._place} is closed")
            await self._await_turn(deadline)
            try:
                connection = await self._attempt(deadline)
            except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError) as error:
                fault = connecting(error, self._place)
                if not may_pass(error):
                    raise fault from error
                self._note(fault)
            else:
                self._fault = None
                self._backoff = _FIRST_BACKOFF_SECONDS
                return connection

    async def close(self) -> None:
        """Close the connections that nobody has, and every other one when it comes back."""
        self._closed = True
        idle, self._idle = self._idle, []
        for connection in idle:
            try:
                await connection.close(timeout=POSTGRES_CONNECT_SECONDS)
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                connection.terminate()

    async def _taken(self, deadline: float, *, uncertain: bool) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        try:
            return await self.connect(deadline)
        except StoreUnavailable as error:
            error.uncertain = error.uncertain or uncertain
            raise

    def _drop_after(self, connection: Connection, error: BaseException) -> None:
        """Keep a connection whose statement was refused in an orderly way; let go of any other at once."""
        if isinstance(error, asyncpg.PostgresError) and not is_lost(error) and not connection.is_closed():
            self._idle.append(connection)
        else:
            connection.terminate()

    async def _await_turn(self, deadline: float) -> None:
        """Wait until the server may be tried again; raise what was last heard of it when that takes too long."""
        while (fault := self._fault) is not None and (pause := self._next_attempt - monotonic()) > 0:
            give_up_at = min(deadline, self._away_since + POSTGRES_PATIENCE_SECONDS)
            if self._next_attempt > give_up_at:
                raise again(fault)
            await asyncio.sleep(pause)

    def _note(self, fault: StoreUnavailable) -> None:
        now = monotonic()
        if self._fault is None:
            self._away_since = now
        self._fault = fault
        # Instances that lost the server at one moment do not all come back at one.
        self._next_attempt = now + self._backoff * (0.5 + secret_number(16) / 65_536)
        self._backoff = min(self._backoff * 2, POSTGRES_BACKOFF_SECONDS)

    async def _attempt(self, deadline: float) -> Connection:
        left = max(0.01, min(POSTGRES_CONNECT_SECONDS, deadline - monotonic()))
        async with asyncio.timeout(left):
            connection = await asyncpg.connect(self._dsn, timeout=left, target_session_attrs="read-write")
        try:
            async with asyncio.timeout(left):
                await connection.execute(_SESSION, f"{POSTGRES_STATEMENT_SECONDS:g}s")
            if not self._ready:
                async with self._prepared, asyncio.timeout(max(0.01, deadline - monotonic())):
                    await prepare(connection)
                    self._ready = True
        except BaseException:
            connection.terminate()
            raise
        return connection


def _loop_time(deadline: float) -> float:
    return asyncio.get_running_loop().time() + deadline - monotonic()
