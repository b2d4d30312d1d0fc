"""A device that starts a run and signals it, again and again, whatever happens to the gateway."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.faults.judging import Told
from tests.faults.tally import Tally
from tests.support.plain_mqtt import PlainClient, Refused


@dataclass
class Simulated:
    """One device: it starts a run and signals it, again and again, and sends again whatever was not acknowledged."""

    name: str
    token: str
    port: int
    dice: random.Random
    told: list[Told] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)
    sent: int = 0
    number: int = 0
    client: PlainClient | None = None
    door: str = "mqtt"
    client_id: str = ""
    device: str = ""
    # How often a signal is sent again under its id although it was accepted.
    again: float = 0.0
    tally: Tally = field(default_factory=Tally)
    _sought: dict[str, asyncio.Future[dict[str, Any]]] = field(default_factory=dict)

    @property
    def user(self) -> str:
        """The device, where it has another name than its workflow."""
        return self.device or self.name

    def _heard(self, topic: str, payload: bytes) -> None:
        reply = json.loads(payload)
        future = self._sought.get(reply["id"])
        if future is not None and not future.done():
            future.set_result(reply)
        if topic.startswith("replies/signals/"):
            self._note(reply)

    def _note(self, reply: dict[str, Any]) -> None:
        number, signal_id = self._ids[reply["id"]]
        self.tally.note(self.name, signal_id, reply)
        if reply["ok"]:
            self.told.append(Told(reply["receipt"], self.name, number, signal_id))
        self.answers["accepted" if reply["ok"] else reply["error"]] += 1

    _ids: dict[str, tuple[int, str | None]] = field(default_factory=dict)

    async def connected(self) -> PlainClient:
        """Be connected, however long the gateway takes to come back."""
        while self.client is None or self.client.lost.is_set():
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, Refused):
                self.client = await PlainClient.connect(
                    self.port, self.user, self.token, client_id=self.client_id or self.user, heard=self._heard
                )
                break
            await asyncio.sleep(0.05)
        assert self.client is not None
        return self.client

    async def exchange(self, topic: str, payload: bytes, reply_id: str) -> dict[str, Any]:
        """Publish until an answer has come, again after each lost connection."""
        tries = 0
        while True:
            client = await self.connected()
            if tries and topic.startswith("signals/"):
                self.tally.sent_again(identified=topic.count("/") == 3)
            tries += 1
            sought = self._sought[reply_id] = asyncio.get_running_loop().create_future()
            self.sent += 1
            if await client.publish(topic, payload) and sought.done():
                del self._sought[reply_id]
                reply: dict[str, Any] = sought.result()
                if reply.get("error") == "rate_limited":
                    await asyncio.sleep(reply.get("retry_after_ms", 200) / 1000)
                    continue
                return reply

    async def start_run(self) -> None:
        """Ask for the next run, under an id of its own."""
        run_id = f"r{self.number}"
        await self.exchange(f"runs/{self.name}/{run_id}", b"{}", run_id)

    async def signal(self, signal_id: str | None) -> None:
        """Send this round's verdict."""
        payload = json.dumps({"n": self.number, "by": self.name}).encode()
        reply_id = signal_id or hashlib.sha256(payload).hexdigest()[:16]
        self._ids[reply_id] = (self.number, signal_id)
        tail = f"/{signal_id}" if signal_id else ""
        await self.exchange(f"signals/{self.name}/verdict{tail}", payload, reply_id)

    async def close(self) -> None:
        """Leave the gateway."""
        if self.client is not None:
            await self.client.close()

    async def live(self, stop: asyncio.Event) -> None:
        """Go round until told to stop."""
        while not stop.is_set():
            self.number += 1
            signal_id = f"s{self.number}" if self.dice.random() < 0.6 else None
            if self.dice.random() < 0.3:
                await self.signal(signal_id)
                await self.start_run()
            else:
                await self.start_run()
                await self.signal(signal_id)
            if signal_id and self.again and self.dice.random() < self.again:
                self.tally.sent_again(identified=True)
                await self.signal(signal_id)
            await asyncio.sleep(self.dice.random() * 0.15)
