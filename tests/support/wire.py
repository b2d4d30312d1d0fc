"""What a client sees of an answer, byte by byte, at each door: plain sockets and the standards, no client library."""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from tests.support.plain_mqtt import CONNACK, CONNECT, PUBACK, PUBLISH, SUBACK, SUBSCRIBE, packet, read_packet, text

PINGREQ, PINGRESP = 0xC0, 0xD0
SECONDS = 20.0
CORRELATION = b"17"
Write = Callable[[bytes], None]


@dataclass
class Tape:
    """A stream that is read exactly, with everything that was read since the last `cut`."""

    reader: asyncio.StreamReader
    heard: bytearray = field(default_factory=bytearray)

    async def readexactly(self, count: int) -> bytes:
        data = await asyncio.wait_for(self.reader.readexactly(count), SECONDS)
        self.heard += data
        return data

    def cut(self) -> bytes:
        cut, self.heard = bytes(self.heard), bytearray()
        return cut


@dataclass
class Messages:
    """A WebSocket: `readexactly` gives the bytes of its messages, the tape below holds the frames."""

    tape: Tape
    writer: asyncio.StreamWriter
    opcode: int
    unread: bytearray = field(default_factory=bytearray)

    async def message(self) -> bytes:
        """Read one message of a single frame, or a close (RFC 6455, 5.2)."""
        first, length = await self.tape.readexactly(2)
        assert first in {0x80 | self.opcode, 0x88}, f"frame {first:#x}"
        if length == 126:
            (length,) = struct.unpack("!H", await self.tape.readexactly(2))
        return await self.tape.readexactly(length)

    async def readexactly(self, count: int) -> bytes:
        while len(self.unread) < count:
            self.unread += await self.message()
        data, self.unread = bytes(self.unread[:count]), self.unread[count:]
        return data

    def cut(self) -> bytes:
        return self.tape.cut()

    def write(self, data: bytes) -> None:
        mask = os.urandom(4)
        head = bytes([0x80 | self.opcode, 0x80 | (min(126, len(data)))])
        head += struct.pack("!H", len(data)) if len(data) >= 126 else b""
        self.writer.write(head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(data)))


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[Tape, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Tape(reader), writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def _upgraded(tape: Tape, writer: asyncio.StreamWriter, path: str, opcode: int, *headers: str) -> Messages:
    lines = [
        f"GET {path} HTTP/1.1",
        "Host: localhost",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version: 13",
        *headers,
        "",
        "",
    ]
    writer.write("\r\n".join(lines).encode())
    while not tape.heard.endswith(b"\r\n\r\n"):
        await tape.readexactly(1)
    assert tape.cut().startswith(b"HTTP/1.1 101 ")
    return Messages(tape, writer, opcode)


async def http(port: int, method: str, path: str, *headers: str, body: bytes = b"") -> bytes:
    """Make one request on a connection of its own; give all that comes back, head and body."""
    async with connected(port) as (tape, writer):
        length = (f"Content-Length: {len(body)}",) if body else ()
        head = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", *headers, *length, "", ""]
        writer.write("\r\n".join(head).encode() + body)
        return await asyncio.wait_for(tape.reader.read(), SECONDS)


async def socket_message(port: int, token: str, message: bytes) -> bytes:
    """Send one message to `/api/v1/ws`; give the frame that comes back."""
    async with connected(port) as (tape, writer):
        web = await _upgraded(tape, writer, "/api/v1/ws", 1, f"Authorization: Bearer {token}")
        await web.message()  # ready
        web.cut()
        web.write(message)
        await web.message()
        return web.cut()


async def mqtt(
    port: int, user: str, password: str, topic: str, payload: bytes, *, version: int = 4, web: bool = False
) -> bytes:
    """Subscribe to the own replies, publish at QoS 1; give all bytes from the PUBLISH to its PUBACK and a PINGRESP.

    Version 5 asks for its reply on a topic of its own, with correlation data.
    """
    async with connected(port) as (tape, writer):
        stream: Tape | Messages = tape
        write: Write = writer.write
        if web:
            stream = await _upgraded(tape, writer, "/mqtt", 2, "Sec-WebSocket-Protocol: mqtt")
            write = stream.write
        await _subscribed(stream, write, (user, password), "replies/#", version)
        write(_publish(topic, payload, version, "replies/own"))
        kinds = [(await read_packet(stream))[0] & 0xF0]
        while kinds[-1] != PUBACK:
            kinds.append((await read_packet(stream))[0] & 0xF0)
        write(packet(PINGREQ, b""))
        assert (await read_packet(stream))[0] == PINGRESP
        assert kinds == [PUBLISH, PUBACK]
        return stream.cut()


async def broker(port: int, device: str, topic: str, payload: bytes, *, version: int = 4) -> bytes:
    """Publish for a device at a broker; give the PUBLISH that the broker brings from the gateway behind it."""
    async with connected(port) as (tape, writer):
        await _subscribed(tape, writer.write, ("", ""), f"d/{device}/replies/#", version)
        writer.write(_publish(f"d/{device}/{topic}", payload, version, f"d/{device}/replies/own"))
        found: dict[int, bytes] = {}
        while not {PUBACK, PUBLISH} <= found.keys():
            kind, _ = await read_packet(tape)
            found[kind & 0xF0] = tape.cut()
        return found[PUBLISH]


async def _subscribed(stream: Tape | Messages, write: Write, who: tuple[str, str], replies: str, v: int) -> None:
    user, password = who
    none = b"\x00" if v == 5 else b""
    flags = (0x80 if user else 0) | (0x40 if password else 0) | 0x02
    body = text("MQTT") + bytes([v, flags]) + struct.pack("!H", 60) + none + text("alike" if user else "")
    write(packet(CONNECT, body + (text(user) if user else b"") + (text(password) if password else b"")))
    kind, answer = await read_packet(stream)
    assert (kind, answer[1]) == (CONNACK, 0)
    write(packet(SUBSCRIBE, struct.pack("!H", 1) + none + text(replies) + b"\x01"))
    kind, answer = await read_packet(stream)
    assert (kind, answer[-1]) == (SUBACK, 1)
    stream.cut()


def _publish(topic: str, payload: bytes, version: int, reply_to: str) -> bytes:
    properties = b""
    if version == 5:
        told = b"\x08" + text(reply_to) + b"\x09" + struct.pack("!H", len(CORRELATION)) + CORRELATION
        properties = bytes([len(told)]) + told
    return packet(PUBLISH | 0b0010, text(topic) + struct.pack("!H", 7) + properties + payload)
