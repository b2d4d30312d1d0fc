"""Commands out: what `publish` steps send is stored in the outbox and handed to the devices of every instance."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, Protocol

from engine import outbox
from engine.clock import Source
from engine.errors import StoreUnavailable
from engine.store.base import Store

POLL_SECONDS: Final = 1.0


class Deliverer(Protocol):
    """As much of the listener as a command needs."""

    async def deliver(self, topic: str, payload: bytes, *, qos: int = 1) -> int: ...


class Outbox:
    """The engine's `Publisher`, and the follower of what other instances publish."""

    def __init__(self, store: Store, source: Source) -> None:
        self._store = store
        self._source = source
        self._follower = outbox.Follower(store)
        self._own: set[int] = set()
        self._deliverer: Deliverer | None = None
        self._watchers: list[Callable[[], None]] = []

    def attach(self, deliverer: Deliverer) -> None:
        """Hand commands to this listener from now on."""
        self._deliverer = deliverer

    def watch(self, heard: Callable[[], None]) -> None:
        """Have `heard()` called when this instance has stored a command; those of others are found by reading."""
        self._watchers.append(heard)

    async def publish(self, topic: str, payload: bytes) -> int:
        """Store a command, then hand it to this instance's devices; return how many connections received it."""
        number = await outbox.append(self._store, self._source, topic, payload)
        for heard in self._watchers:
            heard()
        if self._deliverer is None:
            return 0
        # The follower meets it again, and passes it over.
        self._own.add(number)
        return await self._deliverer.deliver(topic, payload, qos=1)

    async def start(self) -> None:
        """Begin behind what is stored; raises `StoreUnavailable`."""
        await self._follower.start()

    async def follow(self) -> None:
        """Hand the commands of other instances to this one's devices, for ever."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            with contextlib.suppress(StoreUnavailable):
                for command in await self._follower.read():
                    if command.number in self._own:
                        self._own.discard(command.number)
                    elif self._deliverer is not None:
                        value = command.value
                        await self._deliverer.deliver(value.topic, value.payload, qos=value.qos)
