"""The listener: sockets, tasks and time around the pure parts, and what the gateway asks of it."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from engine.clock import Source
from gateway.listener.codec.packets import Connect
from gateway.listener.codec.reasons import Reason
from gateway.listener.connection import Connection
from gateway.listener.endings import Endings
from gateway.listener.limits import ListenerLimits
from gateway.listener.port import Admitted, Application, Certificate, Denied, EndReason, RefusalReason, Unavailable
from gateway.listener.presences import Presences
from gateway.listener.session import Decision, Session
from gateway.listener.sessions import Sessions
from gateway.listener.strangers import Connects, Strangers
from gateway.listener.tls import Handshake
from gateway.listener.wheel import Wheel
from gateway.listener.wire import Surroundings

_TICK_SECONDS: Final = 0.5
_BACKLOG: Final = 2_048  # connections that the kernel completes before they are accepted
_ACCEPTS_A_TURN: Final = 32  # so that a storm does not hold up those who are connected
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionInfo:
    """A connection, for people's eyes. `connected_at` is on the listener's monotonic clock."""

    device: str
    client_id: str
    address: str
    transport: str  # tcp, tls, ws or wss
    version: int  # 4 for MQTT 3.1.1, or 5
    connected_at: float
    persistent: bool
    subscriptions: tuple[str, ...]
    unacknowledged: int
    waiting: int
    dropped: int
    undecided: int
    stalled: bool  # the client does not read what it is sent


class Listener:
    """An MQTT server for devices. Start it on as many addresses as wanted; it serves until `stop`."""

    def __init__(self, application: Application, limits: ListenerLimits, source: Source) -> None:
        self.limits = limits
        self.monotonic = source.monotonic
        self._application = application
        self._connections: set[Connection] = set()
        self._shaking: set[Handshake] = set()
        self._strangers = Strangers(limits.strangers_an_address)
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._wheel: Wheel[Connection | Session] = Wheel(_TICK_SECONDS)
        self._timer: asyncio.TimerHandle | None = None
        self._stopping = False
        self._all_left: asyncio.Event | None = None
        self._sessions = Sessions(limits, application.may_subscribe, self._wheel.cancel)
        self._presences = Presences(limits)
        self._endings = Endings(application, self._sessions, self._presences, self._wheel.add, self._wheel.cancel)
        self.around = Surroundings(
            application=application,
            limits=limits,
            sessions=self._sessions,
            endings=self._endings,
            presences=self._presences,
            connects=Connects(limits.connects_per_second, limits.connects_burst, source.monotonic()),
            monotonic=source.monotonic,
            fresh_name=source.nonce,
        )

    # For the gateway.

    async def start_tcp(self, host: str, port: int, *, tls: ssl.SSLContext | None = None) -> tuple[str, int]:
        """Serve MQTT on `host` and `port` (0: any free one), over TLS with `tls`; return the address in use.

        A context that asks for client certificates makes their names credentials. Raises OSError.
        """
        name = "tcp" if tls is None else "tls"
        return await self._start(lambda: Connection(self, name), host, port, tls)

    async def start_websocket(self, host: str, port: int, *, tls: ssl.SSLContext | None = None) -> tuple[str, int]:
        """Serve MQTT over WebSocket on the path `/mqtt`; else as `start_tcp`."""
        # Imported by whoever wants it: a start without it is quicker.
        from gateway.listener.websocket import WebSocketConnection  # noqa: PLC0415

        name = "ws" if tls is None else "wss"
        return await self._start(lambda: WebSocketConnection(self, name), host, port, tls)

    async def deliver(
        self,
        topic: str,
        payload: bytes,
        *,
        qos: int = 1,
        expiry_seconds: float | None = None,
        publisher: tuple[str, str] | None = None,
    ) -> int:
        """Send a message to all who subscribe to `topic`; return how many connections got it.

        At QoS 1 sessions that are away keep it, up to their queue's bound and `expiry_seconds`; they are not counted.
        `publisher`, a device and its client id, is passed over where its subscription says No Local.
        """
        now = self.monotonic()
        expires_at = None if expiry_seconds is None else now + expiry_seconds
        total = 0
        for sent in self._sessions.deliver(
            topic, payload, qos=qos, now=now, expires_at=expires_at, publisher=publisher
        ):
            total = sent
            # Thousands of receivers take a while: let the others have the loop in between.
            await asyncio.sleep(0)
        return total

    def close_device(self, device: str, *, reason: EndReason = "revoked") -> int:
        """Close the device's connections and forget its sessions, without its will; return how many were connected."""
        closed = 0
        self._presences.forget(device)
        for session in self._sessions.of(device):
            self._endings.resume(session)
            if session.link is not None:
                closed += 1
                session.link.end(reason, Reason.NOT_AUTHORIZED, will=False)
            self._sessions.drop(session)
        return closed

    def close_connections(
        self, device: str, ended: Callable[[Admitted], bool], *, reason: EndReason = "revoked"
    ) -> int:
        """Close those connections of the device whose credential has `ended`, likewise; return how many that were.

        A session whose client is away stays: whoever comes back to it shows a credential that has not ended.
        """
        gone = [it for it in self._sessions.of(device) if it.link is not None and ended(it.who)]
        for session in gone:
            assert session.link is not None
            session.link.end(reason, Reason.NOT_AUTHORIZED, will=False)
            self._sessions.drop(session)
        return len(gone)

    def recheck_device(self, device: str, who: Admitted) -> None:
        """Take over changed grants: subscriptions that they no longer cover end, in sessions that are away too.

        `who` is asked about, whatever credential a session was opened with: that stays the session's own.
        """
        for session in self._sessions.of(device):
            self._sessions.recheck(session, who)

    def connections(self) -> list[ConnectionInfo]:
        """Return the connections whose CONNECT was accepted."""
        return [info for one in self._connections if (info := _info(one)) is not None]

    def open_connections(self) -> int:
        """Count the connections, those that have not authenticated or shaken hands included."""
        return len(self._connections) + len(self._shaking)

    def sessions(self) -> int:
        """Count the sessions, those of clients that are away included."""
        return len(self._sessions)

    def awaited(self) -> int:
        """Count the connections and sessions that the timer holds."""
        return len(self._wheel)

    async def stop(self, grace_seconds: float) -> None:
        """Take nothing more, give what is being decided `grace_seconds`, then close: MQTT 5 is told 0x8B."""
        self._stopping = True
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.hold()
        for handshake in list(self._shaking):
            handshake.abort()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_seconds)
        for connection in list(self._connections):
            connection.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._await_closed()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # For connections.

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop."""
        return asyncio.get_running_loop()

    def entered(self, connection: Connection) -> RefusalReason | Literal["abort"] | None:
        """Count a new connection in; say why it is to be refused, if it is."""
        if not self._has_room(connection, connection.address):
            return "abort"
        self._connections.add(connection)
        return "connections" if self.open_connections() > self.limits.max_connections else None

    def answered(self, connection: Connection) -> None:
        """Take note that a connection's CONNECT is answered."""
        self._strangers.remove(connection.address, connection)

    def left(self, connection: Connection) -> None:
        """Count a connection out."""
        self._connections.discard(connection)
        self._strangers.remove(connection.address, connection)
        self._wheel.cancel(connection)
        if not self._connections and self._all_left is not None:
            self._all_left.set()

    def begins(self, handshake: Handshake) -> bool:
        """Count a TLS handshake in; False when there are too many connections."""
        if not self._has_room(handshake, handshake.address):
            return False
        self._shaking.add(handshake)
        return True

    def shake_hands(self, work: Coroutine[object, object, None]) -> None:
        """Do a TLS handshake, in a task."""
        self._start_task(work, "mqtt handshake")

    def has_shaken(self, handshake: Handshake) -> None:
        """Count a TLS handshake out."""
        self._shaking.discard(handshake)
        self._strangers.remove(handshake.address, handshake)

    def wake(self, connection: Connection, at: float) -> None:
        """Have `connection.due` called at `at` or before."""
        self._wheel.add(connection, at)

    def authenticate(self, connection: Connection, connect: Connect, certificate: Certificate | None) -> None:
        """Ask the application who this is, in a task."""
        self._start_task(self._authenticate(connection, connect, certificate), "mqtt connect")

    def decide(self, connection: Connection, decision: Decision) -> None:
        """Ask the application about a PUBLISH, in a task."""
        self._start_task(self._decide(connection, decision), "mqtt publish")

    def tick(self) -> None:
        """Look at what is due; the listener's own timer calls this twice a second."""
        now = self.monotonic()
        for item in self._wheel.due(now):
            if isinstance(item, Connection):
                item.due(now)
            elif (again := self._endings.lapse(item, now)) is not None:
                self._wheel.add(item, again)

    # Inside.

    def _has_room(self, stranger: Connection | Handshake, address: str) -> bool:
        most = self.limits.max_connections + self.limits.refusals_at_once
        return not self._stopping and self.open_connections() < most and self._strangers.add(address, stranger)

    async def _start(
        self, factory: Callable[[], Connection], host: str, port: int, tls: ssl.SSLContext | None
    ) -> tuple[str, int]:
        make = factory if tls is None else partial(Handshake, self, tls, factory)
        server = await self.loop.create_server(make, host, port, backlog=_ACCEPTS_A_TURN)
        for one in server.sockets:
            _lengthen_queue(one.fileno())
        self._servers.append(server)
        if self._timer is None:
            self._timer = self.loop.call_later(_TICK_SECONDS, self._on_timer)
        address = server.sockets[0].getsockname()
        return str(address[0]), int(address[1])

    def _on_timer(self) -> None:
        self._timer = self.loop.call_later(_TICK_SECONDS, self._on_timer)
        self.tick()

    def _start_task(self, work: Coroutine[object, object, None], name: str) -> None:
        task = self.loop.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _authenticate(self, connection: Connection, connect: Connect, certificate: Certificate | None) -> None:
        terms = connection.conversation.terms
        assert terms is not None
        answer: Admitted | Denied
        try:
            async with asyncio.timeout(self.limits.authenticate_seconds):
                answer = await self._application.connect(
                    username=connect.username,
                    password=connect.password,
                    certificate=certificate,
                    client_id=terms.client_id,
                    address=connection.address,
                )
        except Exception as error:  # noqa: BLE001 - whatever went wrong there, the client is answered
            _logger.error("a CONNECT could not be decided: %s", type(error).__name__)  # noqa: TRY400 - it may hold a token
            answer = Denied("unavailable")
        if answer == Denied("bad_credentials"):
            self.around.connects.failed(connection.address, self.monotonic())
        if isinstance(answer, Admitted) and not self._stopping:
            connection.conversation.admitted(answer)
        else:
            connection.conversation.denied(answer if isinstance(answer, Denied) else Denied("unavailable"))
        connection.authenticated()

    async def _decide(self, connection: Connection, decision: Decision) -> None:
        session, published = connection.conversation.session, decision.published
        assert session is not None
        assert published is not None
        decision.published = None  # a QoS 2 id that is not released may be kept for long
        stopping = False
        try:
            decision.handled = await self._application.publish(session.who, published, address=connection.address)
        except Unavailable as error:
            decision.failed, stopping = True, error.stopping
        except asyncio.CancelledError:
            decision.failed = True
            raise
        except Exception as error:  # noqa: BLE001 - nothing durable was decided, so nothing may be acknowledged
            _logger.error("a PUBLISH could not be decided: %s", type(error).__name__)  # noqa: TRY400 - it may hold a payload
            decision.failed = True
        connection.settled(decision, stopping=stopping or self._stopping)

    async def _await_closed(self) -> None:
        if self._connections:
            self._all_left = asyncio.Event()
            try:
                async with asyncio.timeout(1.0):
                    await self._all_left.wait()
            except TimeoutError:
                for connection in list(self._connections):
                    connection.abort()
                await asyncio.sleep(0)


def _lengthen_queue(file_number: int) -> None:
    """Have the kernel queue more than what asyncio accepts in one turn: to asyncio, one number is both."""
    with socket.socket(fileno=os.dup(file_number)) as twin:
        twin.listen(_BACKLOG)


def _info(connection: Connection) -> ConnectionInfo | None:
    conversation = connection.conversation
    session, terms = conversation.session, conversation.terms
    if session is None or terms is None or session.link is not conversation:
        return None
    return ConnectionInfo(
        device=session.who.device,
        client_id=session.client_id,
        address=connection.address,
        transport=connection.transport_name,
        version=terms.version,
        connected_at=connection.opened_at,
        persistent=session.expiry_seconds > 0,
        subscriptions=tuple(session.subscriptions),
        unacknowledged=session.unacknowledged(),
        waiting=session.waiting(),
        dropped=session.dropped,
        undecided=conversation.undecided(),
        stalled=connection.congested(),
    )
