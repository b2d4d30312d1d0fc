"""Commands out: what `publish` steps send is stored in the outbox and handed to the devices of every instance."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Protocol

from engine import outbox
from engine.clock import Source
from engine.errors import StoreUnavailable
from engine.events import Whose
from engine.store.base import Store

POLL_SECONDS: Final = 1.0
DELIVERY_SECONDS: Final = 10.0
REMEMBERED: Final = 2_000


class Deliverer(Protocol):
    """As much of the listener as a command needs."""

    async def deliver(self, topic: str, payload: bytes, *, qos: int = 1) -> int: ...


class Outbox:
    """The engine's `Publisher`, and the follower that hands all instances' commands to this one's devices, in order."""

    def __init__(self, store: Store, source: Source) -> None:
        self._store = store
        self._source = source
        self._follower = outbox.Follower(store)
        self._hint = asyncio.Event()
        self._received: OrderedDict[int, asyncio.Future[int]] = OrderedDict()
        self._deliverer: Deliverer | None = None
        self._watchers: list[Callable[[], None]] = []

    def attach(self, deliverer: Deliverer) -> None:
        """Hand commands to this listener from now on."""
        self._deliverer = deliverer

    def watch(self, heard: Callable[[], None]) -> None:
        """Have `heard()` called when this instance has stored a command; those of others are found by reading."""
        self._watchers.append(heard)

    async def publish(self, topic: str, payload: bytes, whose: Whose | None = None) -> int:
        """Store a command; return how many connections of this instance received it, 0 if that is not known in time."""
        number = await outbox.append(self._store, self._source, topic, payload, whose)
        for heard in self._watchers:
            heard()
        if self._deliverer is None:
            return 0
        self._hint.set()
        try:
            # The follower alone delivers: it may have met this command before this line was reached.
            return await asyncio.wait_for(asyncio.shield(self._count(number)), DELIVERY_SECONDS)
        except TimeoutError:
            return 0

    async def start(self) -> None:
        """Begin behind what is stored; raises `StoreUnavailable`."""
        await self._follower.start()

    async def follow(self) -> None:
        """Hand commands on for ever: this instance's at once, those of others within `POLL_SECONDS`."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hint.wait(), POLL_SECONDS)
            self._hint.clear()
            with contextlib.suppress(StoreUnavailable):
                await self._hand_on()

    async def _hand_on(self) -> None:
        for command in await self._follower.read():
            value = command.value
            count = 0
            if self._deliverer is not None:
                count = await self._deliverer.deliver(value.topic, value.payload, qos=value.qos)
            if not (received := self._count(command.number)).done():
                received.set_result(count)

    def _count(self, number: int) -> asyncio.Future[int]:
        """Give the future of a command's count; those of other instances' commands are asked for by nobody."""
        received = self._received.get(number)
        if received is None:
            received = self._received[number] = asyncio.get_running_loop().create_future()
            if len(self._received) > REMEMBERED:
                self._received.popitem(last=False)
        return received
