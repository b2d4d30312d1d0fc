"""Write-once records in a NATS bucket, as the engine sees them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from time import monotonic

from nats.errors import Error

from engine.clock import Source, SystemSource
from engine.errors import StoreUnavailable
from engine.limits import NATS_GATHERED, NATS_HINT_SECONDS, STORE_TIMEOUT_SECONDS
from engine.store.base import Record
from engine.store.batching import Batcher, Bounds
from engine.store.envelope import unwrap, wrap, wrap_stamped
from engine.store.hints import Hints
from engine.store.keys import check_item, check_items, check_key, check_range
from engine.store.nats.bucket import Bucket, Message
from engine.store.nats.subjects import CLOCK, decode, encode, wildcard
from engine.store.nats.url import Location
from engine.store.stamps import StoreClock


class NatsStore:
    """A store in the bucket at `location`; any number of instances may share it.

    A create is one publication that the stream's leader takes only when nothing is stored under the subject, and that
    a quorum has before it is answered; its stamp is the leader's, which a second request reads. Reads go to the leader
    as well. A request that gets no answer is made again: a create that had landed is recognised, since it answers with
    what is stored. Nothing is connected before the first call.
    """

    def __init__(self, location: Location, *, source: Source | None = None) -> None:
        self._hints = Hints(self._tell, every_seconds=NATS_HINT_SECONDS)
        self._bucket = Bucket(location, self._hints.heard)
        self._clock = StoreClock(source or SystemSource())
        self._times: Batcher[None, datetime] = Batcher("times", self._now, Bounds(records=10_000, volume=0))
        self._closed = False

    async def create(self, key: str, value: bytes) -> Record:
        check_item(key, value)
        return await self._create(key, value, _deadline())

    async def create_all(self, items: Sequence[tuple[str, bytes]]) -> list[Record]:
        """Create the items one after the other: NATS has no transaction over several.

        When a later one fails, the fault is `uncertain`: the earlier ones are stored.
        """
        check_items(items)
        stored: list[Record] = []
        for key, value in items:
            try:
                stored.append(await self._create(key, value, _deadline()))
            except StoreUnavailable as error:
                error.uncertain = error.uncertain or bool(stored)
                raise
        return stored

    async def load(self, records: Sequence[Record]) -> None:
        """Store records with the stamps that they bear elsewhere, in envelopes: the leader's stamps are its own."""
        check_items([(record.key, record.value) for record in records])
        for at in range(0, len(records), NATS_GATHERED):
            part = records[at : at + NATS_GATHERED]
            await asyncio.gather(*(self._bucket.store(encode(r.key), wrap_stamped(r), _deadline()) for r in part))

    async def get(self, key: str) -> Record | None:
        check_key(key)
        return _record(await self._bucket.under(encode(key), _deadline()))

    async def last(self, prefix: str) -> Record | None:
        """Read the record with the highest key under a prefix: two requests; its cost grows with what is there."""
        check_range(prefix, None, None)
        while True:
            keys = await self._keys(prefix, None)
            if not keys:
                return None
            record = await self.get(keys[-1])
            if record is not None:
                return record
            # It was deleted in between.

    async def list(self, prefix: str, *, after: str | None = None, limit: int | None = None) -> list[Record]:
        """Read records in key order: all their names at one moment, then each; what is deleted meanwhile is absent."""
        check_range(prefix, after, limit)
        keys = await self._keys(prefix, after)
        found: list[Record] = []
        at = 0
        while at < len(keys) and (limit is None or len(found) < limit):
            wanted = NATS_GATHERED if limit is None else min(NATS_GATHERED, limit - len(found))
            part = keys[at : at + wanted]
            at += wanted
            found += [record for record in await asyncio.gather(*map(self.get, part)) if record is not None]
        return found

    async def delete(self, keys: Iterable[str]) -> None:
        """Delete records, each by a request of its own; a fault may leave some of them deleted."""
        rest = list(dict.fromkeys(keys))
        for key in rest:
            check_key(key)
        for at in range(0, len(rest), NATS_GATHERED):
            part = rest[at : at + NATS_GATHERED]
            await asyncio.gather(*(self._bucket.purge(encode(key), _deadline()) for key in part))
        self._hints.wrote()

    async def now(self, until: datetime | None = None) -> datetime:
        """Read the leader's clock so that nothing that becomes visible later bears an earlier stamp.

        The leader stamps each message as it gives it the next number of the stream, and messages become visible in the
        order of their numbers. So a message of our own is put on top, and its stamp is the answer: whatever has an
        earlier stamp has a lower number, and is visible; whatever comes later has a higher one, and a stamp not below.
        Another instance's message in its place, on the same subject, is still later, and says the same. A leader whose
        clock is set back, or the next leader with another clock, breaks this by as much as they differ.

        *With `until`*, as for PostgreSQL: an answer stays true, and "not yet" needs none.
        """
        if until is not None and (known := self._clock.guess(until)) is not None:
            return known
        return await self._times.ask(None)

    async def changed(self) -> None:
        """Return when another instance may have written since the last call, or the connection was made anew."""
        await self._bucket.connect(_deadline())
        await self._hints.changed()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._times.close()
        await self._hints.close()
        await self._bucket.close()

    async def _create(self, key: str, value: bytes, deadline: float) -> Record:
        subject = encode(key)
        while True:
            number = await self._bucket.store(subject, wrap(value), deadline)
            try:
                if number is None:
                    message = await self._bucket.under(subject, deadline)
                else:
                    self._hints.wrote()
                    message = await self._bucket.number(number, deadline)
            except StoreUnavailable as error:
                error.uncertain = True
                raise
            if message is not None:
                if number is not None:
                    self._clock.stamped(message.time)
                return unwrap(key, message.data, message.time)
            # It was deleted in between.

    async def _keys(self, prefix: str, after: str | None) -> Sequence[str]:
        subjects = await self._bucket.subjects(wildcard(prefix), _deadline())
        keys = (decode(subject) for subject in subjects if subject != CLOCK)
        return sorted(
            key for key in keys if key is not None and key.startswith(prefix) and (after is None or key > after)
        )

    async def _now(self, askers: Sequence[None], deadline: float) -> Sequence[datetime]:
        return [self._clock.answered(await self._bucket.stamp(CLOCK, deadline))] * len(askers)

    async def _tell(self) -> None:
        with suppress(Error, OSError):
            await self._bucket.hint()


def _deadline() -> float:
    return monotonic() + STORE_TIMEOUT_SECONDS


def _record(message: Message | None) -> Record | None:
    if message is None:
        return None
    key = decode(message.subject)
    assert key is not None
    return unwrap(key, message.data, message.time)
