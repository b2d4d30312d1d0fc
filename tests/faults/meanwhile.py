"""A device that signals at two doors while the store is away, and sends the same again when it is back.

Meanwhile HTTP answers 503 with Retry-After, and MQTT 5 closes with the reason "server busy" and acknowledges nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
from dataclasses import dataclass, field
from time import monotonic

import httpx

from tests.faults.judging import Told
from tests.faults.tally import Tally
from tests.support.plain_mqtt import CONNACK, CONNECT, DISCONNECT, PUBACK, PUBLISH, packet, read_packet, text

NAME = "probe"
WORKFLOW = f"""
name: {NAME}
jobs:
  - name: main
    steps:
      - name: verdict
        task: {{ type: wait_for_signal, key: verdict, acceptEarly: 600, earlyPolicy: latest, timeout: 600 }}
"""
SERVER_BUSY = 0x89
FELT_SECONDS = 40.0


@dataclass
class Probe:
    """The device; every signal of it has an id, and is held for as long as the test lasts."""

    token: str
    mqtt: int
    http: int
    tally: Tally
    name: str = NAME
    door: str = NAME
    told: list[Told] = field(default_factory=list)
    _sent: int = 0
    _open: list[int] = field(default_factory=list)
    _stream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def connect(self) -> None:
        """Be connected with MQTT 5 before the store goes away."""
        await self.close()
        reader, writer = self._stream = await asyncio.open_connection("127.0.0.1", self.mqtt)
        body = text("MQTT") + bytes([5, 0xC2]) + struct.pack("!H", 0) + b"\0" + text(self.name)
        writer.write(packet(CONNECT, body + text(self.name) + text(self.token)))
        kind, answer = await read_packet(reader)
        assert (kind, answer[1]) == (CONNACK, 0)

    async def close(self) -> None:
        """Hang up."""
        if self._stream is not None:
            self._stream[1].close()
            with contextlib.suppress(ConnectionError):
                await self._stream[1].wait_closed()
            self._stream = None

    async def is_turned_away(self) -> None:
        """Signal at both doors until each has turned a signal away; raises AssertionError where one does not."""
        async with asyncio.timeout(FELT_SECONDS), asyncio.TaskGroup() as group:
            group.create_task(self._by_mqtt())
            group.create_task(self._by_http())

    def _next(self) -> int:
        self._sent += 1
        self._open.append(self._sent)
        return self._sent

    async def _by_mqtt(self) -> None:
        assert self._stream is not None
        reader, writer = self._stream
        while True:
            number = self._next()
            topic, payload = f"signals/{NAME}/verdict/p{number}", json.dumps({"n": number}).encode()
            writer.write(packet(PUBLISH | 0b0010, text(topic) + struct.pack("!H", 1) + b"\0" + payload))
            kind, body = await read_packet(reader)
            if kind == DISCONNECT:
                self.tally.turn_away(f"MQTT 5 closed with {body[:1].hex()}", properly=body[:1] == bytes([SERVER_BUSY]))
                return
            # Before it was felt: there was room left, or the leader's last word.
            assert kind == PUBACK
            assert body[2:3] in {b"", b"\0"}, f"PUBACK {body[2:3].hex()}"
            await asyncio.sleep(0.1)

    async def _by_http(self) -> None:
        async with httpx.AsyncClient(trust_env=False, timeout=FELT_SECONDS) as client:
            while (answer := await self._post(client, self._next())).status_code != 503:
                assert answer.status_code == 202, answer.text
                await asyncio.sleep(0.1)
        self.tally.turn_away("503 without Retry-After", properly=int(answer.headers.get("retry-after", 0)) > 0)
        assert answer.json()["type"] == "store_unavailable"

    async def _post(self, client: httpx.AsyncClient, number: int) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.token}", "idempotency-key": f"p{number}"}
        url = f"http://127.0.0.1:{self.http}/api/v1/signals/{NAME}/verdict"
        return await client.post(url, json={"n": number}, headers=headers)

    async def sends_again(self) -> None:
        """Send all of it once more, by HTTP, until each has been accepted."""
        give_up_at = monotonic() + FELT_SECONDS
        async with httpx.AsyncClient(trust_env=False, timeout=FELT_SECONDS) as client:
            while self._open:
                number = self._open[-1]
                self.tally.sent_again(identified=True)
                answer = await self._post(client, number)
                if answer.status_code in {429, 503}:
                    assert monotonic() < give_up_at, answer.text
                    await asyncio.sleep(0.2)
                    continue
                reply = answer.json()
                assert reply["ok"], reply
                self.tally.note(self.name, f"p{number}", reply)
                self.told.append(Told(reply["receipt"], self.name, number, f"p{number}"))
                self._open.pop()
