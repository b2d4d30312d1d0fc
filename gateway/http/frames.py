"""uvicorn's WebSockets, which take turns: what one of them sends keeps the others waiting for milliseconds at most.

uvicorn reads whatever has come in one go, 256 KiB of it, and answers each ping, without counting: one socket that
nobody has let in would keep the event loop for seconds at a time.
"""

from __future__ import annotations

from typing import Any, Final

from uvicorn.protocols.websockets.wsproto_impl import WSProtocol
from wsproto import events

from devices.model import Rate

# About 600 of the smallest frames.
SLICE_BYTES: Final = 4_096
# Of frames that carry no whole message: pings, pongs and pieces. As the MQTT listener has it for what is no PUBLISH.
FRAMES: Final = Rate(per_second=20.0, burst=600)
POLICY: Final = 1008


class Socket(WSProtocol):
    """A WebSocket that is read a slice a turn, and closed for a flood of frames that carry no message."""

    def __init__(self, *args: Any, **more: Any) -> None:  # noqa: ANN401 - as uvicorn makes it
        super().__init__(*args, **more)
        self._waiting = bytearray()
        self._began = False
        self._frames = float(FRAMES.burst)
        self._counted_at = self.loop.time()

    def data_received(self, data: bytes) -> None:
        if not self._began:
            # The request, which the HTTP side has read and bounded: wsproto wants it whole.
            self._began = True
            super().data_received(data)
            return
        if self._waiting:
            self._waiting += data
            return
        super().data_received(data[:SLICE_BYTES])
        if len(data) > SLICE_BYTES:
            self._waiting += data[SLICE_BYTES:]
            self.loop.call_soon(self._go_on)
            self.transport.pause_reading()

    def _go_on(self) -> None:
        part = bytes(self._waiting[:SLICE_BYTES])
        del self._waiting[:SLICE_BYTES]
        if self.disconnected or self.transport.is_closing():
            self._waiting.clear()
            return
        super().data_received(part)
        if self._waiting:
            self.loop.call_soon(self._go_on)
            self.transport.pause_reading()
        elif not self.read_paused:
            self.transport.resume_reading()

    def handle_ping(self, event: events.Ping) -> None:
        if self._is_within_rate():
            super().handle_ping(event)

    def handle_pong(self, event: events.Pong) -> None:
        if self._is_within_rate():
            super().handle_pong(event)

    def handle_message(self, event: events.TextMessage | events.BytesMessage) -> None:
        if event.message_finished or self._is_within_rate():
            super().handle_message(event)

    def _is_within_rate(self) -> bool:
        now = self.loop.time()
        self._frames = min(float(FRAMES.burst), self._frames + (now - self._counted_at) * FRAMES.per_second) - 1.0
        self._counted_at = now
        if self._frames >= 0.0:
            return True
        if not self.close_sent:
            self.close_sent = True
            self.queue.put_nowait({"type": "websocket.disconnect", "code": POLICY, "reason": "too many frames"})
            self.transport.write(self.conn.send(events.CloseConnection(code=POLICY, reason="too many frames")))
            self.transport.close()
        return False
