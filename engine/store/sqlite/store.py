"""Write-once records in one SQLite file, as the engine sees them."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable, Sequence
from contextvars import Context, copy_context
from datetime import datetime
from itertools import islice, takewhile
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar, cast

from engine.errors import StoreUnavailable
from engine.limits import (
    SQLITE_BATCH_BYTES,
    SQLITE_BATCH_RECORDS,
    SQLITE_LOCK_SECONDS,
    SQLITE_PAGE_RECORDS,
    SQLITE_TURN_OPERATIONS,
    STORE_TIMEOUT_SECONDS,
)
from engine.store.base import Record, Rider
from engine.store.batching import Batcher, Bounds
from engine.store.keys import check_item, check_items, check_key, check_range
from engine.store.sqlite.batch import to_record
from engine.store.sqlite.clock import HostClock, SystemHostClock, to_datetime
from engine.store.sqlite.faults import fault, is_busy, locked, missed_turn, no_answer
from engine.store.sqlite.file import open_file
from engine.store.sqlite.moment import Moment, Operation
from engine.store.sqlite.reading import GET, LAST, Rows, end_of, page
from engine.store.sqlite.requests import Create, Delete, Items, Load, ReadClock, Turn, Watch, Write, deliver
from engine.store.sqlite.writer import Writer

_READ_RETRY_SECONDS = 0.002
_WATCHDOG_SECONDS = 1.0
T = TypeVar("T")
# An operation, and what whoever asks for it has set for those whom it calls.
_Asked = tuple[Operation[Any], Context]
# What an operation returned, or what it raised.
_Outcome = tuple[Any, Exception | None]
# Inside the class, `list` is a method.
_Records = list[Record]


class SqliteStore:
    """A store in the file at `path`, which is made if it is new; several processes of one host may share it.

    Creates are durable when they return: committed with `synchronous=FULL`, together with those of other callers.
    Reads happen at once, in the caller's thread, and see every commit that was answered before they began, of any
    process; only while another process keeps the file locked do they wait.

    Opening blocks for milliseconds, or up to `lock_seconds` while others hold the file. Raises what `open_file` does.
    """

    def __init__(
        self, path: Path | str, *, host: HostClock | None = None, lock_seconds: float = SQLITE_LOCK_SECONDS
    ) -> None:
        self._file = open_file(Path(path), patience_seconds=lock_seconds)
        self._lock_seconds = lock_seconds
        self._reader: sqlite3.Connection | None = None
        self._closed = False
        # In the order in which they came.
        self._waiting: dict[Write, None] = {}
        self._watchdog: asyncio.AbstractEventLoop | None = None
        self._rider: Rider | None = None
        self._moments: Batcher[_Asked, _Outcome] = Batcher(
            "moment", self._moment, Bounds(records=SQLITE_TURN_OPERATIONS, volume=SQLITE_BATCH_BYTES)
        )
        self._writer = Writer(self._file, host or SystemHostClock(), lock_seconds=lock_seconds)

    @property
    def path(self) -> Path:
        """Where the file is, absolute."""
        return self._file.path

    async def create(self, key: str, value: bytes) -> Record:
        check_item(key, value)
        return (await self._create(((key, value),), len(value)))[0]

    async def create_all(self, items: Sequence[tuple[str, bytes]]) -> list[Record]:
        """Create the items in order, in one transaction if they are no more than a batch, else in several.

        When a later transaction of several fails, the fault is `uncertain`: the earlier ones are stored.
        """
        check_items(items)
        stored: list[Record] = []
        for part, size in _parts(items):
            try:
                stored += await self._create(part, size)
            except StoreUnavailable as error:
                error.uncertain = error.uncertain or bool(stored)
                raise
        return stored

    async def load(self, records: Sequence[Record]) -> None:
        """Store records with the stamps that they bear elsewhere; later stamps are not below any of them."""
        for at in range(0, len(records), SQLITE_BATCH_RECORDS):
            part = records[at : at + SQLITE_BATCH_RECORDS]
            check_items([(record.key, record.value) for record in part])
            loop = asyncio.get_running_loop()
            await self._ask(Load(loop, loop.create_future(), len(part), loaded=part))

    async def get(self, key: str) -> Record | None:
        check_key(key)
        rows = await self._read(GET, (key,))
        return to_record(rows[0]) if rows else None

    async def last(self, prefix: str) -> Record | None:
        check_range(prefix, None, None)
        rows = await self._read(LAST, (prefix, end_of(prefix)))
        return to_record(rows[0]) if rows else None

    async def list(self, prefix: str, *, after: str | None = None, limit: int | None = None) -> list[Record]:
        """Read records in key order: up to `SQLITE_PAGE_RECORDS` at one moment, more of them page by page.

        Between pages other tasks run: a record that is created meanwhile is seen if its key lies ahead.
        """
        check_range(prefix, after, limit)
        end = end_of(prefix)
        statement, start = page(prefix, after)
        found: list[Record] = []
        while limit is None or len(found) < limit:
            wanted = SQLITE_PAGE_RECORDS if limit is None else min(SQLITE_PAGE_RECORDS, limit - len(found))
            rows = await self._read(statement, (start, end, wanted))
            found.extend(map(to_record, rows))
            if len(rows) < wanted:
                break
            statement, start = page(prefix, rows[-1][0])
            await asyncio.sleep(0)
        return found

    async def delete(self, keys: Iterable[str]) -> None:
        """Delete records, a batch in each transaction; a fault may leave the first batches deleted."""
        rest = iter(keys)
        while part := list(islice(rest, SQLITE_BATCH_RECORDS)):
            for key in part:
                check_key(key)
            loop = asyncio.get_running_loop()
            await self._ask(Delete(loop, loop.create_future(), len(part), keys=part))

    async def now(self, until: datetime | None = None) -> datetime:
        """Read the clock so that nothing that becomes visible after the answer bears an earlier stamp.

        *Why this needs the write lock.* A stamp is taken at `s` with the write lock held, and the record becomes
        visible at its commit, `c > s`. Whoever read the clock between the two, at `t`, and then looked for the record
        would miss it and yet, later, meet a stamp `s < t`. So the answer is read with the write lock held: every
        transaction that was stamped before has ended, and is visible or gone; every later one takes its stamp after,
        on the same clock, at or above the answer. A clock read that shares a transaction with creates gives their own
        stamp, which is not above theirs.

        *With `until`*, while this host's clock is before it, that clock is the answer, at once and without a lock: it
        only says that `until` has not passed, and nothing rests on how far it has come. Once it has passed, the
        strict answer decides. The clock of the file is never behind this host's.
        """
        if until is not None and (local := to_datetime(self._writer.clock.local_us())) < until:
            return local
        loop = asyncio.get_running_loop()
        answer = await self._ask(ReadClock(loop, loop.create_future()))
        return to_datetime(cast("int", answer))

    async def at_once(self, operation: Operation[T]) -> T:
        """Run an operation on a view of the store, in one transaction with others that come at the same time."""
        context = copy_context()
        result, raised = await self._moments.ask((operation, context))
        # What was set in the operation, for one which signal a trace is about, holds for whoever asked for it.
        for variable, value in context.items():
            if variable.get(None) is not value:
                variable.set(value)
        if raised is not None:
            raise raised
        return result  # type: ignore[no-any-return]

    def carry(self, rider: Rider) -> None:
        self._rider = rider

    async def _moment(self, operations: Sequence[_Asked], _deadline: float) -> Sequence[_Outcome]:
        """Do operations, and commit what they created in the writer's next transaction."""
        loop = asyncio.get_running_loop()
        turn = Turn(loop, loop.create_future(), offered=loop.create_future())
        fault_of_it: StoreUnavailable | None = StoreUnavailable("the process is ending", uncertain=True)
        self._expect(turn)
        try:
            stamp_us = await turn.offered
            if not turn.begin():
                raise missed_turn()
            outcomes = self._take(turn, stamp_us, operations)
            await turn.answer
        except StoreUnavailable as error:
            fault_of_it = error
            raise
        else:
            fault_of_it = None
            return outcomes
        finally:
            del self._waiting[turn]
            # Whoever goes without having taken the turn leaves nobody waiting for it.
            turn.answer.cancel()
            turn.give_back(())
            if self._rider is not None:
                self._rider.arrive(fault_of_it)

    def _take(self, turn: Turn, stamp_us: int, operations: Sequence[_Asked]) -> Sequence[_Outcome]:
        """Do operations while the writer waits for what they create; it gets nothing where reading fails."""
        items: Items = ()
        try:
            connection = self._connected()
            connection.execute("BEGIN")
            moment = Moment(connection, stamp_us)
            if self._rider is not None:
                self._rider.embark()
            outcomes = [_outcome(moment, *asked) for asked in operations]
            more = () if self._rider is None else self._rider.ride(to_datetime(stamp_us))
            connection.execute("COMMIT")
            items = [*moment.items, *more]
        except sqlite3.Error as error:
            self._disconnect()
            raise fault(error, self._file.path) from error
        except BaseException:
            # It would read what is committed now for ever.
            self._disconnect()
            raise
        else:
            return outcomes
        finally:
            turn.give_back(items)

    async def changed(self) -> None:
        """Return when another process has committed since the last call; the writer thread looks now and then."""
        loop = asyncio.get_running_loop()
        watch = Watch(loop, loop.create_future())
        self._writer.submit(watch)
        await watch.answer

    async def close(self) -> None:
        await self._moments.close()
        self._closed = True
        # Last to close merges the -wal into the file, and that must be the writer.
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
        await asyncio.to_thread(self._writer.stop, STORE_TIMEOUT_SECONDS)

    async def _create(self, items: Items, volume: int) -> _Records:
        loop = asyncio.get_running_loop()
        request = Create(loop, loop.create_future(), len(items), volume, items=items)
        return cast("_Records", await self._ask(request))

    async def _ask(self, request: Write) -> object:
        """Have the writer do something, and wait for it as long as a store may take."""
        self._expect(request)
        try:
            return await request.answer
        finally:
            del self._waiting[request]

    def _expect(self, request: Write) -> None:
        self._writer.submit(request)
        self._waiting[request] = None
        if self._watchdog is not request.loop:
            self._watchdog = request.loop
            self._watchdog.call_later(_WATCHDOG_SECONDS, self._give_up, request.loop)

    def _give_up(self, loop: asyncio.AbstractEventLoop) -> None:
        """Tell those who have waited too long; look again as long as anybody waits.

        One timer for all: one a request would cost a tenth of what the request does.
        """
        too_old = monotonic() - STORE_TIMEOUT_SECONDS
        deliver(
            [
                (request, no_answer(self._file.path, uncertain=not isinstance(request, ReadClock)))
                for request in takewhile(lambda waiting: waiting.since <= too_old, list(self._waiting))
            ]
        )
        if self._watchdog is not loop:
            return
        if self._waiting:
            loop.call_later(_WATCHDOG_SECONDS, self._give_up, loop)
        else:
            self._watchdog = None

    def _rows(self, statement: str, parameters: tuple[object, ...]) -> Rows | None:
        """Read at once; None while another process keeps the file to itself, which is rare."""
        try:
            return self._connected().execute(statement, parameters).fetchall()
        except sqlite3.Error as error:
            if not is_busy(error):
                self._disconnect()
                raise fault(error, self._file.path) from error
            return None

    async def _read(self, statement: str, parameters: tuple[object, ...]) -> Rows:
        """Read at once, or as soon as the process that recovers the file, or holds all of it, lets go."""
        if (rows := self._rows(statement, parameters)) is not None:
            return rows
        give_up_at = monotonic() + self._lock_seconds
        while monotonic() < give_up_at:
            await asyncio.sleep(_READ_RETRY_SECONDS)
            if (rows := self._rows(statement, parameters)) is not None:
                return rows
        raise locked(self._file.path, self._lock_seconds)

    def _connected(self) -> sqlite3.Connection:
        if self._closed:
            raise StoreUnavailable(f"the store {self._file.path} is closed")
        if self._reader is None:
            self._reader = self._file.connect(read_only=True)
        return self._reader

    def _disconnect(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()


def _outcome(moment: Moment, operation: Operation[Any], context: Context) -> _Outcome:
    """Do an operation; what it raises is its own caller's, what the file raises is everybody's."""
    try:
        return context.run(moment.do, operation), None
    except sqlite3.Error:
        raise
    except Exception as raised:  # noqa: BLE001 - it is raised again where the operation was asked for
        return None, raised


def _parts(items: Items) -> Iterable[tuple[Items, int]]:
    """Cut a list where a batch would be too large, and give each part's bytes."""
    part: list[tuple[str, bytes]] = []
    size = 0
    for item in items:
        if part and (len(part) >= SQLITE_BATCH_RECORDS or size + len(item[1]) > SQLITE_BATCH_BYTES):
            yield part, size
            part, size = [], 0
        part.append(item)
        size += len(item[1])
    if part:
        yield part, size
