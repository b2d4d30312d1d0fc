"""Proves that the store is asked once for all who want to know whether it answers, and again a second later."""

from __future__ import annotations

import asyncio
from datetime import datetime

from engine.errors import StoreUnavailable
from engine.store.memory import MemoryStore, RunningClock
from gateway.readiness import FRESH_SECONDS, StoreLook
from tests.support.source import HandSource


class Counting(MemoryStore):
    """Counts how often it is asked, and is away the second time."""

    def __init__(self) -> None:
        super().__init__(RunningClock())
        self.asked = 0

    async def now(self, until: datetime | None = None) -> datetime:
        self.asked += 1
        await asyncio.sleep(0)
        if self.asked == 2:
            raise StoreUnavailable("away")
        return await super().now(until)


async def test_however_many_ask_the_store_is_asked_once_a_second() -> None:
    store, source = Counting(), HandSource()
    look = StoreLook(store, source)
    for asked, answer in ((1, True), (2, False), (3, True)):
        answers = await asyncio.gather(*(look.answers() for _ in range(50)))
        assert (set(answers), store.asked) == ({answer}, asked)
        source.advance(FRESH_SECONDS)
