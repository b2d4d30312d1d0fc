"""The pages about clients in `devices/clients`, and a gateway on which what they say is tried."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.support.plain_mqtt import PUBLISH, packet, read_packet
from tests.support.serving import ROOT, Gateway

PAGES = ROOT / "devices" / "clients"
GRANTS = ("signal:front-door/kitchen-verdict",)
SECONDS = 60.0
_DIFFERS = (  # what is another one each time: receipts, times, and ids that a client draws
    (re.compile(r'"receipt":"[a-z0-9]{26}"'), '"receipt":"*"'),
    (re.compile(r'"at":"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{12}Z"'), '"at":"*"'),
    (re.compile(r'"id":"([0-9a-f]{8}|[0-9]{10}|[0-9]{13})"'), '"id":"*"'),
)


def blocks(page: str, language: str) -> list[str]:
    """Take the code blocks of one language from a page, as somebody would copy them."""
    text = (PAGES / f"{page}.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def masked(text: str) -> list[str]:
    """Put a star for what differs from time to time, and give the lines."""
    for pattern, star in _DIFFERS:
        text = pattern.sub(star, text)
    return text.splitlines()


def promised(page: str) -> list[str]:
    """Give the replies that a page shows, masked."""
    return [line for block in blocks(page, "text") for line in masked(block)]


@dataclass
class Place:
    """A gateway with the workflow `front-door`, and the devices that were added so far."""

    gateway: Gateway
    tokens: dict[str, str] = field(default_factory=dict)

    async def token(self, device: str) -> str:
        """Add a device if it is not there yet; give its token."""
        if device not in self.tokens:
            async with self.gateway.client() as api:
                self.tokens[device] = await self.gateway.add_device(api, device, GRANTS)
        return self.tokens[device]

    def here(self, block: str) -> str:
        """Put this gateway's address into a block."""
        return block.replace("gateway.local", "127.0.0.1").replace("1883", str(self.gateway.mqtt))

    @asynccontextmanager
    async def moved(self, verdict: str = "known") -> AsyncIterator[None]:
        """Start a run; at the end it has to have succeeded with the verdict that somebody signalled meanwhile."""
        async with self.gateway.client() as api:
            started = await api.post("/workflows/front-door/runs", json={})
            started.raise_for_status()
            yield
            async with asyncio.timeout(SECONDS):
                while (run := await self.gateway.run(api, started.json()["run"]))["status"] not in {
                    "succeeded",
                    "failed",
                    "cancelled",
                }:
                    await asyncio.sleep(0.1)
        assert run["status"] == "succeeded"
        assert f'"{verdict}"' in str(run).replace("'", '"')


@dataclass
class Wire:
    """A socket on which packets are written as they are."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    largest: int = 0

    @classmethod
    @asynccontextmanager
    async def to(cls, place: Place) -> AsyncIterator[Wire]:
        """Open a connection, and end it without a goodbye."""
        reader, writer = await asyncio.open_connection("127.0.0.1", place.gateway.mqtt)
        try:
            yield cls(reader, writer)
        finally:
            writer.close()

    def send(self, *packets: bytes) -> None:
        """Write packets in one go."""
        self.writer.write(b"".join(packets))

    async def takes(self) -> bytes:
        """Read the next packet whole."""
        async with asyncio.timeout(SECONDS):
            kind, body = await read_packet(self.reader)
        whole = packet(kind, body)
        self.largest = max(self.largest, len(whole))
        return whole

    async def reply(self) -> str:
        """Read up to the next message, acknowledge it as its QoS wants, and give topic and payload as one line."""
        while (whole := await self.takes())[0] & 0xF0 != PUBLISH:
            pass
        body = whole[2 if whole[1] < 0x80 else 3 :]
        end = 2 + int.from_bytes(body[:2], "big")
        topic, rest = body[2:end].decode(), body[end:]
        if whole[0] & 0b0110:
            self.send(packet(0x40, rest[:2]))
            rest = rest[2:]
        return f"{topic} {rest.decode()}"
