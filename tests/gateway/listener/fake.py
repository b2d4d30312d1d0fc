"""A small application behind the listener's port, with a switch for each thing that a test wants of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from gateway.listener.port import (
    Admitted,
    Certificate,
    Denied,
    EndReason,
    Handled,
    Published,
    RefusalReason,
    Reply,
    Unavailable,
)


class ManualSource:
    """A clock that moves when it is told to, and names that count."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self._names = 0

    def monotonic(self) -> float:
        return self.now

    def nonce(self) -> str:
        self._names += 1
        return f"{self._names:016d}"

    def sortable_id(self) -> str:
        return self.nonce().rjust(26, "0")


@dataclass
class FakeApplication:
    """Devices with the token `token-of-<name>`; each publish is written down and answered with an accepted reply."""

    devices: dict[str, tuple[str, ...]] = field(
        default_factory=lambda: {"door": ("news/#",), "bell": (), "lamp": ("lamp/+/set", "d/door/status", "d/+/status")}
    )
    published: list[tuple[str, Published]] = field(default_factory=list)
    events: list[tuple[str, ...]] = field(default_factory=list)
    denial: Denied | None = None
    reason: int = 0
    reason_string: str = ""
    unavailable: bool = False
    max_connections: int = 8
    max_sessions: int = 4
    gate: asyncio.Event | None = None  # publishes wait for it
    door: asyncio.Event | None = None  # connects wait for it
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)
    told: asyncio.Event = field(default_factory=asyncio.Event)
    in_progress: int = 0
    most_in_progress: int = 0

    def admit(self, device: str) -> Admitted:
        return Admitted(
            device, self.devices[device], max_connections=self.max_connections, max_sessions=self.max_sessions
        )

    async def connect(
        self,
        *,
        username: str | None,
        password: bytes | None,
        certificate: Certificate | None,
        client_id: str,
        address: str,
    ) -> Admitted | Denied:
        if self.door is not None:
            await self.door.wait()
        if self.denial is not None:
            return self.denial
        if username is None:
            known = [name for name in (certificate.names if certificate else ()) if name in self.devices]
            return self.admit(known[0]) if known else Denied("bad_credentials")
        if username not in self.devices or password != f"token-of-{username}".encode():
            return Denied("bad_credentials")
        return self.admit(username)

    async def publish(self, who: Admitted, message: Published, *, address: str) -> Handled:
        self.published.append((who.device, message))
        self.in_progress += 1
        self.most_in_progress = max(self.most_in_progress, self.in_progress)
        async with self.arrived:
            self.arrived.notify_all()
        try:
            if self.gate is not None:
                await self.gate.wait()
            if self.unavailable:
                raise Unavailable
        finally:
            self.in_progress -= 1
        topic = message.topic.removeprefix(f"d/{who.device}/")
        parts = topic.split("/")
        if parts == ["status"]:
            return Handled(presence=message.payload)
        if parts[0] != "signals" or len(parts) < 3:
            refusal = Reply("replies/-/-/-/rejected", b'{"ok":false,"error":"bad_topic"}')
            return Handled((refusal,), 0x90)
        if message.retain:
            refusal = Reply(f"replies/{'/'.join(parts[:3])}/rejected", b'{"ok":false,"error":"retained_not_allowed"}')
            return Handled((refusal,), 0x83)
        if len(message.payload) > 16_384:
            refusal = Reply(f"replies/{'/'.join(parts[:3])}/rejected", b'{"ok":false,"code":413}')
            return Handled((refusal,), 0x97)
        reply = Reply(
            f"replies/{'/'.join(parts[:3])}/accepted",
            b'{"ok":true}',
            correlation_data=message.correlation_data,
            response_topic=message.response_topic,
        )
        return Handled((reply,), self.reason, self.reason_string)

    async def until_published(self, count: int) -> None:
        async with self.arrived:
            await self.arrived.wait_for(lambda: len(self.published) >= count)

    async def until(self, event: tuple[str, ...]) -> None:
        """Wait until the listener has told this."""
        async with asyncio.timeout(10):
            while event not in self.events:
                self.told.clear()
                await self.told.wait()

    def _note(self, event: tuple[str, ...]) -> None:
        self.events.append(event)
        self.told.set()

    def may_subscribe(self, who: Admitted, topic_filter: str) -> bool:
        own = ("replies/#", f"d/{who.device}/replies/#")
        if topic_filter.startswith(("replies/", f"d/{who.device}/replies/")):
            return True
        return topic_filter in own or topic_filter in self.devices.get(who.device, ())

    def connected(self, who: Admitted, client_id: str, address: str) -> None:
        self._note(("connected", who.device, client_id))

    def disconnected(self, who: Admitted, client_id: str, address: str, reason: EndReason) -> None:
        self._note(("disconnected", who.device, client_id, reason))

    def refused(self, reason: RefusalReason, device: str, address: str) -> None:
        self._note(("refused", reason, device))

    def presence(self, who: Admitted, payload: bytes) -> None:
        self._note(("presence", who.device, payload.decode()))

    def will_dropped(self, who: Admitted, topic: str) -> None:
        self._note(("will_dropped", who.device, topic))
