"""Drain a session that nobody holds: decide what lies in it, have it take no more, and end it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Final

from engine.errors import StoreUnavailable, WaysideError
from gateway import logs
from gateway.bridge.backlog import Backlog
from gateway.bridge.claim import TRACE_SECONDS
from gateway.bridge.connection import BrokerFault, Connection, Subscription, connect
from gateway.bridge.handshake import Options
from gateway.bridge.intake import Intake
from gateway.bridge.slots import Slot, Slots
from gateway.bridge.topics import OWN, marker_filter, marker_topic

DECIDE_SECONDS: Final = 60.0
_NO_TIME_SECONDS: Final = 0.001

_log = logs.get_logger("bridge")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """How to drain. `options` are those of the bridge's own connection, under whichever client id."""

    options: Options
    intake: Intake
    topic_filters: Sequence[str]
    max_backlog_seconds: float
    nonce: Callable[[], str]

    async def others(self, slots: Slots, own: Slot) -> None:
        """Look for sessions that nobody holds, for ever, and drain them one by one."""
        while True:
            try:
                for slot in await slots.loose(own):
                    if await self.drain(slot):
                        _log.info("bridge drained a session that nobody held", client_id=slot.client_id)
            except BrokerFault as fault:
                _log.warning("a session that nobody holds is not drained yet", reason=fault.reason)
            except StoreUnavailable:
                pass
            await asyncio.sleep(TRACE_SECONDS)

    async def drain(self, slot: Slot) -> bool:
        """Drain a slot's session; tell whether it is gone. Raises `BrokerFault`, `StoreUnavailable`.

        Whatever this ends by, and wherever the process dies, the session is as it was but for what was decided and
        acknowledged, and its slot nobody's: the next one begins anew. It ends last, when nothing is in it any more.
        """
        if not await slot.claims.take():
            return False
        options = replace(self.options, client_id=slot.client_id, will=None)
        gone = False
        try:
            async with connect(options, self.intake.heard) as connection:
                connection.pause()
                if connection.session_present:
                    await _while_connected(connection, self._empty(slot, connection))
            await self.intake.detach()
            async with connect(replace(options, keep=False), self.intake.heard):
                gone = True
        finally:
            await self.intake.detach()
            with contextlib.suppress(WaysideError):
                await slot.claims.release(drained=gone)
        return gone

    async def _empty(self, slot: Slot, connection: Connection) -> None:
        left = await slot.claims.left()
        gap = float("inf") if left is None else max(_NO_TIME_SECONDS, await slot.claims.gap_seconds(left))
        await self._until_marked(slot, connection, gap)
        # Only now: a broker need not hand out what it held for a subscription that has ended (MQTT 5, 3.10.4).
        await connection.unsubscribe(self.topic_filters)
        await self._until_marked(slot, connection, _NO_TIME_SECONDS)
        await self.intake.finish(DECIDE_SECONDS)
        if not self.intake.idle:
            raise BrokerFault("what lay in a session that nobody held could not be decided")

    async def _until_marked(self, slot: Slot, connection: Connection, gap_seconds: float) -> None:
        """Return when all that the broker held has come."""
        nonce = self.nonce()
        backlog = Backlog(gap_seconds, self.max_backlog_seconds, one_queue=True)
        backlog.expect([OWN])
        self.intake.attach(connection, backlog, nonce)
        connection.resume()
        if await connection.subscribe([Subscription(marker_filter(slot.client_id))]):
            raise BrokerFault("it does not let the bridge subscribe to its own markers")
        await connection.publish(marker_topic(OWN, slot.client_id, nonce), b"{}")
        await self.intake.caught_up()


async def _while_connected(connection: Connection, work: Coroutine[object, object, None]) -> None:
    """Do something that ends with the connection at the latest."""
    working = asyncio.create_task(work, name="bridge drain")
    lost = asyncio.create_task(connection.lost(), name="bridge drain loss")
    try:
        await asyncio.wait({working, lost}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise BrokerFault("the connection was lost")
        await working
    finally:
        working.cancel()
        lost.cancel()
        await asyncio.gather(working, lost, return_exceptions=True)
