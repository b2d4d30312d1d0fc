"""Commands out: what `publish` steps have stored, published to the broker in its order, at least once.

A broker may end the connection over a command that it will not take, without a word about which. So what was in flight
as a connection ended is suspect: on the next one it goes out alone, once that one has caught up and stayed a moment, so
that the bridge works on meanwhile and what ends the connection then is the command. One that has ended `LOSSES` of them
is skipped, and so, at once, is what is known beforehand not to be taken. A skip is logged and audited.

What was counted dies with the process, and `sent` reaches the store with the next trace. So a process that dies between
a skip and that trace has its successor find the same command, and skip it after as many losses, with a second event in
the audit log. Another gateway that takes over counts for itself, too; each needs `LOSSES` and one, and then goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from engine.clock import Source
from engine.errors import StoreUnavailable
from engine.limits import OUTBOX_RETENTION_SECONDS
from engine.outbox import Follower
from engine.records import Command, Stored
from engine.store.base import Store
from engine.workflows.topics import topic_problem
from gateway import logs
from gateway.audit import Entry
from gateway.bridge.connection import Connection
from gateway.outbox import Outbox

POLL_SECONDS: Final = 1.0
WINDOW: Final = 20
LOSSES: Final = 3
# How long a connection has to have been there before it is trusted with a suspect.
QUIET_SECONDS: Final = 1.0
# How long a broker that ended connections over a topic with a space, as NATS does, gets no other such topic.
SPACES_SECONDS: Final = 600.0

_log = logs.get_logger("bridge")


class Commands:
    """Hands the outbox to one connection after the other; `sent` is the last number up to which all were handed out.

    `note` is given what is written down of a command that was skipped.
    """

    def __init__(self, store: Store, outbox: Outbox, source: Source, note: Callable[[Entry], None]) -> None:
        self._store = store
        self._source = source
        self._note = note
        self._follower = Follower(store)
        self._hint = asyncio.Event()
        self.sent = 0
        # What the connection, or the last one as it ended, has not acknowledged: in order, as a broker acknowledges.
        self._in_flight: list[int] = []
        self._alone_until = 0
        self._suspect, self._losses = 0, 0
        self._took_a_space = False
        self._no_spaces_until = float("-inf")
        outbox.watch(self._hint.set)

    async def begin(self, after: int | None) -> None:
        """Begin behind command `after`, or with None behind what is there. Raises `StoreUnavailable`."""
        newest = await self._follower.start()
        self.sent = newest if after is None else min(after, newest)
        self._in_flight.clear()

    async def follow(self, connection: Connection, caught_up: asyncio.Event) -> None:
        """Publish commands as they come; raises `BrokerFault`. What is not known to be there is sent again.

        `caught_up` is set when the connection has done everything but this.
        """
        self._judge()
        self._follower.start_after(self.sent)
        settled = _Settled(caught_up)
        horizon: datetime | None = None
        while True:
            self._hint.clear()
            with contextlib.suppress(StoreUnavailable):
                if horizon is None:
                    horizon = await self._store.now() - timedelta(seconds=OUTBOX_RETENTION_SECONDS)
                await self._hand_out(await self._follower.read(), connection, horizon, settled)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hint.wait(), POLL_SECONDS)

    def _judge(self) -> None:
        """Find out what the last connection's end says of the commands that were in flight."""
        lost, self._in_flight = self._in_flight, []
        if lost and lost[0] <= self._alone_until:
            self._losses = self._losses + 1 if lost[0] == self._suspect else 1
            self._suspect = lost[0]
        elif lost:
            self._alone_until = lost[-1]

    async def _hand_out(
        self, found: list[Stored[Command]], connection: Connection, horizon: datetime, settled: _Settled
    ) -> None:
        window: list[Stored[Command]] = []
        for command in found:
            reason = self._refusal(command, connection, horizon)
            alone = command.number <= self._alone_until
            if reason or alone or len(window) == WINDOW:
                await self._send(window, connection)
                window = []
            if reason:
                self._skip(command, reason)
            elif alone:
                await settled.wait()
                await self._send([command], connection)
            else:
                window.append(command)
        await self._send(window, connection)

    async def _send(self, some: list[Stored[Command]], connection: Connection) -> None:
        self._in_flight = [it.number for it in some]
        await asyncio.gather(*(self._publish(it, some[-1].number, connection) for it in some))

    async def _publish(self, command: Stored[Command], last: int, connection: Connection) -> None:
        value = command.value
        await connection.publish(value.topic, value.payload, qos=value.qos)
        self._took_a_space = self._took_a_space or " " in value.topic
        self._in_flight.remove(command.number)
        self.sent = self._in_flight[0] - 1 if self._in_flight else last

    # -- what does not go out ----------------------------------------------------------------------------------------

    def _refusal(self, command: Stored[Command], connection: Connection, horizon: datetime) -> str:
        """Say in a word why a command is not sent, "" if it is."""
        topic = command.value.topic
        if command.at < horizon:
            # Others of its age were pruned: this one is there only because the next is numbered by it.
            return "expired"
        if topic_problem(topic):
            return "bad_topic"
        if not connection.takes(topic, command.value.payload):
            return "too_large"
        if command.number == self._suspect and self._losses >= LOSSES:
            if " " in topic and not self._took_a_space:
                self._no_spaces_until = self._source.monotonic() + SPACES_SECONDS
            return "connection_lost"
        if " " in topic and self._source.monotonic() < self._no_spaces_until:
            return "space_in_topic"
        return ""

    def _skip(self, command: Stored[Command], reason: str) -> None:
        self.sent = command.number
        it = command.value
        _log.warning("a command is not sent", reason=reason, run=it.run, job=it.job, step=it.step)
        self._note(
            Entry(
                action="command.skipped",
                result="dropped",
                reason=reason,
                workflow=it.workflow,
                run=it.run,
                job=it.job,
                step=it.step,
                door="bridge",
                bytes=len(it.payload),
            )
        )


class _Settled:
    """Waits once until a connection has caught up and stayed for `QUIET_SECONDS`."""

    def __init__(self, caught_up: asyncio.Event) -> None:
        self._caught_up = caught_up
        self._done = False

    async def wait(self) -> None:
        if not self._done:
            await self._caught_up.wait()
            await asyncio.sleep(QUIET_SECONDS)
            self._done = True
