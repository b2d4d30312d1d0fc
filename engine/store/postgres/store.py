"""Write-once records in PostgreSQL, as the engine sees them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import islice
from time import monotonic
from typing import Any, Final

from engine.clock import Source, SystemSource
from engine.errors import StoreUnavailable
from engine.limits import (
    MAX_KEY_BYTES,
    POSTGRES_BATCH_BYTES,
    POSTGRES_BATCH_RECORDS,
    POSTGRES_PAGE_RECORDS,
    STORE_TIMEOUT_SECONDS,
)
from engine.store.base import Record
from engine.store.batching import Batcher, Bounds
from engine.store.keys import check_item, check_items, check_key, check_range, range_end
from engine.store.postgres.clock import NOW
from engine.store.postgres.connections import Connection, Connections
from engine.store.postgres.listener import Listener
from engine.store.postgres.url import Location
from engine.store.stamps import StoreClock, to_datetime, to_microseconds

# Above every key: the longest one of the highest code point, and one character more.
_ABOVE_ALL: Final = "\U0010ffff" * (MAX_KEY_BYTES // 4 + 1)

_CREATE: Final = "SELECT key, value, stored_at FROM wayside_create($1::text[], $2::bytea[])"
# In key order, so that two callers never wait for each other in a circle.
_DELETE: Final = """DELETE FROM wayside_records WHERE key IN
    (SELECT key FROM wayside_records WHERE key = ANY($1::text[]) ORDER BY key FOR UPDATE)"""
_LOAD: Final = """WITH loaded AS (
        INSERT INTO wayside_records (key, value, stored_at)
        SELECT * FROM unnest($1::text[], $2::bytea[], $3::bigint[]) ON CONFLICT DO NOTHING
    )
    SELECT setval('wayside_clock', greatest(last_value, (SELECT max(stamp) FROM unnest($3::bigint[]) AS stamp)))
    FROM wayside_clock"""
_GET: Final = "SELECT key, value, stored_at FROM wayside_records WHERE key = ANY($1::text[])"
_LAST: Final = """SELECT asked.at, found.key, found.value, found.stored_at
    FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS asked (low, high, at)
    CROSS JOIN LATERAL (
        SELECT key, value, stored_at FROM wayside_records
        WHERE key >= asked.low AND key < asked.high ORDER BY key DESC LIMIT 1
    ) AS found"""
_FROM: Final = """SELECT key, value, stored_at FROM wayside_records
    WHERE key >= $1::text AND key < $2::text ORDER BY key LIMIT $3"""
_AFTER: Final = """SELECT key, value, stored_at FROM wayside_records
    WHERE key > $1::text AND key < $2::text ORDER BY key LIMIT $3"""

_Items = Sequence[tuple[str, bytes]]
# Inside the class, `list` is a method.
_Records = list[Record]
_Found = list[Record | None]
_Rows = list[Any]
_BOUNDS: Final = Bounds(records=POSTGRES_BATCH_RECORDS, volume=POSTGRES_BATCH_BYTES)


class PostgresStore:
    """A store in the database at `location`; any number of instances may share it.

    What concurrent callers create goes into one statement, which is one transaction, durable when it returns; so do
    their reads by key and of last records. All of it happens on the server that accepts writes. A statement whose
    connection is lost is done again on another one: a create that had landed is recognised, since it answers with what
    is stored. Nothing is connected before the first call.
    """

    def __init__(self, location: Location, *, source: Source | None = None) -> None:
        self._connections = Connections(location.dsn, location.place, location.connections)
        self._clock = StoreClock(source or SystemSource())
        self._listener = Listener(self._connections)
        self._creates: Batcher[_Items, _Records] = Batcher("creates", self._create, _BOUNDS)
        self._deletes: Batcher[Sequence[str], None] = Batcher("deletes", self._delete, _BOUNDS)
        self._gets: Batcher[str, Record | None] = Batcher("gets", self._get, _BOUNDS)
        self._lasts: Batcher[tuple[str, str], Record | None] = Batcher("lasts", self._last, _BOUNDS)
        self._times: Batcher[None, datetime] = Batcher("times", self._now, _BOUNDS)
        self._closed = False

    async def create(self, key: str, value: bytes) -> Record:
        check_item(key, value)
        return (await self._creates.ask(((key, value),), volume=len(value)))[0]

    async def create_all(self, items: Sequence[tuple[str, bytes]]) -> list[Record]:
        """Create the items in order, in one transaction if they are no more than a batch, else in several.

        When a later transaction of several fails, the fault is `uncertain`: the earlier ones are stored.
        """
        check_items(items)
        stored: list[Record] = []
        for part, volume in _parts(items):
            try:
                stored += await self._creates.ask(part, records=len(part), volume=volume)
            except StoreUnavailable as error:
                error.uncertain = error.uncertain or bool(stored)
                raise
        return stored

    async def load(self, records: Sequence[Record]) -> None:
        """Store records with the stamps that they bear elsewhere; later stamps are not below any of them."""
        for at in range(0, len(records), POSTGRES_BATCH_RECORDS):
            part = sorted(records[at : at + POSTGRES_BATCH_RECORDS], key=lambda record: record.key)
            check_items([(record.key, record.value) for record in part])
            keys, values = [record.key for record in part], [record.value for record in part]
            stamps = [to_microseconds(record.stored_at) for record in part]

            def work(
                connection: Connection, keys: object = keys, values: object = values, stamps: object = stamps
            ) -> Any:  # noqa: ANN401 - asyncpg has no types
                return connection.fetchval(_LOAD, keys, values, stamps)

            deadline = monotonic() + STORE_TIMEOUT_SECONDS
            await self._connections.run(work, deadline=deadline, writes=True)

    async def get(self, key: str) -> Record | None:
        check_key(key)
        return await self._gets.ask(key)

    async def last(self, prefix: str) -> Record | None:
        check_range(prefix, None, None)
        if "\x00" in prefix:
            return None
        return await self._lasts.ask((prefix, range_end(prefix) or _ABOVE_ALL))

    async def list(self, prefix: str, *, after: str | None = None, limit: int | None = None) -> list[Record]:
        """Read records in key order: up to `POSTGRES_PAGE_RECORDS` at one moment, more of them page by page."""
        check_range(prefix, after, limit)
        if "\x00" in prefix:
            return []
        end = range_end(prefix) or _ABOVE_ALL
        # No key holds a NUL: above `a NUL b` is whatever is above `a`.
        start = None if after is None else after.partition("\x00")[0]
        statement, start = (_AFTER, start) if start is not None and start >= prefix else (_FROM, prefix)
        found: list[Record] = []
        while limit is None or len(found) < limit:
            wanted = POSTGRES_PAGE_RECORDS if limit is None else min(POSTGRES_PAGE_RECORDS, limit - len(found))
            rows = await self._read(statement, start, end, wanted)
            found.extend(map(_to_record, rows))
            if len(rows) < wanted:
                break
            statement, start = _AFTER, rows[-1][0]
        return found

    async def delete(self, keys: Iterable[str]) -> None:
        """Delete records, a batch in each transaction; a fault may leave the first batches deleted."""
        rest = iter(keys)
        while part := list(islice(rest, POSTGRES_BATCH_RECORDS)):
            for key in part:
                check_key(key)
            await self._deletes.ask(part, records=len(part))

    async def now(self, until: datetime | None = None) -> datetime:
        """Read the server's clock so that nothing that becomes visible later bears an earlier stamp (`clock`)."""
        if until is not None and (known := self._clock.guess(until)) is not None:
            return known
        return await self._times.ask(None)

    async def changed(self) -> None:
        """Return when another instance may have written since the last call, or the connection was made anew."""
        await self._listener.changed()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for batcher in (self._creates, self._deletes, self._gets, self._lasts, self._times):
            await batcher.close()
        await self._listener.close()
        await self._connections.close()

    # What follows does a batch.

    async def _create(self, batch: Sequence[_Items], deadline: float) -> Sequence[_Records]:
        first: dict[str, bytes] = {}
        for items in batch:
            for key, value in items:
                first.setdefault(key, value)
        keys = sorted(first)
        values = [first[key] for key in keys]
        rows = await self._connections.run(lambda c: c.fetch(_CREATE, keys, values), deadline=deadline, writes=True)
        stored = self._stored(keys, values, rows)
        self._listener.wrote()
        return [[stored[key] for key, _ in items] for items in batch]

    def _stored(self, keys: Sequence[str], values: Sequence[bytes], rows: Sequence[Any]) -> dict[str, Record]:
        key, _, stamp_us = rows[-1]
        if key is None:
            stamp = to_datetime(stamp_us)
            self._clock.stamped(stamp)
            return {key: Record(key, value, stamp) for key, value in zip(keys, values, strict=True)}
        return {row[0]: _to_record(row) for row in rows}

    async def _delete(self, batch: Sequence[Sequence[str]], deadline: float) -> Sequence[None]:
        keys = sorted({key for part in batch for key in part})
        await self._connections.run(lambda c: c.execute(_DELETE, keys), deadline=deadline, writes=True)
        self._listener.wrote()
        return [None] * len(batch)

    async def _get(self, keys: Sequence[str], deadline: float) -> _Found:
        rows = await self._connections.run(lambda c: c.fetch(_GET, keys), deadline=deadline)
        found = {row[0]: _to_record(row) for row in rows}
        return [found.get(key) for key in keys]

    async def _last(self, ranges: Sequence[tuple[str, str]], deadline: float) -> _Found:
        lows, highs = [low for low, _ in ranges], [high for _, high in ranges]
        rows = await self._connections.run(lambda c: c.fetch(_LAST, lows, highs), deadline=deadline)
        found = {row[0]: _to_record(row[1:]) for row in rows}
        return [found.get(at) for at in range(1, len(ranges) + 1)]

    async def _now(self, askers: Sequence[None], deadline: float) -> Sequence[datetime]:
        answer_us = await self._connections.run(lambda c: c.fetchval(NOW), deadline=deadline)
        return [self._clock.answered(to_datetime(answer_us))] * len(askers)

    async def _read(self, statement: str, start: str, end: str, wanted: int) -> _Rows:
        def work(connection: Connection) -> Any:  # noqa: ANN401 - asyncpg has no types
            return connection.fetch(statement, start, end, wanted)

        if self._closed:
            raise StoreUnavailable("the store is closed")
        rows: _Rows = await self._connections.run(work, deadline=monotonic() + STORE_TIMEOUT_SECONDS)
        return rows


def _to_record(row: Sequence[Any]) -> Record:
    return Record(row[0], row[1], to_datetime(row[2]))


def _parts(items: _Items) -> Iterable[tuple[_Items, int]]:
    """Cut a list where a batch would be too large, and give each part's bytes."""
    part: list[tuple[str, bytes]] = []
    volume = 0
    for item in items:
        if part and (len(part) >= POSTGRES_BATCH_RECORDS or volume + len(item[1]) > POSTGRES_BATCH_BYTES):
            yield part, volume
            part, volume = [], 0
        part.append(item)
        volume += len(item[1])
    if part:
        yield part, volume
