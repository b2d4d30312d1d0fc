"""One MQTT connection on an asyncio transport: bytes to the decoder, packets to the conversation, bytes back.

An idle connection has no task and no timer of its own; its objects are what it costs.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Final, cast

from gateway.listener.certificates import certificate_of
from gateway.listener.codec import PacketError, Reason, StreamDecoder
from gateway.listener.codec.packets import Connect, Subscribe, Unsubscribe
from gateway.listener.conversation import Conversation, Phase
from gateway.listener.port import EndReason, RefusalReason
from gateway.listener.session import Decision

if TYPE_CHECKING:
    from gateway.listener.server import Listener

_PACKETS_A_TURN: Final = 256  # or topic filters; then others get the loop, however much one client has sent at once
_KEEP_ALIVE_FACTOR: Final = 1.5  # 3.1.2.10
_TCP_IDLE_SECONDS: Final = 600
_LINGER_SECONDS: Final = 1.0  # between the end of writing and the end of the connection


class Connection(asyncio.Protocol):
    """Carries a conversation over TCP or TLS: a `Wire`."""

    __slots__ = (
        "_at_end",
        "_decoder",
        "_ended_at",
        "_held",
        "_listener",
        "_lost",
        "_out",
        "_paused",
        "_progress_at",
        "_secure",
        "_stalled_at",
        "_transport",
        "_turn_planned",
        "address",
        "conversation",
        "opened_at",
        "transport_name",
    )

    def __init__(self, listener: Listener, transport_name: str) -> None:
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] | None = None
        self._at_end = False  # no more bytes will come
        self._lost = False  # the transport is gone
        self._paused = False  # reading is
        self._held = False  # no more packets are to be taken
        self._stalled_at: float | None = None  # since when the client does not read
        self._turn_planned = False
        self._secure = False  # TLS has no half-closed state
        self._ended_at = 0.0
        self.transport_name = transport_name
        self.address = ""
        self.opened_at = self._progress_at = 0.0
        self.conversation: Conversation
        self._decoder: StreamDecoder

    # The transport speaks.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the conversation, or one that refuses, or nothing at all when even those are too many."""
        self._transport = cast("asyncio.Transport", transport)
        self.address = peer_address(transport)
        now = self._listener.monotonic()
        self.opened_at = self._progress_at = now
        refuse = self._listener.entered(self)
        if refuse == "abort":
            self._lost = True
            self._transport.abort()
            return
        limits = self._listener.limits
        self._transport.set_write_buffer_limits(high=limits.packet_bytes)
        _watch_for_dead_peers(transport.get_extra_info("socket"))
        self._secure = transport.get_extra_info("sslcontext") is not None
        self._begin(refuse)
        self._listener.wake(self, now + limits.connect_seconds)

    def _begin(self, refuse: RefusalReason | None) -> None:
        self._decoder = StreamDecoder(self._listener.limits.connect_bytes)
        self.conversation = Conversation(self._listener.around, self, refuse=refuse)

    def data_received(self, data: bytes) -> None:
        """Take what the client has sent."""
        if not self._lost:
            self._feed(data)

    def _feed(self, data: bytes) -> None:
        if self.conversation.phase is Phase.ENDED:
            return
        self._decoder.feed(data)
        if not self._turn_planned:
            self._advance()

    def eof_received(self) -> bool:
        """Go on with what came before the end; a client that has only stopped sending still gets its answers."""
        self._at_end = True
        if self._lost:
            return False
        if not self._turn_planned:
            self._advance()
        return not self._secure and self.conversation.phase is not Phase.ENDED

    def connection_lost(self, exc: Exception | None) -> None:
        """Go on with what came before; nothing can be written any more."""
        del exc
        self._listener.left(self)
        aborted = self._lost
        self._lost = self._at_end = True
        self._transport = None
        if not aborted and not self._turn_planned:
            self._advance()

    def pause_writing(self) -> None:
        """Read no more from a client that does not read, and remember since when."""
        now = self._listener.monotonic()
        self._stalled_at = now
        self._listener.wake(self, now + self._listener.limits.stall_seconds)
        self._pace()

    def resume_writing(self) -> None:
        """Read on."""
        self._stalled_at = None
        if not self._turn_planned:
            self._advance()

    # The conversation speaks: a Wire.

    def write(self, data: bytes) -> None:
        """Collect what is written in one turn of the loop into one write."""
        if self._lost:
            return
        if self._out is None:
            self._out = [data]
            self._listener.loop.call_soon(self._write_out)
        else:
            self._out.append(data)

    def congested(self) -> bool:
        """Say whether the client is behind in reading."""
        return self._stalled_at is not None

    def authenticate(self, connect: Connect) -> None:
        """Ask the application in a task of the listener's."""
        shown = self._transport.get_extra_info("peercert") if self._transport is not None else None
        self._listener.authenticate(self, connect, certificate_of(shown))

    def decide(self, decision: Decision) -> None:
        """Ask the application in a task of the listener's."""
        self._listener.decide(self, decision)

    def close(self) -> None:
        """Send what is written, then close.

        A socket that is closed over unread bytes is reset, and the client would never read why; so writing ends first,
        and the rest of what it sends is thrown away for a moment.
        """
        self._write_out()
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._ended_at = self._listener.monotonic()
        self._listener.wake(self, self._ended_at + _LINGER_SECONDS)
        if self._at_end or not transport.can_write_eof():
            transport.close()
            return
        try:
            transport.write_eof()
        except OSError:  # the peer is gone, and the transport has not noticed yet
            transport.abort()
        self._pace()

    # Time.

    def due(self, now: float) -> None:
        """Close a connection whose time is up, else have the wheel look again when it may be."""
        if self._lost:
            return
        conversation = self.conversation
        at, reason = self._deadline(now)
        if at is None:
            return
        if now < at:
            self._listener.wake(self, at)
        elif conversation.phase is Phase.ENDED:
            self.abort()
        else:
            conversation.end(reason, Reason.KEEP_ALIVE_TIMEOUT if reason == "keep_alive" else None)
            if reason == "slow":
                self.abort()

    def _deadline(self, now: float) -> tuple[float | None, EndReason]:
        limits, phase = self._listener.limits, self.conversation.phase
        if phase is Phase.ENDED:
            return self._ended_at + _LINGER_SECONDS, "closed"
        if phase is Phase.NEW:
            return self.opened_at + limits.connect_seconds, "closed"
        if self._stalled_at is not None:
            return self._stalled_at + limits.stall_seconds, "slow"
        terms = self.conversation.terms
        if terms is None or terms.keep_alive == 0:
            return None, "keep_alive"
        if self._paused or self.conversation.blocked():
            self._progress_at = now  # it is this side that does not read
        return self._progress_at + terms.keep_alive * _KEEP_ALIVE_FACTOR, "keep_alive"

    def hold(self) -> None:
        """Read no more: the listener stops."""
        self._held = True
        self._pace()

    def stop(self) -> None:
        """End the connection because the listener stops: no will, since nobody is left to read it."""
        if not self._lost:
            self.conversation.end("stopping", Reason.SERVER_SHUTTING_DOWN, will=False)
            if self._transport is not None:
                self._transport.close()

    # In between.

    def settled(self, decision: Decision, *, stopping: bool = False) -> None:
        """Hand on what the application has decided, and read on where that was waited for."""
        self.conversation.settle(decision, stopping=stopping)
        waiting = self._paused or self._at_end or self._decoder.buffered()
        if waiting and not self._turn_planned:
            self._advance()

    def authenticated(self) -> None:
        """Read on after CONNECT; from now on packets may be larger, and the keep-alive counts."""
        now = self._progress_at = self._listener.monotonic()
        self._listener.answered(self)
        self._decoder.limit = self._listener.limits.packet_bytes
        self.due(now)
        if not self._turn_planned:
            self._advance()

    def _advance(self) -> None:
        """Hand the conversation what has come, as far as it takes it."""
        conversation, decoder = self.conversation, self._decoder
        taken = 0
        try:
            while self._may_take():
                if taken >= _PACKETS_A_TURN:
                    self._turn_planned = True
                    self._listener.loop.call_soon(self._next_turn)
                    break
                packet = decoder.next()
                if packet is None:
                    if self._at_end and not self._undecoded():
                        conversation.end_of_stream()
                    break
                taken += len(packet.filters) if isinstance(packet, Subscribe | Unsubscribe) else 1
                conversation.receive(packet)
        except PacketError as error:
            conversation.malformed(error)
        if taken:
            self._progress_at = self._listener.monotonic()
        self._pace()

    def _undecoded(self) -> bool:
        return False

    def _may_take(self) -> bool:
        if self._held or self.conversation.blocked():
            return False
        return self._at_end or not self.congested()

    def _next_turn(self) -> None:
        self._turn_planned = False
        self._advance()

    def _pace(self) -> None:
        """Read only while what is read can be handed on."""
        wanted = self._held or self._turn_planned or self._stalled_at is not None or self._held_up()
        if wanted is self._paused or self._transport is None or self._at_end or self._transport.is_closing():
            return
        self._paused = wanted
        if wanted:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _held_up(self) -> bool:
        # While CONNECT is being answered a little more may come, so that a client that hangs up is noticed.
        conversation = self.conversation
        if conversation.phase is Phase.AUTHENTICATING:
            return self._decoder.buffered() > self._listener.limits.packet_bytes
        return conversation.phase is not Phase.ENDED and conversation.blocked()

    def _write_out(self) -> None:
        out, self._out = self._out, None
        if out is None or self._transport is None or self._transport.is_closing():
            return
        self._transport.write(self._wrap(out[0] if len(out) == 1 else b"".join(out)))
        if self._transport.get_write_buffer_size() > self._listener.limits.unsent_bytes:
            self.conversation.end("slow", None)
            self.abort()

    def _wrap(self, data: bytes) -> bytes:
        return data

    def abort(self) -> None:
        """Close at once; what is written may be lost."""
        if self._transport is not None:
            self._transport.abort()


def peer_address(transport: asyncio.BaseTransport) -> str:
    """Return the peer's numeric IP address."""
    peer = transport.get_extra_info("peername")
    # Two ends of a local socket pair have no address.
    return str(peer[0]) if isinstance(peer, tuple) else ""


def _watch_for_dead_peers(sock: socket.socket | None) -> None:
    """Have the kernel find out about peers that are gone: MQTT 3.1.1 clients may ask for no keep-alive."""
    if sock is not None and sock.family in {socket.AF_INET, socket.AF_INET6}:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _TCP_IDLE_SECONDS)
