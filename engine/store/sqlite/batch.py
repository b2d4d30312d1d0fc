"""The statements inside one transaction: few of them, since each lets go of the interpreter and takes it again."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

from engine.store.base import Record
from engine.store.sqlite.clock import to_datetime, to_microseconds

T = TypeVar("T")


def _rows(size: int) -> str:
    return ", ".join(["(?, ?, ?)"] * size)


# Lists are cut into powers of two, so that a handful of statements is prepared once each.
_SIZES: Final = (128, 64, 32, 16, 8, 4, 2, 1)
_INSERT: Final = {
    size: f"INSERT INTO records (key, value, stored_at) VALUES {_rows(size)} ON CONFLICT (key) DO NOTHING"  # noqa: S608
    for size in _SIZES
}
_SELECT: Final = {
    size: f"SELECT key, value, stored_at FROM records WHERE key IN ({', '.join('?' * size)})"  # noqa: S608 - only marks
    for size in _SIZES
}
_DELETE: Final = {
    size: f"DELETE FROM records WHERE key IN ({', '.join('?' * size)})"  # noqa: S608 - only marks
    for size in _SIZES
}


def insert(connection: sqlite3.Connection, items: Sequence[tuple[str, bytes]], stamp_us: int) -> list[Record]:
    """Create the items, in their order, at one stamp; answer what is stored under each key afterwards."""
    stamp = to_datetime(stamp_us)
    stored: list[Record] = []
    for chunk in _chunks(items):
        parameters: list[int | str | bytes] = []
        for key, value in chunk:
            parameters += (key, value, stamp_us)
        if connection.execute(_INSERT[len(chunk)], parameters).rowcount == len(chunk):
            stored.extend(Record(key, value, stamp) for key, value in chunk)
        else:
            stored.extend(_read_back(connection, [key for key, _ in chunk]))
    return stored


def load(connection: sqlite3.Connection, records: Sequence[Record]) -> None:
    """Store records with the stamps that they bear; a key that exists is left as it is."""
    for chunk in _chunks(records):
        parameters: list[int | str | bytes] = []
        for record in chunk:
            parameters += (record.key, record.value, to_microseconds(record.stored_at))
        connection.execute(_INSERT[len(chunk)], parameters)


def delete(connection: sqlite3.Connection, keys: Sequence[str]) -> None:
    """Delete the records that are there."""
    for chunk in _chunks(keys):
        connection.execute(_DELETE[len(chunk)], chunk)


def to_record(row: tuple[str, bytes, int]) -> Record:
    """Build a record from its row."""
    return Record(row[0], row[1], to_datetime(row[2]))


def _read_back(connection: sqlite3.Connection, keys: Sequence[str]) -> list[Record]:
    rows = connection.execute(_SELECT[len(keys)], keys).fetchall()
    found = {row[0]: to_record(row) for row in rows}
    return [found[key] for key in keys]


def _chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    at = 0
    for size in _SIZES:
        while len(items) - at >= size:
            yield items[at : at + size]
            at += size
