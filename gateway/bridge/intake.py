"""The messages of the bridge's connections: decided side by side, acknowledged in order, and never before durable.

A message id belongs to a session: a message that was decided and could not be acknowledged before its connection was
lost, and is sent again on the next one, is known by its id and its digest, answered as before and not decided a second
time. One whose acknowledgement was written and never arrived is decided again: the broker may have begun to use its id
for another message, and nobody can tell an equal one from the same one.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from gateway import logs
from gateway.bridge.backlog import Backlog
from gateway.bridge.connection import Connection
from gateway.bridge.handling import Handling, Outgoing
from gateway.bridge.heard import Heard
from gateway.bridge.topics import MARKED, SHORT, Marker, read
from gateway.listener.port import Unavailable

_REST: Final = ""

_log = logs.get_logger("bridge")


@dataclass(slots=True)
class _InProgress:
    """A message on its way; `out` is None until it is decided."""

    mid: int
    message: Heard | None
    out: Sequence[Outgoing] | None = None


@dataclass(frozen=True, slots=True)
class _Carried:
    """What was decided and not acknowledged when a connection was lost."""

    digest: bytes
    out: Sequence[Outgoing] | None


@dataclass(slots=True)
class Counts:
    """What this instance's bridge has done since its start."""

    received: int = 0
    acknowledged: int = 0
    stale: int = 0
    repeated: int = 0


@dataclass(slots=True)
class Intake:
    """Takes messages from one connection after the other; at most `in_flight` at a time."""

    handling: Handling
    in_flight: int
    counts: Counts = field(default_factory=Counts)
    _connection: Connection | None = None
    _backlog: Backlog = field(default_factory=lambda: Backlog(0.0, 0.0))
    _nonce: str = ""
    _marked: asyncio.Event = field(default_factory=asyncio.Event)
    _early: list[Heard] = field(default_factory=list)
    _order: deque[_InProgress] = field(default_factory=deque)
    _by_mid: dict[int, _InProgress] = field(default_factory=dict)
    _carried: dict[int, _Carried] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _stopping: bool = False

    # -- connections -------------------------------------------------------------------------------------------------

    def attach(self, connection: Connection, backlog: Backlog, nonce: str) -> None:
        """Begin with a connection; `nonce` is what its markers bear."""
        self._connection, self._backlog, self._nonce = connection, backlog, nonce
        self._marked.clear()
        if backlog.over:
            self._marked.set()
        if not connection.session_present:
            self._carried.clear()
        early, self._early = self._early, []
        for heard in early:
            self.heard(heard)

    async def detach(self) -> None:
        """End with a connection: what is being decided is decided, for whoever gets the message next."""
        attached, self._connection = self._connection is not None, None
        self._early.clear()
        if not attached:
            # What an earlier connection left behind is what the next one needs.
            return
        self._stopping = True
        try:
            while self._tasks:
                await asyncio.wait(tuple(self._tasks))
        finally:
            self._stopping = False
        self._carried = {
            it.mid: _Carried(_digest(it.message), it.out)
            for it in self._order
            if it.mid and it.message is not None and it.out is not None
        }
        self._order.clear()
        self._by_mid.clear()

    def forget(self) -> None:
        """Know no message from before: somebody else has had the session since."""
        self._carried.clear()

    async def finish(self, grace_seconds: float) -> None:
        """Wait until what has come is decided and acknowledged, `grace_seconds` at most."""
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=grace_seconds)

    @property
    def idle(self) -> bool:
        """Tell whether all that has come is decided and acknowledged."""
        return not self._order

    async def caught_up(self) -> None:
        """Return when every marker has come back."""
        await self._marked.wait()

    # -- messages ----------------------------------------------------------------------------------------------------

    def heard(self, message: Heard) -> None:
        """Take a message; called on the event loop, and never raises."""
        connection = self._connection
        if connection is None:
            self._early.append(message)
            return
        if message.topic.startswith(MARKED) and isinstance(about := read(message.topic), Marker):
            self._mark(about, message, connection)
            return
        self.counts.received += 1
        if message.mid in self._by_mid and message.mid:
            # Sent again on the live connection, because the store takes long: it is in progress.
            self.counts.repeated += 1
            return
        entry = _InProgress(message.mid, message)
        self._order.append(entry)
        if message.mid:
            self._by_mid[message.mid] = entry
        if self._is_known(entry, message):
            self._decided(entry, connection)
            return
        age = self._backlog.age_seconds(_filter_of(message.topic), dup=message.dup)
        task = asyncio.get_running_loop().create_task(self._take(entry, message, age, connection), name="bridged")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if len(self._order) >= self.in_flight:
            connection.pause()

    def _is_known(self, entry: _InProgress, message: Heard) -> bool:
        earlier = self._carried.pop(message.mid, None) if self._carried else None
        if earlier is None or not message.dup or earlier.digest != _digest(message):
            return False
        self.counts.repeated += 1
        entry.out = earlier.out
        return True

    async def _take(self, entry: _InProgress, message: Heard, age: float, connection: Connection) -> None:
        try:
            entry.out = await self.handling.decide(
                message,
                age_seconds=age,
                is_stale=self._is_stale,
                replays=connection.version != 5,
                stopped=lambda: self._stopping,
            )
        except Unavailable:
            # Not decided, and not acknowledged: the broker sends it again on the next connection.
            return
        except Exception as fault:  # noqa: BLE001 - one message never stops the others
            _log.error("a message could not be handled and is dropped", fault=type(fault).__name__)
            entry.out = ()
        self._decided(entry, connection)

    def _is_stale(self, age_seconds: float) -> bool:
        stale = self._backlog.is_stale(age_seconds)
        self.counts.stale += stale
        return stale

    def _decided(self, entry: _InProgress, connection: Connection) -> None:
        if connection is not self._connection:
            return
        for out in entry.out or ():
            connection.send(out.topic, out.payload, retain=out.retain, correlation_data=out.correlation_data)
        mids = []
        while self._order and self._order[0].out is not None:
            done = self._order.popleft()
            if done.mid:
                self._by_mid.pop(done.mid, None)
                mids.append(done.mid)
        if mids:
            self.counts.acknowledged += len(mids)
            connection.acknowledge(mids)
        if len(self._order) <= self.in_flight // 2:
            connection.resume()

    def _mark(self, marker: Marker, message: Heard, connection: Connection) -> None:
        if message.mid:
            # It has no place in the order: nothing is decided by it.
            entry = _InProgress(message.mid, None, ())
            self._order.append(entry)
            self._decided(entry, connection)
        if marker.nonce == self._nonce:
            self._backlog.marked(marker.topic_filter)
            if self._backlog.over:
                self._marked.set()


def _digest(message: Heard) -> bytes:
    named = "\0".join((message.topic, *(text for pair in message.user_properties for text in pair)))
    return hashlib.sha256(named.encode() + b"\0\0" + message.payload).digest()


def _filter_of(topic: str) -> str:
    """Name the filter with a marker of its own that a topic came by, "" for a map's."""
    head, _, rest = topic.partition("/")
    if head == "d":
        return f"d/+/{rest.partition('/')[2].partition('/')[0]}/#"
    return SHORT if head == "signals" else _REST
