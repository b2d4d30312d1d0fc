"""A small MQTT 3.1.1 client over a plain socket, written from the standard and sharing no code with the listener."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

CONNECT, CONNACK, PUBLISH, PUBACK, SUBSCRIBE, SUBACK, DISCONNECT = 0x10, 0x20, 0x30, 0x40, 0x82, 0x90, 0xE0


class Exact(Protocol):
    """What packets are read from."""

    async def readexactly(self, count: int, /) -> bytes: ...


class Refused(Exception):
    """The server refused the connection with this code."""


def text(value: str) -> bytes:
    """Write a string as the standard does (section 1.5.3)."""
    data = value.encode()
    return struct.pack("!H", len(data)) + data


def packet(kind: int, body: bytes) -> bytes:
    """Put the fixed header before a body (section 2.2)."""
    length, size = bytearray(), len(body)
    while True:
        size, digit = divmod(size, 128)
        length.append(digit | (0x80 if size else 0))
        if not size:
            return bytes([kind]) + bytes(length) + body


async def read_packet(reader: Exact) -> tuple[int, bytes]:
    """Read one packet; raises IncompleteReadError at the end of the stream."""
    kind = (await reader.readexactly(1))[0]
    size, shift = 0, 0
    while True:
        digit = (await reader.readexactly(1))[0]
        size |= (digit & 0x7F) << shift
        shift += 7
        if not digit & 0x80:
            return kind, await reader.readexactly(size)


@dataclass
class PlainClient:
    """One connection. `heard` is called with every message that comes in."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    heard: Callable[[str, bytes], None]
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    _acknowledged: dict[int, asyncio.Future[bool]] = field(default_factory=dict)
    _number: int = 0
    _reading: asyncio.Task[None] | None = None

    @classmethod
    async def connect(
        cls,
        port: int,
        user: str,
        password: str,
        *,
        client_id: str,
        heard: Callable[[str, bytes], None],
        replies: str = "replies/#",
        will: tuple[str, bytes] | None = None,
        clean: bool = True,
    ) -> PlainClient:
        """Connect, with a retained will at QoS 1 if one is given, and subscribe to the own replies."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            flags = 0b1100_0010 if will is None else 0b1110_1110
            body = (
                text("MQTT") + bytes([4, flags if clean else flags & ~0b10]) + struct.pack("!H", 60) + text(client_id)
            )
            if will is not None:
                body += text(will[0]) + struct.pack("!H", len(will[1])) + will[1]
            body += text(user) + text(password)
            writer.write(packet(CONNECT, body))
            kind, answer = await read_packet(reader)
            if kind != CONNACK or answer[1]:
                raise Refused(answer[1])
            writer.write(packet(SUBSCRIBE, struct.pack("!H", 1) + text(replies) + b"\x01"))
            # What waited in the session may come first.
            waited = []
            while (found := await read_packet(reader))[0] & 0xF0 == PUBLISH:
                waited.append(found)
            kind, answer = found
            if kind != SUBACK or answer[2] > 2:
                raise Refused(answer[2])
        except BaseException:
            writer.close()
            raise
        client = cls(reader, writer, heard)
        for kind, body in waited:
            client._take(kind, body)
        client._number = 1
        client._reading = asyncio.create_task(client._read(), name=f"reading {client_id}")
        return client

    async def _read(self) -> None:
        try:
            while True:
                kind, body = await read_packet(self.reader)
                if kind & 0xF0 == PUBLISH:
                    self._take(kind, body)
                elif kind == PUBACK:
                    future = self._acknowledged.pop(struct.unpack("!H", body[:2])[0], None)
                    if future is not None and not future.done():
                        future.set_result(True)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.lost.set()
            self.writer.close()
            for future in self._acknowledged.values():
                if not future.done():
                    future.set_result(False)

    def _take(self, kind: int, body: bytes) -> None:
        (size,) = struct.unpack("!H", body[:2])
        topic, rest = body[2 : 2 + size].decode(), body[2 + size :]
        if kind & 0b0110:
            self.writer.write(packet(PUBACK, rest[:2]))
            rest = rest[2:]
        self.heard(topic, rest)

    async def publish(self, topic: str, payload: bytes) -> bool:
        """Publish at QoS 1; true when the PUBACK came, false when the connection ended first."""
        if self.lost.is_set():
            return False
        self._number = self._number % 65_535 + 1
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._acknowledged[self._number] = future
        with contextlib.suppress(ConnectionError):
            self.writer.write(packet(PUBLISH | 0b0010, text(topic) + struct.pack("!H", self._number) + payload))
        return await future

    async def close(self) -> None:
        """Leave in order."""
        with contextlib.suppress(ConnectionError):
            self.writer.write(packet(DISCONNECT, b""))
            await self.writer.drain()
        self.writer.close()
        if self._reading is not None:
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading
