"""The outbox: commands that `publish` steps send, numbered, which every instance follows and hands to its devices."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta

from engine import names, records
from engine.clock import Source
from engine.events import Whose
from engine.limits import OUTBOX_RETENTION_SECONDS
from engine.records import Command, Stored
from engine.store.base import Store

_PRUNED_AT_ONCE = 500


async def append(store: Store, source: Source, topic: str, payload: bytes, whose: Whose | None = None) -> int:
    """Append a command, durable when this returns; return its number."""
    named = {} if whose is None else asdict(whose)
    nonce = source.nonce()
    last = await store.last(names.OUTBOX)
    number = 1 if last is None else names.number_of(last.key) + 1
    while True:
        value = Command(at=names.outbox(number), nonce=nonce, topic=topic, payload=payload, qos=1, **named)
        key, data = records.encode(value)
        if (await store.create(key, data)).value == data:
            return number
        number += 1


class Follower:
    """Reads the outbox from the moment it was made."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._after: str | None = None

    async def start(self) -> int:
        """Begin behind what is there and return its number: commands from before are not sent again."""
        last = await self._store.last(names.OUTBOX)
        self._after = last.key if last is not None else names.OUTBOX
        return names.number_of(last.key) if last is not None else 0

    def start_after(self, number: int) -> None:
        """Begin behind command `number`, as one who takes over from another follower."""
        self._after = names.outbox(number) if number else names.OUTBOX

    async def read(self) -> list[Stored[Command]]:
        """Read what was appended since the last call; commands that cannot be read are passed over."""
        found = await self._store.list(names.OUTBOX, after=self._after, limit=1_000)
        commands = []
        for record in found:
            self._after = record.key
            read = records.command_or_unreadable(record)
            if isinstance(read, Stored):
                commands.append(read)
        return commands


async def prune(store: Store) -> None:
    """Delete commands that every instance has had minutes to read; never the highest, which the next is numbered by."""
    horizon = await store.now() - timedelta(seconds=OUTBOX_RETENTION_SECONDS)
    oldest = await store.list(names.OUTBOX, limit=1)
    if not oldest or oldest[0].stored_at >= horizon:
        return
    last = await store.last(names.OUTBOX)
    after: str | None = None
    # All of them, however many: a pass that took only so many would leave ever more behind at a high enough rate.
    while found := await store.list(names.OUTBOX, after=after, limit=_PRUNED_AT_ONCE):
        after = found[-1].key
        old = [each.key for each in found if each.stored_at < horizon and (last is None or each.key != last.key)]
        if old:
            await store.delete(old)
        if len(old) < len(found):
            return
