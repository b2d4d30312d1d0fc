"""Creators that keep a store busy and take down what they were told; and the check of it afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.errors import StoreUnavailable
from engine.store.base import Record, Store


@dataclass(slots=True)
class Told:
    """What the creators were told, by key."""

    acknowledged: dict[str, Record] = field(default_factory=dict)
    uncertain: dict[str, bytes] = field(default_factory=dict)
    refused: dict[str, bytes] = field(default_factory=dict)
    done: asyncio.Event = field(default_factory=asyncio.Event)

    async def acknowledges(self, more: int) -> None:
        """Wait until `more` further creates have been acknowledged."""
        wanted = len(self.acknowledged) + more
        while len(self.acknowledged) < wanted:
            await asyncio.sleep(0.01)

    async def create(self, stores: Sequence[Store], creators: int) -> None:
        """Create record after record from many tasks until `done` is set; go on after faults."""

        async def one(creator: int) -> None:
            store = stores[creator % len(stores)]
            number = 0
            while not self.done.is_set():
                number += 1
                key = f"load/{creator:03d}/{number:012d}"
                value = f"{creator} wrote {number}".encode()
                try:
                    self.acknowledged[key] = await store.create(key, value)
                except StoreUnavailable as error:
                    (self.uncertain if error.uncertain else self.refused)[key] = value
                    await asyncio.sleep(0.02)

        await asyncio.gather(*(one(creator) for creator in range(creators)))

    async def check(self, store: Store) -> str:
        """Compare with what is stored; give the counts in a line."""
        stored = {record.key: record for record in await store.list("load/")}
        for key, record in self.acknowledged.items():
            assert stored.get(key) == record, f"{key} was acknowledged"
            assert record.value.decode().split() == [str(int(key[5:8])), "wrote", str(int(key[9:]))]
        assert not stored.keys() & self.refused.keys(), "what was certainly not stored is there"
        landed = 0
        for key, value in self.uncertain.items():
            if key in stored:
                landed += 1
                assert stored[key].value == value
        assert stored.keys() == self.acknowledged.keys() | (self.uncertain.keys() & stored.keys())
        return (
            f"{len(self.acknowledged)} creates acknowledged, all stored; {len(self.uncertain)} uncertain, "
            f"of which {landed} stored; {len(self.refused)} refused, none stored"
        )
