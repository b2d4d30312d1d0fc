"""Write-once records in an object store, as the engine sees them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from time import monotonic

from engine.clock import Source, SystemSource, secret_number
from engine.errors import StoreUnavailable
from engine.limits import OBJECTS_HINT_SECONDS, STORE_TIMEOUT_SECONDS
from engine.store.base import Record
from engine.store.batching import Batcher, Bounds
from engine.store.envelope import unwrap, wrap, wrap_stamped
from engine.store.hints import Hints
from engine.store.keys import check_item, check_items, check_key, check_range
from engine.store.objects import faults
from engine.store.objects.listing import Listing, Named
from engine.store.objects.paths import CHECK, CLOCK, HINT, encode
from engine.store.objects.requests import PAGE, Requests, check_length
from engine.store.objects.url import Location
from engine.store.stamps import StoreClock

_CLOCKS = 16
_RETRY_SECONDS = 0.05


class ObjectStore:
    """A store in the bucket at `location`; any number of instances may share it.

    A create is two requests: a conditional PUT, and a HEAD for the service's stamp (a GET when another was first). A
    get is one, a last record two, a list one a thousand keys and one for each record that is not empty. A request that
    fails is made again: a create that had landed is recognised, since it answers with what is stored. `counts` has the
    requests by kind. Nothing is connected before the first call, which checks that the service keeps its conditions.
    """

    def __init__(self, location: Location, *, source: Source | None = None) -> None:
        self._location = location
        self._source = source or SystemSource()
        self._requests = Requests(location)
        self._listing = Listing(self._requests)
        self._clock = StoreClock(self._source)
        self._hints = Hints(self._tell, every_seconds=OBJECTS_HINT_SECONDS)
        self._times: Batcher[None, datetime] = Batcher("times", self._now, Bounds(records=10_000, volume=0))
        self._checking = asyncio.Lock()
        self._checked = False
        self._closed = False
        self._tag_seen: str | None = None
        self._tag_told: str | None = None
        self._waiting = 0
        self._watching: asyncio.Task[None] | None = None

    @property
    def counts(self) -> Counter[str]:
        """How many requests of each kind were made."""
        return self._requests.counts

    async def create(self, key: str, value: bytes) -> Record:
        check_item(key, value)
        await self._ready()
        return await self._stamped(key, value, won=await self._put(key, value))

    async def create_all(self, items: Sequence[tuple[str, bytes]]) -> list[Record]:
        """Create the items one after the other, then ask for their stamps all at once.

        An object store has no transaction over several. When a later one fails, the fault is `uncertain`: the earlier
        ones are stored.
        """
        check_items(items)
        await self._ready()
        won: list[bool] = []
        try:
            for key, value in items:
                won.append(await self._put(key, value))
            parts = [
                await asyncio.gather(
                    *(self._stamped(*item, won=won[at + n]) for n, item in enumerate(items[at : at + PAGE]))
                )
                for at in range(0, len(items), PAGE)
            ]
        except StoreUnavailable as error:
            error.uncertain = error.uncertain or bool(won)
            raise
        return [record for part in parts for record in part]

    async def load(self, records: Sequence[Record]) -> None:
        """Store records with the stamps that they bear elsewhere, in envelopes: the service's stamps are its own."""
        check_items([(record.key, record.value) for record in records])
        await self._ready()
        for record in records:
            check_length(self._location, encode(record.key))
        for at in range(0, len(records), PAGE):
            part = records[at : at + PAGE]
            await asyncio.gather(*(self._requests.create(encode(r.key), wrap_stamped(r)) for r in part))

    async def get(self, key: str) -> Record | None:
        check_key(key)
        await self._ready()
        found = await self._requests.read(encode(key))
        return None if found is None else unwrap(key, *found)

    async def last(self, prefix: str) -> Record | None:
        """Read the record with the highest key under a prefix: a list, more of them above a thousand, and a GET."""
        check_range(prefix, None, None)
        await self._ready()
        while True:
            found = await self._listing.last(prefix)
            record = None if found is None else await self._valued(found)
            if found is None or record is not None:
                return record
            # It was deleted in between.

    async def list(self, prefix: str, *, after: str | None = None, limit: int | None = None) -> list[Record]:
        """Read records in key order: a thousand names at one moment; what is deleted meanwhile is absent."""
        check_range(prefix, after, limit)
        found: list[Record] = []
        if limit == 0:
            return found
        await self._ready()
        async for page in self._listing.pages(prefix, after):
            at = 0
            while at < len(page) and (limit is None or len(found) < limit):
                part = page[at : None if limit is None else at + limit - len(found)]
                at += len(part)
                found += [record for record in await asyncio.gather(*map(self._valued, part)) if record is not None]
            if limit is not None and len(found) >= limit:
                break
        return found

    async def delete(self, keys: Iterable[str]) -> None:
        """Delete records, up to a thousand a request; a fault may leave some of them deleted."""
        rest = list(dict.fromkeys(keys))
        for key in rest:
            check_key(key)
        await self._ready()
        for at in range(0, len(rest), PAGE):
            await self._requests.delete([encode(key) for key in rest[at : at + PAGE]])
        self._hints.wrote()

    async def now(self, until: datetime | None = None) -> datetime:
        """Read the service's clock, in whole seconds, so that no later record bears an earlier stamp.

        An object of our own is stored, and its stamp is the answer: what is stored after that was answered is stamped
        by the same clock, cut to the second in the same way, hence not earlier. (Another instance's object in its
        place is later still, and says the same.)

        *With `until`*, as for PostgreSQL: an answer stays true, and "not yet" needs none. While `until` lies ahead,
        the answer is reckoned from the latest stamp without a request.
        """
        if until is not None and (known := self._clock.guess(until)) is not None:
            return known
        await self._ready()
        return await self._times.ask(None)

    async def changed(self) -> None:
        """Return when another instance has said that it wrote; one small request every `OBJECTS_HINT_SECONDS`."""
        self._waiting += 1
        if self._watching is None:
            self._watching = asyncio.get_running_loop().create_task(self._watch(), name="store watch")
        try:
            await self._hints.changed()
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._times.close()
        await self._hints.close()
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])

    async def _put(self, key: str, value: bytes) -> bool:
        path = encode(key)
        check_length(self._location, path)
        won = await self._requests.create(path, wrap(value))
        if won:
            self._hints.wrote()
        return won

    async def _stamped(self, key: str, value: bytes, *, won: bool) -> Record:
        """Read what is stored under a key that has been created, by whomever."""
        path = encode(key)
        try:
            if won and (stamped := await self._requests.head(path)) is not None:
                self._clock.stamped(stamped[1])
                return Record(key, value, stamped[1])
            return await self._found(key, value)
        except StoreUnavailable as error:
            error.uncertain = True
            raise

    async def _found(self, key: str, value: bytes) -> Record:
        """Read what is said to be there, or create it after all."""
        give_up_at = monotonic() + STORE_TIMEOUT_SECONDS
        while (found := await self._requests.read(encode(key))) is None:
            # It was deleted in between; or two creations met, and the service let neither through (409).
            if monotonic() > give_up_at:
                raise StoreUnavailable(f"{self._location} neither creates nor has what was asked for")
            await asyncio.sleep(_RETRY_SECONDS)
            await self._put(key, value)
        return unwrap(key, *found)

    async def _valued(self, named: Named) -> Record | None:
        key, entry = named
        if entry.size == 0:
            return Record(key, b"", entry.stored_at)
        found = await self._requests.read(entry.path)
        return None if found is None else unwrap(key, *found)

    async def _ready(self) -> None:
        """Refuse a store that is closed, and, once, a service that overwrites what it should only create."""
        if self._closed:
            raise StoreUnavailable(f"the store in {self._location} is closed")
        if not self._checked:
            async with self._checking:
                await self._check()

    async def _check(self) -> None:
        if not self._checked:
            path = f"{CHECK}/{self._source.nonce()}"
            await self._requests.create(path, b"1")
            again = await self._requests.create(path, b"2")
            await self._requests.delete([path])
            if again:
                raise faults.unconditional(self._location)
            self._checked = True

    async def _now(self, askers: Sequence[None], deadline: float) -> Sequence[datetime]:
        # Google allows one write a second to one name.
        while monotonic() < deadline:
            path = f"{CLOCK}/{secret_number(16) % _CLOCKS}"
            await self._requests.overwrite(path, self._source.nonce().encode())
            stamped = await self._requests.head(path)
            if stamped is not None:
                return [self._clock.answered(stamped[1])] * len(askers)
        raise StoreUnavailable(f"{self._location} does not keep what was just stored")

    async def _watch(self) -> None:
        """Look at the tag of what other instances overwrite, for as long as anybody waits."""
        try:
            while self._waiting:
                with suppress(StoreUnavailable):
                    await self._ready()
                    found = await self._requests.head(HINT)
                    tag = "" if found is None else found[0]
                    if tag not in {self._tag_seen, self._tag_told}:
                        self._hints.heard()
                    self._tag_seen = tag
                await asyncio.sleep(OBJECTS_HINT_SECONDS)
        finally:
            self._watching = None

    async def _tell(self) -> None:
        with suppress(StoreUnavailable):
            self._tag_told = await self._requests.overwrite(HINT, self._source.nonce().encode())
