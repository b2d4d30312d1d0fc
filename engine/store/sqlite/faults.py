"""What SQLite reports, in words that say what happened to which file and what to do about it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from engine.errors import StoreDamaged, StoreUnavailable
from engine.limits import STORE_TIMEOUT_SECONDS

_DAMAGED_HINT = (
    "stop everything that uses it, keep it and its -wal file, and put a backup in its place "
    "(`sqlite3 FILE .recover` may save what is left)"
)
_PLACE_HINT = (
    "the user that runs this needs to read and write the file and its directory, "
    "which must not be on a read-only or a network file system"
)


def primary_code(error: sqlite3.Error) -> int | None:
    """Read SQLite's primary result code; None when the error is the Python module's own."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def is_busy(error: sqlite3.Error) -> bool:
    """Tell whether another connection held a lock: the same again may work in a moment."""
    return primary_code(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def may_have_landed(error: sqlite3.Error) -> bool:
    """Tell whether a COMMIT that failed so may be found committed after a crash.

    A full disk refuses a frame before the commit is complete, and a lock before it is begun. Any other error, one of
    fsync above all, may come when the commit's last frame is in the file already.
    """
    return primary_code(error) not in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def locked(path: Path, seconds: float) -> StoreUnavailable:
    """Say that other processes kept the file locked for `seconds`; nothing was stored."""
    return StoreUnavailable(
        f"{path} has been locked by another process for {seconds:g} s",
        hint=f"see who has it open (`fuser {path}`): an SQLite shell in a transaction, a backup, a stopped process",
    )


def moved(path: Path) -> StoreUnavailable:
    """Say that the file is not the one that was opened; nothing was stored."""
    return StoreUnavailable(
        f"{path} was removed or replaced while it was in use; nothing is stored any more",
        hint="stop, put the right file in place together with its -wal file, and start again",
    )


def no_answer(path: Path, *, uncertain: bool) -> StoreUnavailable:
    """Say that the writer has not got round to it, or has been in a commit, for as long as a store may take."""
    return StoreUnavailable(
        f"{path} has not answered for {STORE_TIMEOUT_SECONDS:g} s",
        hint="the disk hangs, or is far too slow: look at the system log",
        uncertain=uncertain,
    )


def missed_turn() -> StoreUnavailable:
    """Say that an event loop came too late for its turn."""
    return StoreUnavailable("this process was too busy to use its turn at the store; nothing was stored")


def foreign_boot(path: Path) -> StoreUnavailable:
    """Say that another kernel uses the file at the same time, which SQLite's shared memory does not survive."""
    return StoreUnavailable(
        f"{path} is being used from another machine too",
        hint="SQLite serves the processes of one host only; use PostgreSQL for several",
    )


def fault(error: sqlite3.Error, path: Path, *, uncertain: bool = False) -> StoreUnavailable:
    """Translate an SQLite error on `path`; `uncertain` when a commit may have landed (`may_have_landed`)."""
    code = primary_code(error)
    match code:
        case sqlite3.SQLITE_FULL:
            message, hint = f"no room is left on the disk for {path}", "free some space: the store goes on by itself"
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            message, hint = f"{path} is locked by another process", f"see who has it open (`fuser {path}`)"
        case sqlite3.SQLITE_NOTADB:
            return StoreDamaged(
                f"{path} is not an SQLite database, or its first page is damaged",
                hint="name another file, or put a backup in its place",
                uncertain=uncertain,
            )
        case sqlite3.SQLITE_CORRUPT | None:
            # Without the error's own text, which may quote what could not be decoded.
            return StoreDamaged(f"{path} is damaged", hint=_DAMAGED_HINT, uncertain=uncertain)
        case sqlite3.SQLITE_ERROR:
            return StoreDamaged(f"the tables of {path} are not Wayside's ({error})", hint=_DAMAGED_HINT)
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            message, hint = f"{path} cannot be opened for writing ({error})", _PLACE_HINT
        case sqlite3.SQLITE_IOERR:
            message, hint = (
                f"the disk failed on {path} ({error})",
                "look at the system log, and at the room left on the disk",
            )
        case _:
            message, hint = f"SQLite failed on {path} ({error})", ""
    return StoreUnavailable(message, hint=hint, uncertain=uncertain)
