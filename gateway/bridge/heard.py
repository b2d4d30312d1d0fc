"""A message from the broker, and how it is read off the stream: paho takes several times as long over it."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from gateway.listener.codec.packets import PUBLISH
from gateway.listener.codec.primitives import Reader
from gateway.listener.codec.properties import decode_properties
from gateway.listener.codec.reasons import PacketError

_PUBLISH: Final = PUBLISH << 4
_LEAST_PUBLISH: Final = 5
_MOST_SIZE_BYTES: Final = 4


class Heard(Struct, frozen=True):
    """A message from the broker. `mid` is its packet id on this connection, 0 at QoS 0.

    `topic` is empty for one that could not be read.
    """

    topic: str
    payload: bytes
    mid: int
    retain: bool
    dup: bool
    response_topic: str | None = None
    correlation_data: bytes | None = None
    user_properties: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        """Show sizes only: a payload may not reach a log."""
        return f"Heard(topic={self.topic!r}, bytes={len(self.payload)}, mid={self.mid})"


# Of a PUBLISH that is not whole yet.
MORE: Final = (None, 0)


def published(buffer: bytearray, version: int, start: int = 0) -> tuple[Heard | None, int] | None:
    """Read the PUBLISH at `start` of the stream, at QoS 0 or 1, and where it ends; `MORE` while it is not whole.

    None for any other packet, and for one without a topic or a packet id: that is paho's. One whose topic or properties
    cannot be read is told by an empty topic: it is acknowledged in its turn like the others. paho would end the
    connection over it, and the broker would send it again at the head of every later one.
    """
    if len(buffer) - start < _LEAST_PUBLISH or buffer[start] & 0xF4 != _PUBLISH:
        return MORE if start < len(buffer) and buffer[start] & 0xF4 == _PUBLISH else None
    head = buffer[start]
    size, at = buffer[start + 1], start + 2
    if size & 0x80:
        long = _long_size(buffer, start + 1)
        if long is None or not long[1]:
            return None if long is None else MORE
        size, at = long
    end = at + size
    if end > len(buffer):
        return MORE
    name = at + 2
    rest = name + (buffer[at] << 8 | buffer[at + 1]) if size >= 2 else name
    if rest == name:
        return None
    body, mid = rest, 0
    if head & 0x02:
        mid, body = int.from_bytes(buffer[rest : rest + 2], "big"), rest + 2
        if not mid:
            return None
    if version == 5:
        if body < end and buffer[body]:
            return _with_properties(buffer, head, mid, (name, rest, body, end)), end
        body += 1
    if body > end:
        return None
    try:
        topic = buffer[name:rest].decode()
    except UnicodeDecodeError:
        topic = ""
    return Heard(topic, bytes(buffer[body:end]), mid, bool(head & 1), bool(head & 8)), end


def _long_size(buffer: bytearray, at: int) -> tuple[int, int] | None:
    """Read a remaining length of several bytes and say where it ends: 0 while there are not all of them."""
    size = 0
    for position in range(_MOST_SIZE_BYTES):
        if at + position >= len(buffer):
            return 0, 0
        digit = buffer[at + position]
        size |= (digit & 0x7F) << 7 * position
        if digit < 0x80:
            return size, at + position + 1
    return None


def _with_properties(buffer: bytearray, head: int, mid: int, places: tuple[int, int, int, int]) -> Heard:
    """Read a message that has properties (MQTT 5, 3.3.2.3), by the rules of the gateway's own listener."""
    name, rest, body, end = places
    reader = Reader(bytes(buffer[body:end]))
    try:
        topic = buffer[name:rest].decode()
        properties = decode_properties(reader, PUBLISH)
    except (UnicodeDecodeError, PacketError):
        return Heard("", b"", mid, bool(head & 1), bool(head & 8))
    return Heard(
        topic,
        reader.rest(),
        mid,
        bool(head & 1),
        bool(head & 8),
        properties.response_topic,
        properties.correlation_data,
        properties.user or (),
    )
