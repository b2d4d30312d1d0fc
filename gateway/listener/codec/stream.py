"""A stream of bytes to packets, in bounded memory (section 2.1)."""

from __future__ import annotations

from gateway.listener.codec import packets as p
from gateway.listener.codec.decode import decode
from gateway.listener.codec.packets import Packet
from gateway.listener.codec.reasons import PacketError, Reason, malformed, violation


class StreamDecoder:
    """Cuts a byte stream into packets and parses them.

    `limit` bounds a whole packet: one that announces more is refused before its body arrives, so no more is held
    than what one `feed` brought plus `limit`. `version` 0 means that a CONNECT has to come first; the decoder then
    takes its version over. After a `PacketError` the stream is of no more use.
    """

    __slots__ = ("_at", "_buffer", "limit", "version")

    def __init__(self, limit: int, version: int = 0) -> None:
        self.limit = limit
        self.version = version
        self._buffer: bytes | bytearray = b""
        self._at = 0

    def feed(self, data: bytes) -> None:
        """Add what the transport has read."""
        if self._at == len(self._buffer):
            # The common case, whole packets in one segment: nothing is copied.
            self._buffer, self._at = data, 0
        elif isinstance(self._buffer, bytearray) and self._at == 0:
            self._buffer += data
        else:
            # A packet cut in two: from here on the buffer grows in place, however small the pieces are.
            self._buffer = bytearray(memoryview(self._buffer)[self._at :])
            self._buffer += data
            self._at = 0

    def buffered(self) -> int:
        """Bytes that `next` has not consumed."""
        return len(self._buffer) - self._at

    def next(self) -> Packet | None:
        """Return the next packet, or None until more bytes come. Raises `PacketError`."""
        buffer, at = self._buffer, self._at
        end = len(buffer)
        if at == end:
            return None
        kind = buffer[at] >> 4
        if self.version == 0 and kind != p.CONNECT:
            raise violation("the first packet is not CONNECT (3.1)")
        length, start = self._remaining_length(at + 1, end)
        if length < 0:
            return None
        if start - at + length > self.limit:
            raise PacketError(Reason.PACKET_TOO_LARGE, "the packet is larger than this server takes (3.2.2.3.6)")
        if start + length > end:
            return None
        packet = decode(buffer[at], bytes(buffer[start : start + length]), self.version)
        self._at = start + length
        if self._at == end:
            self._buffer, self._at = b"", 0
        if isinstance(packet, p.Connect):
            self.version = packet.version
        return packet

    def _remaining_length(self, at: int, end: int) -> tuple[int, int]:
        """Read the remaining length (2.1.4): its value, or -1 while it is cut off, and where the body starts."""
        value = 0
        for position in range(4):
            if at + position >= end:
                return -1, 0
            byte = self._buffer[at + position]
            value |= (byte & 0x7F) << (7 * position)
            if byte < 0x80:
                return value, at + position + 1
        raise malformed("the remaining length has more than four bytes (1.5.5)")
