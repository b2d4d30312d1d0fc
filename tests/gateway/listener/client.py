"""A client that says exactly what a test tells it to, packet by packet or byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Any, TypeVar

from gateway.listener.codec import MQTT_3_1_1, MQTT_5, NO_PROPERTIES, Packet, Properties, StreamDecoder, encode
from gateway.listener.codec import packets as p

PATIENCE_SECONDS = 10.0
Kind = TypeVar("Kind", bound=Packet)


class RawClient:
    """One TCP or TLS connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: int) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = StreamDecoder(1_000_000, version)
        self.version = version

    @classmethod
    async def open(
        cls, host: str, port: int, *, version: int = MQTT_3_1_1, tls: ssl.SSLContext | None = None
    ) -> RawClient:
        reader, writer = await asyncio.open_connection(
            host, port, ssl=tls, server_hostname="localhost" if tls else None
        )
        return cls(reader, writer, version)

    def send(self, *packets: Packet) -> None:
        """Write packets in one segment."""
        self._writer.write(b"".join(encode(packet, self.version) for packet in packets))

    def send_bytes(self, data: bytes) -> None:
        self._writer.write(data)

    def end(self) -> None:
        """Send the end of the stream, and go on reading."""
        self._writer.write_eof()

    def pause(self) -> None:
        """Read nothing more."""
        self._writer.transport.pause_reading()  # type: ignore[attr-defined]

    async def drain(self) -> None:
        await self._writer.drain()

    async def next(self) -> Packet | None:
        """Return the next packet, or None at the end of the stream."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (packet := self._decoder.next()) is None:
                try:
                    data = await self._reader.read(65_536)
                except OSError:
                    return None
                if not data:
                    return None
                self._decoder.feed(data)
            return packet

    async def expect(self, kind: type[Kind]) -> Kind:
        """Return the next packet, which must be of this kind."""
        packet = await self.next()
        assert isinstance(packet, kind), packet
        return packet

    async def rest(self) -> list[Packet]:
        """Return all that comes before the end of the stream."""
        packets: list[Packet] = []
        while (packet := await self.next()) is not None:
            packets.append(packet)
        return packets

    async def ping(self) -> None:
        """Have everything that was sent handled, and show that nothing came back."""
        self.send(p.PingReq())
        await self.expect(p.PingResp)

    async def connect(self, device: str = "door", client_id: str = "c1", **members: Any) -> p.ConnAck:
        self.send(connect(device, client_id, self.version, **members))
        return await self.expect(p.ConnAck)

    async def subscribe(self, *filters: p.Filter | str, properties: Properties = NO_PROPERTIES) -> tuple[int, ...]:
        wanted = tuple(p.Filter(one, 1) if isinstance(one, str) else one for one in filters)
        self.send(p.Subscribe(9, wanted, properties))
        return (await self.expect(p.SubAck)).reasons

    async def close(self) -> None:
        if self._writer.transport.get_write_buffer_size():
            self._writer.transport.abort()
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    def abort(self) -> None:
        self._writer.transport.abort()


def connect(device: str = "door", client_id: str = "c1", version: int = MQTT_3_1_1, **members: Any) -> p.Connect:
    """Make the CONNECT of a device of the fake application."""
    expiry = members.pop("session_expiry", None)
    if expiry is not None and version == MQTT_5:
        members["properties"] = Properties(session_expiry=expiry)
    settings: dict[str, Any] = {"username": device, "password": f"token-of-{device}".encode(), **members}
    return p.Connect(version=version, client_id=client_id, **settings)


def signal(payload: bytes = b"{}", qos: int = 1, packet_id: int | None = None, **members: Any) -> p.Publish:
    """Make a PUBLISH of a signal."""
    number = packet_id if packet_id is not None else (1 if qos else None)
    topic = members.pop("topic", "signals/front-door/verdict")
    return p.Publish(topic=topic, payload=payload, qos=qos, packet_id=number, **members)
