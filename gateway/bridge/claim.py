"""Which instance is the active bridge, and since when nobody was: records that all instances of a store share.

A numbered claim names the holder; the next number is anybody's once the holder has died or let go. While connected, the
holder leaves a trace every few seconds, from which the next one tells how long messages may have lain in the broker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec

from engine import names, records
from engine.clock import Source
from engine.errors import UnreadableRecord
from engine.records import Stored, Unreadable
from engine.store.base import Record, Store

TRACE_SECONDS: Final = 5.0
_KEPT: Final = 2


class Holder(records.Value, frozen=True, kw_only=True, tag="bridge_holder"):
    """From this record on `instance` is the active bridge; nobody is when it is "". `drained`: no session is left."""

    instance: str
    drained: bool = False


class Trace(records.Value, frozen=True, kw_only=True, tag="bridge_trace"):
    """The active bridge was connected as this was stored, and had handed out every command up to `command`."""

    instance: str
    command: Annotated[int, msgspec.Meta(ge=0)]


# Nobody ever held it; another living instance does; nobody, or this one; nobody, and it has no session.
Standing = Literal["unknown", "held", "loose", "drained"]
_HOLDER, _TRACE = records.decoder(Holder), records.decoder(Trace)


@dataclass(frozen=True, slots=True)
class Left:
    """What the last trace says: when a bridge was last connected, and the last command that it handed out."""

    at: datetime
    command: int


class Claims:
    """The claims and traces of one bridge, named by its client id."""

    def __init__(
        self,
        store: Store,
        source: Source,
        *,
        client_id: str,
        instance: str,
        is_dead: Callable[[str], Awaitable[bool]],
    ) -> None:
        self._store = store
        self._source = source
        self._instance = instance
        self._is_dead = is_dead
        self._holders = f"bridge/holder/{client_id}/"
        self._traces = f"bridge/trace/{client_id}/"
        self._last_trace: int | None = None

    async def take(self) -> bool:
        """Be the active bridge if nobody else is; tell whether this instance is. Raises `StoreUnavailable`."""
        top = await self._store.last(self._holders)
        holder = None if top is None else self._read(top)
        if holder is not None:
            if holder.value.instance == self._instance:
                return True
            if holder.value.instance and not await self._is_dead(holder.value.instance):
                return False
        return await self._claim(self._instance, 1 if top is None else names.number_of(top.key) + 1)

    async def holds(self) -> bool:
        """Tell whether this instance is the active bridge still. Raises `StoreUnavailable`."""
        top = await self._store.last(self._holders)
        return top is not None and self._read(top).value.instance == self._instance

    async def standing(self) -> Standing:
        """Tell how the claim stands for whoever would take it without need. Raises `StoreUnavailable`."""
        top = await self._store.last(self._holders)
        if top is None:
            return "unknown"
        holder = self._read(top).value
        if holder.drained:
            return "drained"
        others = holder.instance not in {"", self._instance}
        return "held" if others and not await self._is_dead(holder.instance) else "loose"

    async def release(self, *, drained: bool = False) -> None:
        """Let go, so that another instance takes over at once; `drained`: nothing is left to be taken over."""
        top = await self._store.last(self._holders)
        if top is not None and self._read(top).value.instance == self._instance:
            await self._claim("", names.number_of(top.key) + 1, drained=drained)

    async def _claim(self, instance: str, number: int, *, drained: bool = False) -> bool:
        at = self._holders + names.number(number)
        key, data = records.encode(Holder(at=at, nonce=self._source.nonce(), instance=instance, drained=drained))
        won = (await self._store.create(key, data)).value == data
        if won and number > _KEPT:
            # Never the highest: its number comes back no more.
            await self._store.delete([self._holders + names.number(number - _KEPT)])
        return won

    def _read(self, record: Record) -> Stored[Holder]:
        found = _HOLDER(record)
        if isinstance(found, Unreadable):
            raise UnreadableRecord(found.key, found.reason)
        return found  # type: ignore[return-value]

    async def trace(self, command: int) -> None:
        """Leave a trace: connected now, with every command up to `command` handed out."""
        if self._last_trace is None:
            last = await self._store.last(self._traces)
            self._last_trace = 0 if last is None else names.number_of(last.key)
        self._last_trace += 1
        at = self._traces + names.number(self._last_trace)
        trace = Trace(at=at, nonce=self._source.nonce(), instance=self._instance, command=command)
        await self._store.create(*records.encode(trace))
        if self._last_trace > _KEPT:
            await self._store.delete([self._traces + names.number(self._last_trace - _KEPT)])

    async def left(self) -> Left | None:
        """Read the last trace, whoever left it."""
        self._last_trace = None
        record = await self._store.last(self._traces)
        if record is None:
            return None
        found = _TRACE(record)
        if isinstance(found, Unreadable):
            return Left(found.at, 0)
        stored: Stored[Trace] = found  # type: ignore[assignment]
        return Left(stored.at, stored.value.command)

    async def gap_seconds(self, left: Left) -> float:
        """Tell how long no bridge was there, at the least: a trace is up to `TRACE_SECONDS` older than the loss."""
        return max(0.0, (await self._store.now() - left.at).total_seconds() - TRACE_SECONDS)
