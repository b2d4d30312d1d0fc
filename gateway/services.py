"""What the doors are given: the parts that the composition root has put together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from devices.registry import Registry
from engine.clock import Source
from engine.service import Engine
from gateway.audit import Audit, Door
from gateway.auth import Authority
from gateway.deliver import Deliver
from gateway.limits import DeviceLimits
from gateway.listener.server import ConnectionInfo
from gateway.live import Live
from gateway.metrics import Metrics
from gateway.outbox import Outbox
from gateway.seen import LastSeen
from gateway.sessions import Sessions
from gateway.settings import Settings

if TYPE_CHECKING:
    from gateway.traces import Traces

T = TypeVar("T")


def _none_of(_: str) -> int:
    return 0


async def _nothing() -> list[str]:
    return []


@dataclass(slots=True, kw_only=True)
class Services:
    """One instance's parts.

    `door` is what the HTTP application is to its callers: "cli" when a command calls it with no gateway there. `doors`
    maps each open door's name to the `HOST:PORT` that it listens on; `connections_of` counts a device's connections to
    this instance and `connected` lists them all; `not_ready` names what is not at work; `stopping` is set when nothing
    more is to be waited for. `lost`: the store was found empty, and the data directory had been in use.
    """

    settings: Settings
    source: Source
    engine: Engine
    registry: Registry
    authority: Authority
    limits: DeviceLimits
    deliver: Deliver
    audit: Audit
    outbox: Outbox
    live: Live
    sessions: Sessions
    last_seen: LastSeen
    metrics: Metrics = field(default_factory=Metrics)
    traces: Traces | None = None
    door: Door = "http"
    lost: bool = False
    doors: dict[str, str] = field(default_factory=dict)
    connections_of: Callable[[str], int] = _none_of
    connected: Callable[[], list[ConnectionInfo]] = list
    not_ready: Callable[[], Awaitable[list[str]]] = _nothing
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    async def unless_stopping(self, waiting: Awaitable[T]) -> T | None:
        """Wait for something; None as soon as the instance is stopping."""
        task = asyncio.ensure_future(waiting)
        stop = asyncio.ensure_future(self.stopping.wait())
        try:
            await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            task.cancel()
            stop.cancel()
