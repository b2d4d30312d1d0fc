"""When devices and operators were last seen, kept across restarts and shared between instances.

It is for people's eyes, so it is written once a minute and never in revisions: `seen/<instance>/<minute>` holds who was
seen since the record before. Once an hour an instance writes all that is known into one record and clears away its own
older ones and those of instances that are gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from devices.model import Kind
from engine import names, records
from engine.clock import Source
from engine.errors import StoreUnavailable, WaysideError
from engine.records import Stored
from engine.store.base import Store
from gateway.auth import Authority

EVERY_SECONDS: Final = 60.0
WHOLE_EVERY: Final = 60
# So many names of 64 characters fit into a record; of more, the latest seen are kept.
MAX_NAMES: Final = 10_000
_MILLISECOND: Final = timedelta(milliseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class SeenRecord(records.Value, frozen=True, kw_only=True, tag="seen"):
    """`<kind>:<name>` to milliseconds since 1970, by the clock of the host that saw it."""

    seen: dict[str, int]


_RECORD: Final = records.decoder(SeenRecord)


@dataclass(slots=True)
class LastSeen:
    """Reads and writes for one instance; what it knows is in the `Authority`."""

    store: Store
    authority: Authority
    source: Source
    instance: str
    _written: dict[tuple[Kind, str], datetime] = field(default_factory=dict)
    _passes: int = 0

    async def load(self) -> None:
        """Learn what all instances have written; raises `StoreUnavailable`."""
        for record in await self.store.list(names.SEEN):
            found = _RECORD(record)
            if isinstance(found, Stored):
                for name, at in found.value.seen.items():
                    self._learn(name, at)

    async def run(self) -> None:
        """Write and read for ever; what the store does not take now is written the next time."""
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            with contextlib.suppress(StoreUnavailable):
                await self.keep()

    async def keep(self) -> None:
        """Write who was seen since the last time, and learn what others wrote; once an hour, all of it anew."""
        known = self.authority.seen()
        self._passes += 1
        whole = self._passes % WHOLE_EVERY == 0
        news = known if whole else {who: at for who, at in known.items() if self._written.get(who) != at}
        latest = sorted(news, key=lambda who: news[who], reverse=True)[:MAX_NAMES]
        if latest:
            minute = names.minute(await self.store.now())
            value = SeenRecord(
                at=names.seen(self.instance, minute),
                nonce=self.source.nonce(),
                seen={f"{kind}:{name}": (news[kind, name] - _EPOCH) // _MILLISECOND for kind, name in latest},
            )
            key, data = records.encode(value)
            if (await self.store.create(key, data)).value == data:
                self._written |= {who: news[who] for who in latest}
                if whole:
                    await self._clear(key)
        await self.load()

    async def close(self) -> None:
        """Write what is left, on the way out; a store that is away loses a minute of it."""
        with contextlib.suppress(WaysideError):
            await self.keep()

    async def _clear(self, newest: str) -> None:
        """Remove what the record `newest` has taken in: the own older ones, and those of instances that are gone."""
        living = {names.instance_of(record.key) for record in await self.store.list(names.INSTANCES)}
        old = [
            record.key
            for record in await self.store.list(names.SEEN)
            if record.key != newest and (names.instance_of(record.key) not in living - {self.instance})
        ]
        await self.store.delete(old)

    def _learn(self, name: str, at: int) -> None:
        kind, _, rest = name.partition(":")
        if kind == "device":
            self.authority.learn("device", rest, _EPOCH + at * _MILLISECOND)
        elif kind == "user":
            self.authority.learn("user", rest, _EPOCH + at * _MILLISECOND)
