"""A moment: operations that run one after the other while nobody else can commit, and are committed together.

The writer thread holds the write lock; the event loop reads what is committed by a connection of its own, remembers
what the operations create, and hands that back to be inserted. So no statement that writes, and no sync, keeps the loop
busy.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left, insort
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

from engine.store.base import Record, Store
from engine.store.keys import check_item, check_items, check_key, check_range, range_end
from engine.store.sqlite.batch import to_record
from engine.store.sqlite.clock import to_datetime
from engine.store.sqlite.reading import GET, LAST, end_of, page

T = TypeVar("T")
Operation = Callable[[Store], Coroutine[Any, Any, T]]
_UNLIMITED: Final = -1


class Moment:
    """The view that operations get: a `Store` of which every method answers without waiting.

    `connection` reads; its transaction lasts as long as the moment. What is created is in `created`, in its order, and
    bears the stamp of the moment. Nothing is deleted in a moment. The answer for an empty record bears that stamp too,
    also where somebody had created it before.
    """

    def __init__(self, connection: sqlite3.Connection, stamp_us: int) -> None:
        self._connection = connection
        self._at = to_datetime(stamp_us)
        self.created: dict[str, Record] = {}
        self._keys: list[str] = []
        # What is committed does not change meanwhile.
        self._lasts: dict[str, Record | None] = {}

    @property
    def items(self) -> list[tuple[str, bytes]]:
        return [(record.key, record.value) for record in self.created.values()]

    def do(self, operation: Operation[T]) -> T:
        """Run an operation to its end."""
        running = operation(self)
        try:
            running.send(None)
        except StopIteration as done:
            result: T = done.value
            return result
        running.close()
        raise AssertionError("an operation that is done at one moment awaits nothing but its store")

    async def create(self, key: str, value: bytes) -> Record:
        check_item(key, value)
        return self._create(key, value)

    async def create_all(self, items: Sequence[tuple[str, bytes]]) -> list[Record]:
        check_items(items)
        return [self._create(key, value) for key, value in items]

    def _create(self, key: str, value: bytes) -> Record:
        found = self.created.get(key)
        if found is None and value and not self._is_new(key):
            found = self._committed(key)
        if found is None:
            found = self.created[key] = Record(key, value, self._at)
            insort(self._keys, key)
        return found

    def _is_new(self, key: str) -> bool:
        """Tell whether a key is known to be free: it is above the last one in its place."""
        place = key[: key.rfind("/") + 1]
        if place not in self._lasts:
            return False
        last = self._lasts[place]
        return last is None or last.key < key

    def _committed(self, key: str) -> Record | None:
        rows = self._connection.execute(GET, (key,)).fetchall()
        return to_record(rows[0]) if rows else None

    async def get(self, key: str) -> Record | None:
        check_key(key)
        return self.created.get(key) or (None if self._is_new(key) else self._committed(key))

    async def last(self, prefix: str) -> Record | None:
        check_range(prefix, None, None)
        end = range_end(prefix)
        if prefix not in self._lasts:
            rows = self._connection.execute(LAST, (prefix, end_of(prefix))).fetchall()
            self._lasts[prefix] = to_record(rows[0]) if rows else None
        committed, keys = self._lasts[prefix], self._keys
        at = len(keys) if end is None else bisect_left(keys, end)
        own = keys[at - 1] if at else ""
        if not own.startswith(prefix) or (committed is not None and committed.key > own):
            return committed
        return self.created.get(own)

    async def list(self, prefix: str, *, after: str | None = None, limit: int | None = None) -> list[Record]:
        check_range(prefix, after, limit)
        statement, start = page(prefix, after)
        bound = _UNLIMITED if limit is None else limit
        found = {row[0]: to_record(row) for row in self._connection.execute(statement, (start, end_of(prefix), bound))}
        for key in self._keys[bisect_left(self._keys, prefix) :]:
            if not key.startswith(prefix):
                break
            if after is None or key > after:
                found.setdefault(key, self.created[key])
        return [found[key] for key in sorted(found)[:limit]]

    async def now(self, until: datetime | None = None) -> datetime:  # noqa: ARG002 - it costs nothing
        """Give the stamp of this moment: the write lock is held."""
        return self._at

    async def delete(self, keys: Iterable[str]) -> None:
        raise NotImplementedError("nothing is deleted in a moment")

    async def changed(self) -> None:
        raise NotImplementedError("nothing changes in a moment")

    async def close(self) -> None:
        """Do nothing: the moment ends by itself."""
