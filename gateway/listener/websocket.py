"""MQTT over WebSocket (section 6): the path `/mqtt`, the subprotocol `mqtt`, binary messages as a stream of bytes."""

from __future__ import annotations

from typing import Final

from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Message,
    Ping,
    RejectConnection,
    Request,
    TextMessage,
)
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import ProtocolError, RemoteProtocolError

from gateway.listener.connection import Connection
from gateway.listener.conversation import Phase
from gateway.listener.port import RefusalReason

PATH: Final = "/mqtt"
SUBPROTOCOL: Final = "mqtt"
_BYTES_A_TURN: Final = 8_192
_BAD_REQUEST: Final = 400
_NOT_FOUND: Final = 404


class WebSocketConnection(Connection):
    """A connection whose bytes travel in WebSocket messages."""

    __slots__ = ("_unread", "_web")

    def _begin(self, refuse: RefusalReason | None) -> None:
        super()._begin(refuse)
        # No extension is offered: compressed messages could grow without bound.
        self._unread = b""
        self._web = WSConnection(ConnectionType.SERVER)

    def data_received(self, data: bytes) -> None:
        """Take HTTP first, then frames."""
        if self._lost or self.conversation.phase is Phase.ENDED:
            return
        self._unread += data
        if not self._turn_planned:
            self._take_slice()

    def _take_slice(self) -> None:
        """Read a few frames: a segment may hold tens of thousands, and others want the loop, too."""
        data, self._unread = self._unread[:_BYTES_A_TURN], self._unread[_BYTES_A_TURN:]
        try:
            self._web.receive_data(data)
            for event in self._web.events():
                self._on_event(event)
        except RemoteProtocolError:
            self._refuse_web(_BAD_REQUEST)
        if self._unread and not self._turn_planned:
            self._turn_planned = True
            self._listener.loop.call_soon(self._next_turn)
            self._pace()

    def _next_turn(self) -> None:
        self._turn_planned = False
        if self.conversation.phase is Phase.ENDED:
            self._unread = b""  # nobody hears it any more
        if self._unread:
            self._take_slice()
        if not self._turn_planned:
            self._advance()

    def _undecoded(self) -> bool:
        return bool(self._unread)

    def _on_event(self, event: Event) -> None:
        match event:
            case Request():
                self._on_request(event)
            case BytesMessage():
                self._feed(bytes(event.data))
            case TextMessage() | Message():
                # 6.0: MQTT travels in binary messages only.
                self._send_event(CloseConnection(code=CloseReason.UNSUPPORTED_DATA))
                self.conversation.end("malformed", None)
            case Ping():
                self._send_event(event.response())
            case CloseConnection():
                self._at_end = True
                if not self._turn_planned:
                    self._advance()
            case _:
                pass

    def _on_request(self, request: Request) -> None:
        if request.target.partition("?")[0] != PATH:
            self._refuse_web(_NOT_FOUND)
        elif SUBPROTOCOL not in request.subprotocols:
            self._refuse_web(_BAD_REQUEST)
        else:
            self._send_event(AcceptConnection(subprotocol=SUBPROTOCOL))

    def _refuse_web(self, status: int) -> None:
        if self._web.state is ConnectionState.CONNECTING:
            self._send_event(RejectConnection(status_code=status))
        else:
            self._send_event(CloseConnection(code=CloseReason.PROTOCOL_ERROR))
        self.conversation.end("malformed", None)

    def _send_event(self, event: Event) -> None:
        if self._transport is None or self._transport.is_closing():
            # To a client that is gone asyncio writes a line to the log for each attempt.
            return
        try:
            self._transport.write(self._web.send(event))
        except ProtocolError:
            # The client has closed, or never opened: there is nobody to tell.
            return

    def _wrap(self, data: bytes) -> bytes:
        if self._web.state is not ConnectionState.OPEN:
            return b""
        return self._web.send(BytesMessage(data=data))

    def close(self) -> None:
        """Close the WebSocket, or answer its close (RFC 6455, 5.5.1), then the transport."""
        self._write_out()
        if self._web.state in {ConnectionState.OPEN, ConnectionState.REMOTE_CLOSING}:
            self._send_event(CloseConnection(code=CloseReason.NORMAL_CLOSURE))
        super().close()
