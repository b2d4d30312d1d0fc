"""A message from the broker, and the quick way to read nearly all of them off the stream."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

_PUBLISH: Final = 0x30
_LEAST_PUBLISH: Final = 5


class Heard(Struct, frozen=True):
    """A message from the broker. `mid` is its packet id on this connection, 0 at QoS 0."""

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


def published(buffer: bytearray, version: int, start: int = 0) -> tuple[Heard, int] | None:
    """Read the PUBLISH at `start` of the stream, and where it ends, if it is whole, at QoS 0 or 1, without properties.

    That is nearly all that comes, and paho takes several times as long over it. Whatever else is there is paho's.
    """
    if len(buffer) - start < _LEAST_PUBLISH or buffer[start] & 0xF4 != _PUBLISH:
        return None
    head = buffer[start]
    size, at = buffer[start + 1], start + 2
    if size & 0x80:
        size, at = (size & 0x7F) | buffer[at] << 7, at + 1
        if buffer[at - 1] & 0x80:
            # From 16 KiB on.
            return None
    end = at + size
    name = at + 2
    rest = name + (buffer[at] << 8 | buffer[at + 1])
    if end > len(buffer) or rest == name:
        return None
    body, mid = rest, 0
    if head & 0x02:
        mid, body = int.from_bytes(buffer[rest : rest + 2], "big"), rest + 2
        if not mid:
            return None
    if version == 5:
        body += 1
        if body > end or buffer[body - 1]:
            return None
    if body > end:
        return None
    try:
        topic = buffer[name:rest].decode()
    except UnicodeDecodeError:
        return None
    return Heard(topic, bytes(buffer[body:end]), mid, bool(head & 1), bool(head & 8)), end
