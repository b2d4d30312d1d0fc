"""A stand-in for the gateway on a plain broker: it answers signals as one key with `acceptEarly` and no run would."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiomqtt
from paho.mqtt.subscribeoptions import SubscribeOptions

ALLOWED = ("known", "intruder")


@dataclass
class Responder:
    """What the stand-in has heard and holds. `silent` and `lenient` make it misbehave."""

    silent: bool = False  # never answers
    lenient: bool = False  # takes what the schema refuses
    accepts_early: bool = True
    heard: list[bytes] = field(default_factory=list)
    by_id: dict[str, tuple[bytes, dict[str, Any]]] = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)  # workflow/key -> receipt

    def answer(self, topic: str, body: bytes, *, retain: bool) -> tuple[str, dict[str, Any]]:
        """Decide the reply's topic and payload."""
        levels = topic.split("/")
        if levels[0] == "runs" and len(levels) == 3:
            self.held.clear()
            return f"replies/runs/{levels[1]}/-/accepted", self._taken(levels[2], "run")
        if levels[0] != "signals" or len(levels) not in (3, 4):
            return "replies/-/-/-/rejected", {"v": 1, "ok": False, "code": 400, "error": "bad_topic", "id": ""}
        name = levels[3] if len(levels) == 4 else hashlib.sha256(body).hexdigest()[:16]
        fields = self._signal("/".join(levels[1:3]), levels[3] if len(levels) == 4 else None, name, body, retain=retain)
        kind = "accepted" if fields["ok"] else "rejected"
        return f"replies/signals/{levels[1]}/{levels[2]}/{kind}", fields

    def _signal(self, where: str, signal_id: str | None, name: str, body: bytes, *, retain: bool) -> dict[str, Any]:
        if retain:
            return self._refused(name, 422, "retained_not_allowed")
        if where != "front-door/kitchen-verdict" and not where.startswith("fleet/"):
            return self._refused(name, 404, "not_found")
        if len(body) > 16_384:
            return self._refused(name, 413, "payload_too_large")
        try:
            verdict = json.loads(body).get("verdict")
        except ValueError:
            return self._refused(name, 400, "bad_payload")
        if signal_id in self.by_id:
            body_before, fields = self.by_id[signal_id]
            return fields if body_before == body else self._refused(name, 422, "signal_id_reused")
        if verdict not in ALLOWED and not self.lenient:
            return self._refused(name, 422, "invalid_payload")
        if not self.accepts_early:
            return self._refused(name, 409, "no_open_wait")
        if where in self.held:
            return self._refused(name, 409, "early_signal_held") | {"receipt": self.held[where]}
        fields = self._taken(name, f"receipt{len(self.heard)}")
        if not where.startswith("fleet/"):
            self.held[where] = fields["receipt"]
        if signal_id:
            self.by_id[signal_id] = body, fields
        return fields

    @staticmethod
    def _taken(name: str, receipt: str) -> dict[str, Any]:
        at = "2026-01-01T00:00:00.000Z"
        return {"v": 1, "ok": True, "code": 202, "id": name, "receipt": receipt, "at": at}

    @staticmethod
    def _refused(name: str, code: int, error: str) -> dict[str, Any]:
        return {"v": 1, "ok": False, "code": code, "error": error, "id": name}


@asynccontextmanager
async def responding(responder: Responder, port: int) -> AsyncIterator[Responder]:
    """Connect the stand-in to the broker on `port`; it is subscribed when this is entered."""
    async with aiomqtt.Client("127.0.0.1", port, protocol=aiomqtt.ProtocolVersion.V5) as client:
        client.pending_calls_threshold = 1000
        for topics in ("signals/#", "runs/#", "sensors/#"):
            await client.subscribe(topics, options=SubscribeOptions(qos=1, retainAsPublished=True))
        work = asyncio.create_task(_respond(responder, client))
        try:
            yield responder
        finally:
            work.cancel()
            await asyncio.wait({work})


async def _respond(responder: Responder, client: aiomqtt.Client) -> None:
    async for message in client.messages:
        body = message.payload
        assert isinstance(body, bytes)
        responder.heard.append(body)
        topic, fields = responder.answer(message.topic.value, body, retain=message.retain)
        if not responder.silent:
            await client.publish(topic, json.dumps(fields), qos=1)
