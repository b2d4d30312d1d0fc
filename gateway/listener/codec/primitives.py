"""The data representations of MQTT (section 1.5): integers, UTF-8 strings, binary data."""

from __future__ import annotations

from typing import Final

from gateway.listener.codec.reasons import malformed

MAX_VARIABLE_INTEGER: Final = 268_435_455
MAX_FIELD_BYTES: Final = 65_535
_VARIABLE_INTEGER_BYTES: Final = 4


class Reader:
    """A cursor over one packet's body; every method raises `PacketError` when the body is too short."""

    __slots__ = ("_data", "_end", "at")

    def __init__(self, data: bytes, start: int = 0, end: int | None = None) -> None:
        self._data = data
        self.at = start
        self._end = len(data) if end is None else end

    def left(self) -> int:
        """Bytes that have not been read."""
        return self._end - self.at

    def byte(self) -> int:
        """Read one byte."""
        at = self.at
        if at >= self._end:
            raise malformed("the packet is shorter than its fields")
        self.at = at + 1
        return self._data[at]

    def u16(self) -> int:
        """Read a two-byte integer, big-endian (1.5.2)."""
        at = self.at
        if self._end - at < 2:
            raise malformed("the packet is shorter than its fields")
        self.at = at + 2
        return self._data[at] << 8 | self._data[at + 1]

    def u32(self) -> int:
        """Read a four-byte integer, big-endian (1.5.3)."""
        return int.from_bytes(self.take(4), "big")

    def variable_integer(self) -> int:
        """Read a variable byte integer: at most four bytes, in its shortest form (1.5.5)."""
        value = 0
        for position in range(_VARIABLE_INTEGER_BYTES):
            byte = self.byte()
            value |= (byte & 0x7F) << (7 * position)
            if byte < 0x80:
                if byte == 0 and position:
                    raise malformed("a variable byte integer is longer than it needs to be (1.5.5)")
                return value
        raise malformed("a variable byte integer has more than four bytes (1.5.5)")

    def binary(self) -> bytes:
        """Read binary data with a two-byte length (1.5.6)."""
        return self.take(self.u16())

    def text(self) -> str:
        """Read a UTF-8 string (1.5.4): no surrogates, no NUL."""
        raw = self.take(self.u16())
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            # Not chained: that exception holds the bytes.
            raise malformed("a string is not UTF-8 (1.5.4)") from None
        if "\0" in text:
            raise malformed("a string holds U+0000 (1.5.4)")
        return text

    def take(self, count: int) -> bytes:
        """Read `count` bytes."""
        at = self.at
        if count > self._end - at:
            raise malformed("the packet is shorter than its fields")
        self.at = at + count
        return self._data[at : at + count]

    def rest(self) -> bytes:
        """Read all that is left."""
        return self.take(self._end - self.at)

    def part(self, count: int) -> Reader:
        """Return a reader of the next `count` bytes, and step over them."""
        if count > self._end - self.at:
            raise malformed("the packet is shorter than its fields")
        inner = Reader(self._data, self.at, self.at + count)
        self.at += count
        return inner

    def finish(self) -> None:
        """Check that nothing is left."""
        if self.at != self._end:
            raise malformed("the packet is longer than its fields")


def encode_u16(value: int) -> bytes:
    """Write a two-byte integer (1.5.2)."""
    return value.to_bytes(2, "big")


def encode_u32(value: int) -> bytes:
    """Write a four-byte integer (1.5.3)."""
    return value.to_bytes(4, "big")


def encode_variable_integer(value: int) -> bytes:
    """Write a variable byte integer in its shortest form (1.5.5). Raises ValueError over 268,435,455."""
    if value < 0x80:
        return bytes((value,))
    if value > MAX_VARIABLE_INTEGER:
        raise ValueError("a variable byte integer ends at 268,435,455")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_binary(value: bytes) -> bytes:
    """Write binary data (1.5.6). Raises ValueError over 65,535 bytes."""
    if len(value) > MAX_FIELD_BYTES:
        raise ValueError("a field of a packet ends at 65,535 bytes")
    return len(value).to_bytes(2, "big") + value


def encode_text(value: str) -> bytes:
    """Write a UTF-8 string (1.5.4). Raises ValueError over 65,535 bytes."""
    return encode_binary(value.encode())
