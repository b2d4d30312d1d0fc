"""A server that speaks as much MQTT as the bridge needs, and goes wrong as it is told."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Self

from tests.support.plain_mqtt import PUBACK, PUBLISH, SUBACK, SUBSCRIBE, packet, read_packet, text

CONNACK, PINGREQ, PINGRESP, DISCONNECT = 0x20, 0xC0, 0xD0, 0xE0
HANG_UP: Literal["hang up"] = "hang up"
UNSUPPORTED = {5: 132, 4: 1}
Answer = bytes | Literal["hang up"] | None


@dataclass
class StubBroker:
    """It keeps a session for everybody, lets everybody in and gives back what the bridge says to itself.

    `connecting(n, level)` may answer the `n`-th CONNECT otherwise (`HANG_UP`, or bytes), and `subscribing(n)` its
    SUBSCRIBE. `held` comes behind the next SUBACK: what the session kept. Nothing gets through on the connection that
    is `silent`.
    """

    connecting: Callable[[int, int], Answer] = lambda _n, _level: None
    subscribing: Callable[[int], Answer] = lambda _n: None
    silent: int = 0
    held: list[bytes] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)
    published: list[str] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)
    _writer: asyncio.StreamWriter | None = None
    _step: asyncio.Event = field(default_factory=asyncio.Event)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """End the present connection."""
        if self._writer is not None:
            self._writer.close()

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait until something is so; looked at after each packet."""
        async with asyncio.timeout(20):
            while not reached():
                self._step.clear()
                await self._step.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            _, body = await read_packet(reader)
            self.levels.append(body[6])
            self._writer, number = writer, len(self.levels)
            five = body[6] == 5
            if self._says(writer, self.connecting(number, body[6]), b"\x01\x00" + b"\0" * five, CONNACK):
                while True:
                    kind, body = await read_packet(reader)
                    if self.silent != number:
                        self._packet(writer, kind, body, five=five)
                    self._step.set()
        self._step.set()
        writer.close()

    def _says(self, writer: asyncio.StreamWriter, answer: Answer, usual: bytes, kind: int) -> bool:
        if answer == HANG_UP:
            return False
        writer.write(packet(kind, usual) if answer is None else answer)
        return True

    def _packet(self, writer: asyncio.StreamWriter, kind: int, body: bytes, *, five: bool) -> None:
        if kind == PINGREQ:
            writer.write(packet(PINGRESP, b""))
        elif kind == PUBACK:
            self.acknowledged.append(int.from_bytes(body[:2], "big"))
        elif kind == SUBSCRIBE:
            usual = body[:2] + b"\0" * five + b"\x01" * _filters(body, five=five)
            if not self._says(writer, self.subscribing(len(self.levels)), usual, SUBACK):
                writer.close()
                return
            held, self.held = self.held, []
            writer.write(b"".join(held))
        elif kind & 0xF0 == PUBLISH:
            (size,) = struct.unpack("!H", body[:2])
            topic = body[2 : 2 + size].decode()
            self.published.append(topic)
            if kind & 6:
                writer.write(packet(PUBACK, body[2 + size : 4 + size]))
            if "/-/" in topic or "/marker/" in topic:
                writer.write(packet(PUBLISH, text(topic) + b"\0" * five + b"{}"))


def _filters(body: bytes, *, five: bool) -> int:
    """Count the filters of a SUBSCRIBE whose properties are empty."""
    at, count = 2 + five, 0
    while at < len(body):
        at, count = at + 3 + int.from_bytes(body[at : at + 2], "big"), count + 1
    return count


def message(topic: str, mid: int, *, five: bool = True, dup: bool = False) -> bytes:
    """Write a PUBLISH as a broker sends it."""
    return packet(PUBLISH | 2 | (8 if dup else 0), text(topic) + struct.pack("!H", mid) + b"\0" * five + b"{}")
