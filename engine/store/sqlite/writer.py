"""The one thread that writes: it commits together what concurrent callers ask for.

Callers put requests into a queue and await a future. The thread drains the queue into one transaction, commits it with
one fsync, and only then resolves the futures, with one call into each event loop. While it commits, the next batch
gathers: one caller gets a transaction for itself, many share one.

No error ends the thread. A transaction that fails is rolled back and everybody in it is told; when the connection may
have suffered, the next batch gets a new one.
"""

from __future__ import annotations

import sqlite3
import threading
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import monotonic, sleep
from typing import assert_never

from engine.errors import StoreUnavailable, WaysideError
from engine.limits import SQLITE_BATCH_BYTES, SQLITE_BATCH_RECORDS, SQLITE_POLL_SECONDS, SQLITE_TURN_SECONDS
from engine.store.sqlite import batch as statements
from engine.store.sqlite.clock import FileClock, HostClock, anchored, to_microseconds
from engine.store.sqlite.faults import fault, is_busy, locked, may_have_landed, primary_code
from engine.store.sqlite.file import StoreFile, patiently
from engine.store.sqlite.requests import (
    Answers,
    Create,
    Delete,
    Load,
    ReadClock,
    Request,
    Stop,
    Turn,
    Watch,
    Write,
    deliver,
    offer,
)

_LOCK_RETRY_SECONDS = 0.001
_HARMLESS = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CONSTRAINT})


class Writer:
    """Owns the writing connection of one file, in a thread of its own."""

    def __init__(self, file: StoreFile, host: HostClock, *, lock_seconds: float) -> None:
        self._file = file
        self._lock_seconds = lock_seconds
        self._queue: SimpleQueue[Write | Watch | Stop] = SimpleQueue()
        self._stopping = False
        # Comes first in the next batch: who takes it reads what is committed, so nothing may have been done before it.
        self._turn: Turn | None = None
        self._watches: list[Watch] = []
        self._polled_at = 0.0
        self._connection: sqlite3.Connection | None
        self._version_seen: int | None
        self._connection, self.clock, self._version_seen = patiently(
            file.path, lock_seconds, lambda: _start(file, host)
        )
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    def submit(self, request: Write | Watch) -> None:
        """Put a request in the queue; from any thread."""
        if self._stopping:
            raise self._closed()
        self._queue.put(request)

    def stop(self, timeout_seconds: float) -> None:
        """Finish what is in the queue, then let go of the file. Blocks; safe to call twice."""
        if not self._stopping:
            self._stopping = True
            self._queue.put(Stop())
        self._thread.join(timeout_seconds)

    # What follows runs in the thread.

    def _run(self) -> None:
        running = True
        while running:
            batch, running = self._gather()
            if batch:
                self._perform(batch)
            self._poll()
        self._disconnect()
        self._refuse_the_rest()

    def _gather(self) -> tuple[list[Write], bool]:
        """Wait for something to do, then take what else has come, up to a batch; False when it is time to stop."""
        batch: list[Write] = []
        if self._turn is not None:
            batch, self._turn = [self._turn], None
            return batch, self._gather_more(batch)
        try:
            running = self._admit(self._queue.get(timeout=SQLITE_POLL_SECONDS if self._watches else None), batch)
        except Empty:
            return batch, True
        return batch, running and self._gather_more(batch)

    def _gather_more(self, batch: list[Write]) -> bool:
        records = sum(request.records for request in batch)
        volume = sum(request.volume for request in batch)
        while records < SQLITE_BATCH_RECORDS and volume < SQLITE_BATCH_BYTES:
            try:
                request = self._queue.get_nowait()
            except Empty:
                return True
            if isinstance(request, Turn) and batch:
                self._turn = request
                return True
            if not self._admit(request, batch):
                return False
            if not isinstance(request, Stop):
                records += request.records
                volume += request.volume
        return True

    def _admit(self, request: Write | Watch | Stop, batch: list[Write]) -> bool:
        match request:
            case Create() | Delete() | Load() | ReadClock() | Turn():
                # Whoever gave up before the work began is not in it.
                if not request.answer.done():
                    batch.append(request)
            case Watch():
                self._watches.append(request)
                self._polled_at = 0.0
            case Stop():
                return False
            case _:
                assert_never(request)
        return True

    def _perform(self, batch: list[Write]) -> None:
        """Do a batch in one transaction and tell everybody in it what came of it."""
        answers: Answers
        committing = False
        try:
            self._file.check_in_place()
            connection = self._begin(batch)
            if connection is None:
                return
            stamp_us = self.clock.stamp_us(connection)
            answers = self._do_all(connection, batch, stamp_us)
            committing = True
            connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - whatever it is, everybody is told, and the thread goes on
            self._recover(error)
            answers = [(request, self._fault(error, committing=committing)) for request in batch]
        deliver(answers)

    def _do_all(self, connection: sqlite3.Connection, batch: list[Write], stamp_us: int) -> Answers:
        """Do the requests in their order; creates that follow each other share their statements."""
        answers: Answers = []
        creates: list[Create] = []
        for request in batch:
            if isinstance(request, Create):
                creates.append(request)
            else:
                answers += _create(connection, creates, stamp_us)
                creates = []
                answers.append((request, self._do(connection, request, stamp_us)))
        return answers + _create(connection, creates, stamp_us)

    def _do(
        self, connection: sqlite3.Connection, request: Delete | Load | ReadClock | Turn, stamp_us: int
    ) -> int | None:
        match request:
            case Turn():
                if not self.clock.shared:
                    self.clock.keep(connection, stamp_us)
                offer(request, stamp_us)
                statements.insert(connection, request.wait(SQLITE_TURN_SECONDS), stamp_us)
                return None
            case Delete(keys=keys):
                # The highest stamp of the file may be about to go; the clock must not fall behind it at the next boot.
                self.clock.keep(connection, stamp_us)
                statements.delete(connection, keys)
                return None
            case Load(loaded=records):
                # The last row need not bear the highest stamp any more.
                self.clock.keep(connection, max([stamp_us, *(to_microseconds(record.stored_at) for record in records)]))
                statements.load(connection, records)
                return None
            case ReadClock():
                if not self.clock.shared:
                    self.clock.keep(connection, stamp_us)
                return stamp_us
            case _:
                assert_never(request)

    def _begin(self, batch: list[Write]) -> sqlite3.Connection | None:
        """Take the write lock; whoever has waited too long for it is told so. None when nobody is left."""
        while True:
            try:
                connection = self._connected()
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.Error as error:
                if not is_busy(error):
                    raise
            else:
                return connection
            too_old = monotonic() - self._lock_seconds
            overdue = [request for request in batch if request.since <= too_old]
            if overdue:
                batch[:] = [request for request in batch if request.since > too_old]
                deliver([(request, locked(self._file.path, self._lock_seconds)) for request in overdue])
            if not batch:
                return None
            sleep(_LOCK_RETRY_SECONDS)

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._file.connect()
            self._version_seen = None
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            # Every commit that was answered is in the -wal file; the next to open it goes on from there.
            with suppress(sqlite3.Error):
                connection.close()

    def _recover(self, error: Exception) -> None:
        """Leave no transaction open; drop a connection that may have suffered."""
        if self._connection is None:
            return
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._disconnect()
        if isinstance(error, sqlite3.Error) and primary_code(error) not in _HARMLESS:
            self._disconnect()

    def _fault(self, error: Exception, *, committing: bool) -> WaysideError:
        """Make a fault of `error`, a new one for each who is told."""
        if isinstance(error, sqlite3.Error):
            return fault(error, self._file.path, uncertain=committing and may_have_landed(error))
        if isinstance(error, StoreUnavailable):
            return type(error)(error.message, hint=error.hint, uncertain=error.uncertain)
        return StoreUnavailable(f"the store failed: {type(error).__name__}", uncertain=committing)

    def _poll(self) -> None:
        """Tell those who watch when another connection than this one has committed."""
        self._watches = [watch for watch in self._watches if not watch.answer.done()]
        now = monotonic()
        if not self._watches or now - self._polled_at < SQLITE_POLL_SECONDS:
            return
        self._polled_at = now
        try:
            version = _version(self._connected())
        except sqlite3.Error as error:
            # Not worth telling anybody: whoever reads or writes next hears of it.
            self._recover(error)
            return
        if version != self._version_seen:
            self._version_seen = version
            watches, self._watches = self._watches, []
            deliver([(watch, None) for watch in watches])

    def _refuse_the_rest(self) -> None:
        """Answer those who came while the store was being closed, and those who watch."""
        rest: list[Request] = [*self._watches]
        if self._turn is not None:
            rest.append(self._turn)
        while True:
            try:
                request = self._queue.get_nowait()
            except Empty:
                break
            if isinstance(request, Request):
                rest.append(request)
        deliver([(request, self._closed()) for request in rest])

    def _closed(self) -> StoreUnavailable:
        return StoreUnavailable(f"the store {self._file.path} is closed")


def _create(connection: sqlite3.Connection, creates: list[Create], stamp_us: int) -> Answers:
    """Store the items of several requests as one list; answer each with its own part of what is stored."""
    stored = statements.insert(connection, [item for request in creates for item in request.items], stamp_us)
    answers: Answers = []
    at = 0
    for request in creates:
        answers.append((request, stored[at : at + len(request.items)]))
        at += len(request.items)
    return answers


def _start(file: StoreFile, host: HostClock) -> tuple[sqlite3.Connection, FileClock, int]:
    """Connect, take or make the clock's anchor, and see what has been written so far."""
    connection = file.connect()
    try:
        connection.execute("BEGIN IMMEDIATE")
        clock = anchored(connection, host, file.path)
        connection.execute("COMMIT")
        return connection, clock, _version(connection)
    except BaseException:
        connection.close()
        raise


def _version(connection: sqlite3.Connection) -> int:
    """Read a number that changes when another connection commits, and not when this one does."""
    version: int = connection.execute("PRAGMA data_version").fetchall()[0][0]
    return version
