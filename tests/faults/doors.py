"""Senders at every door of a gateway that is killed: MQTT, HTTP, WebSocket, the command line; every signal has an id.

Each repeats a signal under its id until it has a final answer, whatever happens to the connection or the gateway in
between. Devices start their runs over MQTT, whichever door they signal by.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, WebSocketException

from tests.faults.simulated import Simulated
from tests.support.command import wayside
from tests.support.serving import Gateway

# Nothing has been decided: the same signal is to be sent again.
AGAIN: Final = frozenset({"store_unavailable", "contended", "stopping", "rate_limited", "internal"})
ANSWER_SECONDS: Final = 30.0
Reply = Mapping[str, Any]


@dataclass
class Identified(Simulated):
    """A device that gives each of its signals an id, at the listener."""

    door: str = "mqtt"

    async def signal(self, signal_id: str | None) -> None:
        """Send this round's verdict under an id."""
        await super().signal(signal_id or f"s{self.number}")


@dataclass
class _Asking(Identified):
    """A sender that is answered on the connection, or by the process, that it asked by."""

    @abstractmethod
    async def ask(self, payload: dict[str, Any], signal_id: str) -> Reply | None:
        """Send the signal once; None when no answer came."""

    async def signal(self, signal_id: str | None) -> None:
        """Send this round's verdict under an id until there is a final answer."""
        signal_id = signal_id or f"s{self.number}"
        self._ids[signal_id] = (self.number, signal_id)
        tries = 0
        while True:
            if tries:
                self.tally.sent_again(identified=True)
            tries += 1
            self.sent += 1
            reply = await self.ask({"n": self.number, "by": self.name}, signal_id)
            if reply is not None and reply.get("error") not in AGAIN:
                self._note({**reply, "id": signal_id})
                return
            await asyncio.sleep(0.05 if reply is None else reply.get("retry_after_ms", 100) / 1_000)


def _session() -> httpx.AsyncClient:
    return httpx.AsyncClient(trust_env=False, timeout=ANSWER_SECONDS)


@dataclass
class ByHttp(_Asking):
    """A device at the HTTP API."""

    door: str = "http"
    at: str = ""
    session: httpx.AsyncClient = field(
        default_factory=lambda: httpx.AsyncClient(trust_env=False, timeout=ANSWER_SECONDS)
    )

    async def ask(self, payload: dict[str, Any], signal_id: str) -> Reply | None:
        """POST it."""
        headers = {"authorization": f"Bearer {self.token}", "idempotency-key": signal_id}
        with contextlib.suppress(httpx.TransportError):
            url = f"http://{self.at}/api/v1/signals/{self.name}/verdict"
            answer = await self.session.post(url, json=payload, headers=headers)
            reply: Reply = answer.json()
            if answer.status_code == 503:
                self.tally.turn_away("503 without Retry-After", properly="retry-after" in answer.headers)
            return reply
        return None

    async def close(self) -> None:
        """Close its connections."""
        await super().close()
        await self.session.aclose()


@dataclass
class ByWebSocket(_Asking):
    """A device on one WebSocket, as long as that lasts."""

    door: str = "websocket"
    at: str = ""
    socket: ClientConnection | None = None

    async def ask(self, payload: dict[str, Any], signal_id: str) -> Reply | None:
        """Send one message, and read until its answer comes."""
        message = {"type": "signal", "ref": signal_id, "workflow": self.name, "key": "verdict", "id": signal_id}
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                if self.socket is None:
                    headers = {"authorization": f"Bearer {self.token}"}
                    self.socket = await connect(f"ws://{self.at}/api/v1/ws", additional_headers=headers, proxy=None)
                await self.socket.send(json.dumps({**message, "payload": payload}))
                while (reply := json.loads(await self.socket.recv())).get("ref") != signal_id:
                    pass
                answer: Reply = reply
                return answer
        except (OSError, WebSocketException, InvalidHandshake, TimeoutError):
            await self._leave()
            return None

    async def _leave(self) -> None:
        if self.socket is not None:
            await self.socket.close()
            self.socket = None

    async def close(self) -> None:
        """Close the WebSocket."""
        await super().close()
        await self._leave()


@dataclass
class ByCommand(_Asking):
    """An operator who types `wayside signal`, each time anew."""

    door: str = "cli"
    at: str = ""
    token_file: Path = Path()

    async def ask(self, payload: dict[str, Any], signal_id: str) -> Reply | None:
        """Run the command, and read what it printed."""
        where = ("--server", self.at, "--token-file", str(self.token_file), "--json")
        ran = await wayside("signal", self.name, "verdict", json.dumps(payload), "--id", signal_id, *where, status=None)
        try:
            reply: Reply = json.loads(ran.out if ran.status == 0 else ran.err)
        except json.JSONDecodeError:
            return None
        # A command that reached no gateway says so by a status of its own.
        known = "receipt" in reply or reply.get("error") in self.refusals
        return {"ok": "receipt" in reply, **reply} if known else None

    refusals: frozenset[str] = frozenset(
        {"no_open_wait", "early_signal_held", "already_settled", "wait_closed", "invalid_payload", "signal_id_reused"}
    )


async def at_doors(gateway: Gateway, devices: list[Simulated], doors: list[str]) -> list[Simulated]:
    """Give each device one of the doors in turn; the command line gets one in ten of them, since it starts slowly."""
    at = f"127.0.0.1:{gateway.http}"
    token_file = gateway.data.parent / "porter.token"
    async with gateway.client() as client:
        answer = await client.post("/operators", json={"operator": "porter", "rights": ["signal"]})
        answer.raise_for_status()
        token_file.write_text(answer.json()["token"])
        token_file.chmod(0o600)
    fast = [door for door in doors if door != "cli"] or ["cli"]
    made: list[Simulated] = []
    for number, each in enumerate(devices):
        door = "cli" if "cli" in doors and number % 10 == 9 else fast[number % len(fast)]
        who = (each.name, each.token, each.port, each.dice)
        match door:
            case "mqtt":
                made.append(Identified(*who))
            case "http":
                made.append(ByHttp(*who, at=at))
            case "websocket":
                made.append(ByWebSocket(*who, at=at))
            case "cli":
                made.append(ByCommand(*who, at=at, token_file=token_file))
            case _:
                raise ValueError(f"there is no door {door}; there are mqtt, http, websocket, cli")
    return made
