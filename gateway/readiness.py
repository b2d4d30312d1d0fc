"""Whether the store answers, asked once a second for all who want to know: on some it is a request that costs."""

from __future__ import annotations

import asyncio
from typing import Final

from engine.clock import Source
from engine.errors import StoreUnavailable
from engine.store.base import Store

STORE_PATIENCE_SECONDS: Final = 2.0
FRESH_SECONDS: Final = 1.0


class StoreLook:
    """Looks whether the store answers within `STORE_PATIENCE_SECONDS`."""

    def __init__(self, store: Store, source: Source) -> None:
        self._store = store
        self._source = source
        self._asking = asyncio.Lock()
        self._asked_at = float("-inf")
        self._answered = False

    async def answers(self) -> bool:
        """Tell whether it does, or did within the last `FRESH_SECONDS`."""
        async with self._asking:
            if self._source.monotonic() - self._asked_at >= FRESH_SECONDS:
                try:
                    await asyncio.wait_for(self._store.now(), STORE_PATIENCE_SECONDS)
                    self._answered = True
                except (TimeoutError, StoreUnavailable):
                    self._answered = False
                self._asked_at = self._source.monotonic()
            return self._answered
