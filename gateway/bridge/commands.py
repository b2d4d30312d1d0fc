"""Commands out: what `publish` steps have stored, published to the broker in its order, at least once."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from engine.errors import StoreUnavailable
from engine.outbox import Follower
from engine.store.base import Store
from gateway.bridge.connection import Connection
from gateway.outbox import Outbox

POLL_SECONDS: Final = 1.0
WINDOW: Final = 20


class Commands:
    """Hands the outbox to one connection after the other; `sent` is the last number that the broker has."""

    def __init__(self, store: Store, outbox: Outbox) -> None:
        self._follower = Follower(store)
        self._hint = asyncio.Event()
        self.sent = 0
        outbox.watch(self._hint.set)

    async def begin(self, after: int | None) -> None:
        """Begin behind command `after`, or with None behind what is there. Raises `StoreUnavailable`."""
        newest = await self._follower.start()
        self.sent = newest if after is None else min(after, newest)
        self._follower.start_after(self.sent)

    async def follow(self, connection: Connection) -> None:
        """Publish commands as they come; raises `BrokerFault`. What is not known to be there is sent again."""
        self._follower.start_after(self.sent)
        while True:
            self._hint.clear()
            with contextlib.suppress(StoreUnavailable):
                found = await self._follower.read()
                for at in range(0, len(found), WINDOW):
                    some = found[at : at + WINDOW]
                    sending = [connection.publish(it.value.topic, it.value.payload, qos=it.value.qos) for it in some]
                    await asyncio.gather(*sending)
                    self.sent = some[-1].number
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hint.wait(), POLL_SECONDS)
