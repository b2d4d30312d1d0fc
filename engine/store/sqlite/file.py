"""Open the file: make it if it is new, refuse it if it is not ours, connect to it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import TypeVar
from urllib.parse import quote

from engine.errors import FormatTooNew, StoreDamaged, StoreUnavailable
from engine.limits import SQLITE_CACHE_KIB, SQLITE_WAL_BYTES, SQLITE_WAL_PAGES
from engine.store.sqlite.faults import fault, is_busy, locked, moved

T = TypeVar("T")

APPLICATION_ID = 0x57594453  # "WYDS"
SCHEMA_VERSION = 1

_RETRY_SECONDS = 0.01

# `seq` grows in the order of commits, and so do the stamps: the last row bears the highest. A table WITHOUT ROWID would
# write 2.6 times the bytes. The checks keep a hand with an SQLite shell from storing what could not be read back.
_SCHEMA = (
    """CREATE TABLE records (
        seq INTEGER PRIMARY KEY,
        key TEXT NOT NULL UNIQUE CHECK (typeof(key) = 'text'),
        value BLOB NOT NULL CHECK (typeof(value) = 'blob'),
        stored_at INTEGER NOT NULL CHECK (stored_at BETWEEN 0 AND 253402300799999999)
    )""",
    """CREATE TABLE clock (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        boot TEXT NOT NULL,
        wall_us INTEGER NOT NULL,
        boot_us INTEGER NOT NULL,
        high_us INTEGER NOT NULL
    )""",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)


@dataclass(frozen=True, slots=True)
class StoreFile:
    """A store's file, by its name and by what it was when it was opened."""

    path: Path
    device: int
    inode: int

    def check_in_place(self) -> None:
        """Raise `StoreUnavailable` if another file, or none, is there now: what is written would be lost."""
        try:
            found = os.stat(self.path)  # noqa: PTH116 - once a transaction, and three times as quick
        except OSError:
            raise moved(self.path) from None
        if (found.st_dev, found.st_ino) != (self.device, self.inode):
            raise moved(self.path)

    def connect(self, *, read_only: bool = False) -> sqlite3.Connection:
        """Connect to the file as it is; never makes one. Waits for no lock. Raises `sqlite3.Error`."""
        connection = _connect(self.path)
        try:
            for pragma in (
                "synchronous = FULL",
                "fullfsync = ON",  # macOS: an fsync that reaches the platter
                "checkpoint_fullfsync = ON",
                f"cache_size = -{SQLITE_CACHE_KIB}",
                f"wal_autocheckpoint = {SQLITE_WAL_PAGES}",
                f"journal_size_limit = {SQLITE_WAL_BYTES}",
                "temp_store = MEMORY",
                f"query_only = {'ON' if read_only else 'OFF'}",
            ):
                connection.execute(f"PRAGMA {pragma}").fetchall()
        except sqlite3.Error:
            connection.close()
            raise
        return connection


def open_file(path: Path, *, patience_seconds: float) -> StoreFile:
    """Open or make the store at `path`, waiting up to `patience_seconds` for other processes' locks.

    A new file is readable by its owner only, and so are the directories that had to be made. Raises `StoreUnavailable`
    (place, permissions, locks, disk), `StoreDamaged` (not ours, or damaged) or `FormatTooNew`; a file that is not ours
    is left as it was.
    """
    path = path.absolute()
    _make_place(path)
    _refuse_lost_beginning(path)
    patiently(path, patience_seconds, lambda: _prepare(path))
    found = path.stat()
    return StoreFile(path, found.st_dev, found.st_ino)


def patiently(path: Path, patience_seconds: float, attempt: Callable[[], T]) -> T:
    """Do something with the file, again and again while another process has it locked; translate what is raised.

    Whoever opens a file first, or closes it last, has all of it for a moment: even connecting may find it locked.
    """
    give_up_at = monotonic() + patience_seconds
    while True:
        try:
            return attempt()
        except sqlite3.Error as error:
            if not is_busy(error):
                raise fault(error, path) from error
            if monotonic() >= give_up_at:
                raise locked(path, patience_seconds) from None
        except OSError as error:
            raise _not_made(path, error) from error
        sleep(_RETRY_SECONDS)


def _make_place(path: Path) -> None:
    """Make the missing directories (0700) and an empty file (0600), so that they outlast a power cut."""
    try:
        missing = [parent for parent in path.parents if not parent.exists()]
        for directory in reversed(missing):
            directory.mkdir(mode=0o700, exist_ok=True)
            _sync(directory.parent, os.O_RDONLY)
        try:
            # Only ever a new file: closing a descriptor of one in use would drop the locks that SQLite has on it.
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            if not path.is_file():
                raise StoreUnavailable(f"{path} is not a file", hint="name a file; it is made if it is new") from None
        else:
            _sync(path.parent, os.O_RDONLY)
    except OSError as error:
        raise _not_made(path, error) from error


def _not_made(path: Path, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(
        f"{path} cannot be made or opened: {error.strerror}",
        hint="name a place where the user that runs this may make files, on a disk that has room",
    )


def _refuse_lost_beginning(path: Path) -> None:
    """Refuse a file that is empty while its -wal is not: SQLite would start afresh and drop what the -wal holds."""
    wal = path.with_name(path.name + "-wal")
    if path.stat().st_size == 0 and wal.exists() and wal.stat().st_size > 0:
        raise StoreDamaged(f"{path} is empty, and {wal} is not", hint="put a backup in its place, or remove both")


def _prepare(path: Path) -> None:
    """Bring the file to the state in which it is used. Several processes may do this at once."""
    wal = path.with_name(path.name + "-wal")
    connection = _connect(path)
    try:
        # At one moment: another process may be about to make the tables.
        connection.execute("BEGIN")
        fresh = _is_fresh(connection, path)
        connection.execute("COMMIT")
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchall()[0][0]
        if mode != "wal":
            raise StoreUnavailable(
                f"{path} cannot be shared between processes: its file system refused WAL mode",
                hint="use a local file system",
            )
        if fresh:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN IMMEDIATE")
            if _is_fresh(connection, path):
                for statement in _SCHEMA:
                    connection.execute(statement)
            connection.execute("COMMIT")
        # A process killed between writing a commit and syncing it leaves one that is seen from now on: make it last.
        _sync(wal, os.O_RDWR)
    finally:
        connection.close()


def _is_fresh(connection: sqlite3.Connection, path: Path) -> bool:
    """Tell a new file from one of ours, inside a transaction; raise for any other."""
    application = connection.execute("PRAGMA application_id").fetchall()[0][0]
    version = connection.execute("PRAGMA user_version").fetchall()[0][0]
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchall()[0][0]
    if application == APPLICATION_ID:
        if version > SCHEMA_VERSION:
            raise FormatTooNew(
                f"{path} was written by a newer Wayside (tables of version {version}; this one knows {SCHEMA_VERSION})",
                hint="use the newer version",
            )
        return False
    if application or version or tables:
        raise StoreDamaged(f"{path} is another program's database", hint="name another file; this one is left as it is")
    return True


def _connect(path: Path) -> sqlite3.Connection:
    # Without a transaction of the module's own making, and without a wait of SQLite's own: it sleeps up to 100 ms.
    return sqlite3.connect(
        f"file:{quote(str(path))}?mode=rw", uri=True, timeout=0, isolation_level=None, check_same_thread=False
    )


def _sync(path: Path, flags: int) -> None:
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
