"""The bridge: the door to an external broker. One instance of a store's is active; the others stand by.

The active one connects under a fixed client id to a session that outlives it. What devices publish is acknowledged to
the broker when it is durable, so that whatever happens to this process comes to the next one by the same session.
With a shared subscription (`share`) all instances are connected, each by the session of a slot that it holds.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Final, Literal

from msgspec import structs

from engine.clock import Source, secret_number
from engine.errors import StoreUnavailable, WaysideError
from engine.service import Engine
from gateway import logs
from gateway.audit import Audit, Entry
from gateway.bridge.backlog import Backlog
from gateway.bridge.claim import TRACE_SECONDS, Claims
from gateway.bridge.commands import Commands
from gateway.bridge.connection import BrokerFault, Connection, Subscription, connect
from gateway.bridge.drain import Drain
from gateway.bridge.handling import Handling
from gateway.bridge.handshake import Options, Will
from gateway.bridge.intake import Counts, Intake
from gateway.bridge.slots import Slot, Slots
from gateway.bridge.topics import OWN, QUESTIONS, RUNS, SHORT, SIGNALS, marker_topic, status_topic, subscriptions
from gateway.bridge.url import BrokerUrl
from gateway.outbox import Outbox

State = Literal["standby", "connecting", "catching up", "connected", "stopped"]
STANDBY_SECONDS: Final = 1.0
FIRST_BACKOFF_SECONDS: Final = 1.0
STABLE_SECONDS: Final = 60.0
_ONLINE: Final = b'{"v":1,"state":"online"}'
_OFFLINE: Final = b'{"v":1,"state":"offline"}'

_log = logs.get_logger("bridge")


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeOptions:
    """How the bridge works; see `gateway.settings.BridgeTable`."""

    url: BrokerUrl
    client_id: str
    in_flight: int
    max_backlog_seconds: float
    session_expiry_seconds: int
    reconnect_max_seconds: float
    short_form: bool
    share: str
    map_filters: tuple[str, ...]


class _Replaced(Exception):
    """Another instance is the active bridge now."""


class Bridge:
    """Run it as one task; `stop` before the engine stops."""

    def __init__(
        self,
        options: BridgeOptions,
        handling: Handling,
        engine: Engine,
        outbox: Outbox,
        source: Source,
        *,
        audit: Audit | None = None,
    ) -> None:
        self._options = options
        self._audit = audit
        self._source = source
        self._engine = engine
        self._intake = Intake(handling, options.in_flight)
        self._commands = Commands(engine.store, outbox, source, self._note)
        whose = {"client_id": options.client_id, "instance": engine.instance}
        self._claims = Claims(engine.store, source, **whose, is_dead=engine.instance_is_dead)
        self._slots = Slots(engine.store, source, **whose, is_dead=engine.instance_is_dead) if options.share else None
        self._slot: Slot | None = None
        self._began = False
        # With a shared subscription: whether this instance is the one that hands out commands.
        self._leads = False
        self._lost_at: float | None = None
        self._version = 3 if options.url.protocol == "3.1.1" else 5
        self._spoken = 0
        self._failures = 0
        self._connection: Connection | None = None
        self.state: State = "connecting"
        self.trouble = ""

    @property
    def counts(self) -> Counts:
        return self._intake.counts

    @property
    def ready(self) -> bool:
        """Tell whether it is at its work: connected, or standing by for the one that is."""
        return self.state in {"standby", "connected", "catching up"}

    # -- life --------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Be the active bridge whenever nobody else is, for ever."""
        while self.state != "stopped":
            try:
                if not await self._take():
                    self._set("standby")
                    self._forget()
                    await asyncio.sleep(STANDBY_SECONDS)
                    continue
                await self._connected_once()
            except _Replaced:
                _log.info("another instance is the active bridge now")
                self._forget()
            except BrokerFault as fault:
                await self._pause(fault.reason)
            except WaysideError as fault:
                await self._pause(fault.message)
            except Exception as fault:  # noqa: BLE001 - the other doors stay open, and this one is tried again
                await self._pause(f"it failed: {type(fault).__name__}")

    def _forget(self) -> None:
        """Know no more of the session than any other instance: another one has it, or has had it since."""
        self._began, self._lost_at = False, None
        self._intake.forget()

    async def _take(self) -> bool:
        """Hold a session of the broker's, if this instance may: the bridge's, or a slot's."""
        if self._slots is None:
            return await self._claims.take()
        if self._slot is not None and not await self._slot.claims.holds():
            # It was thought to be dead, and the session is another's.
            self._slot = None
            raise _Replaced
        self._slot = self._slot or await self._slots.take()
        return True

    @property
    def _client_id(self) -> str:
        return self._options.client_id if self._slot is None else self._slot.client_id

    @property
    def _session(self) -> Claims:
        """Give the claim on the session; that on the commands is the same one where there is one session."""
        return self._claims if self._slot is None else self._slot.claims

    async def stop(self, grace_seconds: float) -> None:
        """Take nothing more, finish what has come, say goodbye to the broker and let another instance take over."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.pause()
            await self._intake.finish(grace_seconds)
            with contextlib.suppress(BrokerFault, TimeoutError):
                connection.resume()  # for the acknowledgement of what is published now
                await asyncio.wait_for(self._say_goodbye(connection), 2.0)
        self.state = "stopped"

    async def _say_goodbye(self, connection: Connection) -> None:
        payload = b"" if self._options.share else _OFFLINE
        await connection.publish(status_topic(self._client_id), payload, retain=True)

    async def close(self) -> None:
        """Let go of the claims: after `run` has been cancelled."""
        with contextlib.suppress(WaysideError):
            await self._claims.release()
            await self._session.release()

    async def _pause(self, reason: str) -> None:
        """Wait before the next attempt: full jitter up to a bound that doubles."""
        self._set("connecting", reason)
        bound = min(self._options.reconnect_max_seconds, FIRST_BACKOFF_SECONDS * 2.0 ** min(self._failures, 16))
        self._failures += 1
        await asyncio.sleep(bound * secret_number(20) / (1 << 20))

    def _set(self, state: State, trouble: str = "") -> None:
        if self.state != "stopped" and (state, trouble) != (self.state, self.trouble):
            self.state, self.trouble = state, trouble
            if trouble:
                _log.warning("bridge is not connected", broker=str(self._options.url), reason=trouble)
            else:
                _log.info(f"bridge {state}", broker=str(self._options.url))

    def _note(self, entry: Entry) -> None:
        if self._audit is not None:
            self._audit.add(structs.replace(entry, address=self._options.url.address))

    # -- one connection ----------------------------------------------------------------------------------------------

    def _connecting(self) -> Options:
        return Options(
            url=self._options.url,
            client_id=self._client_id,
            version=self._version,
            session_expiry_seconds=self._options.session_expiry_seconds,
            in_flight=self._options.in_flight,
            will=Will(topic=status_topic(self._client_id), payload=b"" if self._options.share else _OFFLINE),
        )

    async def _connected_once(self) -> None:
        since = self._source.monotonic()
        connection: Connection | None = None
        try:
            async with connect(self._connecting(), self._intake.heard, self._source.monotonic) as connection:
                connection.pause()
                self._spoken = max(self._spoken, connection.version)
                await self._work_on(connection)
        except BrokerFault as fault:
            if self._try_other_version(fault, connection):
                return
            raise
        finally:
            self._connection = None
            if self.state == "connected" and connection is not None:
                self._lost_at = connection.ended_at
            await self._intake.detach()
            if self._source.monotonic() - since >= STABLE_SECONDS:
                self._failures = 0

    def _try_other_version(self, fault: BrokerFault, connection: Connection | None) -> bool:
        """Choose which version of MQTT is spoken next; tell whether it is worth an attempt at once.

        A broker that has spoken MQTT 5 is believed to speak another only when it says so: whoever hangs up, a proxy
        in front of it for one, says nothing. One that was left for hanging up is asked again at each new connection.
        """
        if self._options.url.protocol != "auto":
            return False
        if connection is not None:
            self._version = 5
            return False
        if not fault.wrong_protocol or (self._spoken == 5 and not fault.said):
            return False
        self._version = 3 if self._version == 5 else 5
        return self._version == 3

    async def _work_on(self, connection: Connection) -> None:
        gap = await self._gap(connection)
        # Of a shared filter the marker might come to another member.
        backlog = Backlog(gap, self._options.max_backlog_seconds, one_queue=bool(self._options.share))
        wanted = self._subscriptions()
        marked = [it for it in (SIGNALS, RUNS, QUESTIONS, SHORT, OWN) if it != SHORT or self._options.short_form]
        marked = [OWN] if self._options.share else marked
        backlog.expect(marked)
        nonce = self._source.nonce()
        self._intake.attach(connection, backlog, nonce)
        self._connection = connection
        if self.state == "stopped":
            return
        self._set("catching up")
        connection.resume()
        caught_up = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as group:
                # From the first word on: nobody else hears of a loss while an answer is waited for.
                group.create_task(self._until_lost(connection), name="bridge loss")
                if refused := await connection.subscribe(wanted):
                    raise BrokerFault(f"it does not let the bridge subscribe to {', '.join(refused)}")
                group.create_task(self._mark(connection, backlog, marked, nonce, caught_up), name="bridge markers")
                group.create_task(self._watch_claim(), name="bridge claim")
                group.create_task(self._hand_out(connection, caught_up), name="bridge commands")
                group.create_task(self._drain_others(caught_up), name="bridge slots")
        except BaseExceptionGroup as faults:
            raise _foremost(faults) from None

    def _subscriptions(self) -> list[Subscription]:
        return subscriptions(
            self._client_id,
            short_form=self._options.short_form,
            maps=self._options.map_filters,
            share=self._options.share,
        )

    @staticmethod
    async def _until_lost(connection: Connection) -> None:
        await connection.lost()
        raise BrokerFault("the connection was lost")

    async def _mark(
        self, connection: Connection, backlog: Backlog, marked: list[str], nonce: str, caught_up: asyncio.Event
    ) -> None:
        """Announce the bridge, and put the markers behind what the broker held for it."""
        await connection.publish(status_topic(self._client_id), _ONLINE, retain=True)
        if not backlog.over:
            for topic_filter in marked:
                await connection.publish(marker_topic(topic_filter, self._client_id, nonce), b"{}")
            await self._intake.caught_up()
        # From here on: a loss before this leaves what the broker holds as old as it was.
        self._set("connected")
        caught_up.set()
        await self._trace()

    async def _gap(self, connection: Connection) -> float:
        """Tell how long no bridge was connected to the session; 0 when the broker has none."""
        left = await self._session.left()
        if not self._began and self._slots is None:
            await self._commands.begin(left.command if left is not None else None)
            self._began = True
        if not connection.session_present:
            return 0.0
        if self._lost_at is not None:
            return max(0.001, self._source.monotonic() - self._lost_at)
        return float("inf") if left is None else max(0.001, await self._session.gap_seconds(left))

    async def _watch_claim(self) -> None:
        while True:
            with contextlib.suppress(StoreUnavailable):
                if not await self._session.holds() or (self._leads and not await self._claims.holds()):
                    self._leads = False
                    raise _Replaced
            await asyncio.sleep(TRACE_SECONDS)
            if self.state == "connected":
                await self._trace()

    async def _trace(self) -> None:
        with contextlib.suppress(StoreUnavailable):
            if await self._session.holds():
                await self._session.trace(self._commands.sent)
            if self._leads and await self._claims.holds():
                await self._claims.trace(self._commands.sent)

    async def _hand_out(self, connection: Connection, caught_up: asyncio.Event) -> None:
        """Publish commands; where every instance is connected, the one that holds the claim does."""
        while self._options.share and not await self._lead():  # noqa: ASYNC110 - others let go in the store
            await asyncio.sleep(STANDBY_SECONDS)
        await self._commands.follow(connection, caught_up)

    async def _lead(self) -> bool:
        """Be the one that hands out commands if nobody else is, and go on where the last one had come to.

        Its trace is up to `TRACE_SECONDS` old: so much is handed out again. An own trace comes before any command, so
        that whoever is next finds this beginning at the least.
        """
        if not await self._claims.take():
            self._leads = False
        elif not self._leads:
            left = await self._claims.left()
            await self._commands.begin(left.command if left is not None else None)
            await self._claims.trace(self._commands.sent)
            self._leads = True
            _log.info("bridge hands out commands", broker=str(self._options.url))
        return self._leads

    async def _drain_others(self, caught_up: asyncio.Event) -> None:
        """Where every instance has a session of its own, drain those that nobody holds."""
        if self._slots is None or self._slot is None:
            return
        await caught_up.wait()
        drain = Drain(
            options=self._connecting(),
            intake=Intake(self._intake.handling, self._options.in_flight, self._intake.counts),
            topic_filters=[it.topic_filter for it in self._subscriptions() if it.topic_filter.startswith("$share/")],
            max_backlog_seconds=self._options.max_backlog_seconds,
            nonce=self._source.nonce,
        )
        await drain.others(self._slots, self._slot)


def _foremost(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Choose the one fault that is told: a replacement before a loss, anything else before both."""
    weight = {_Replaced: 1, BrokerFault: 2}
    return min(_leaves(group), key=lambda fault: weight.get(type(fault), 0))


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for fault in group.exceptions:
        found += _leaves(fault) if isinstance(fault, BaseExceptionGroup) else [fault]
    return found
