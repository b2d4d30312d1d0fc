"""What the listener asks of the application behind it: who may connect, what a PUBLISH means, who may subscribe.

The listener knows MQTT and nothing of signals. Everything that it decides about a device it asks here; everything
that it tells a device beyond the standard's own answers comes from here. All methods but `connect` and `publish` are
called on the event loop, must return at once and must not raise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from msgspec import Struct

DenialReason = Literal["bad_credentials", "disabled", "banned", "rate", "busy", "unavailable"]
EndReason = Literal[
    "disconnected",  # the client sent DISCONNECT
    "closed",  # the stream ended without one
    "keep_alive",  # silent for 1.5 times its keep-alive
    "taken_over",  # the same device connected again with the same client id
    "revoked",  # close_device
    "malformed",  # bytes that are not MQTT, or a packet that the standard does not allow here
    "too_large",  # a packet over the cap
    "rate",  # a flood of packets that say nothing
    "slow",  # a client that does not read what it is sent
    "unavailable",  # the application could not decide a PUBLISH durably
    "stopping",
]
RefusalReason = Literal[
    "connections", "connects_per_second", "device_connections", "device_sessions", "sessions", "client_id"
]


class Certificate(Struct, frozen=True):
    """A verified client certificate: its common name and its DNS names, and since when it is good.

    `good_since` is its notBefore in seconds of the Unix epoch, 0 if that cannot be told.
    """

    names: tuple[str, ...]
    good_since: int


class Admitted(Struct, frozen=True):
    """A connection's authenticated device. `principal` is the application's own and is handed back unread."""

    device: str
    principal: object = None
    max_connections: int = 8
    max_sessions: int = 4


@dataclass(frozen=True, slots=True)
class Denied:
    """A refused CONNECT: CONNACK 0x86, 0x87, 0x8A, 0x9F, 0x89 or 0x88; in MQTT 3.1.1 return code 4, 5, 5, 3, 3 or 3."""

    reason: DenialReason


class Published(Struct, frozen=True):
    """A PUBLISH as the client meant it: a topic alias is resolved, a QoS 2 repeat is not handed on a second time.

    The topic is well-formed UTF-8 without NUL, not empty and without wildcards; nothing else about it is checked.
    """

    topic: str
    payload: bytes
    qos: int
    retain: bool = False
    dup: bool = False
    response_topic: str | None = None
    correlation_data: bytes | None = None
    user_properties: tuple[tuple[str, str], ...] = ()
    client_id: str = ""

    def __repr__(self) -> str:
        """Show sizes only: a payload may not reach a log."""
        return f"Published(topic={self.topic!r}, bytes={len(self.payload)}, qos={self.qos})"


class Reply(Struct, frozen=True):
    """An answer to the publishing device, sent to each of its connections that subscribes to it.

    `topic` is the canonical topic without `d/<device>/`: `replies/signals/front-door/kitchen-verdict/accepted`. It is
    sent in the form, short or canonical, of the filter that it matches, short if both do, at the QoS subscribed,
    never retained, and not queued for an offline session. A `response_topic` (MQTT 5) under the device's own
    `replies/`, in either form, replaces `topic`; any other is ignored, so the client's own may be handed back as it is.
    `device` is given where another device is answered than the one that has published.
    """

    topic: str
    payload: bytes
    correlation_data: bytes | None = None
    response_topic: str | None = None
    device: str = ""

    def __repr__(self) -> str:
        """Show sizes only: a payload may not reach a log."""
        return f"Reply(topic={self.topic!r}, bytes={len(self.payload)})"


class Handled(Struct, frozen=True):
    """What became of a PUBLISH. Replies go out first, then PUBACK or PUBREC with `reason` (MQTT 5 alone says it).

    `presence` is what the device says of itself on `status`: it goes to whoever a will on `status` would go to.
    """

    replies: tuple[Reply, ...] = ()
    reason: int = 0
    reason_string: str = ""
    presence: bytes | None = None

    def __repr__(self) -> str:
        """Leave presence out: a payload may not reach a log."""
        return f"Handled(replies={self.replies!r}, reason={self.reason}, reason_string={self.reason_string!r})"


class Unavailable(Exception):
    """Raised by `publish` when nothing durable was decided: the connection is closed unacknowledged.

    MQTT 5 is told 0x89 (server busy), or 0x8B with `stopping`; the device sends again after it reconnects. With
    `uncertain`, something of it may be stored all the same.
    """

    def __init__(self, *, stopping: bool = False, uncertain: bool = False) -> None:
        super().__init__("stopping" if stopping else "unavailable")
        self.stopping = stopping
        self.uncertain = uncertain


class Application(Protocol):
    """The application behind the listener."""

    async def connect(
        self,
        *,
        username: str | None,
        password: bytes | None,
        certificate: Certificate | None,
        client_id: str,
        address: str,
    ) -> Admitted | Denied:
        """Authenticate a CONNECT, before anything of the session that it names is touched.

        `username` is any UTF-8 text and is to be checked against the pattern of a device's name. `certificate` is
        the client's, if it has shown one that TLS has verified and that has a name. `client_id` carries no authority.
        `address` is the peer's numeric IP address. An exception counts as `Denied("unavailable")`.
        """
        ...

    async def publish(self, who: Admitted, message: Published, *, address: str) -> Handled:
        """Decide a PUBLISH: it is acknowledged once this has returned, so return what is durable or refused for good.

        Several publishes of one connection may be in progress at once, started in the order of their packets and
        acknowledged in that order. The call goes on when the connection ends meanwhile. Raises `Unavailable`; any
        other exception counts as that.
        """
        ...

    def may_subscribe(self, who: Admitted, topic_filter: str) -> bool:
        """Say whether the device may subscribe: own `replies/…` in either form, and what a `listen` grant covers."""
        ...

    def connected(self, who: Admitted, client_id: str, address: str) -> None:
        """Take note of an accepted CONNECT; the device may be closed right here."""
        ...

    def disconnected(self, who: Admitted, client_id: str, address: str, reason: EndReason) -> None:
        """Take note of the end of a connection that `connected` announced; called once for each."""
        ...

    def refused(self, reason: RefusalReason, device: str, address: str) -> None:
        """Take note of a CONNECT that the listener refused by itself; `device` is "" before authentication."""
        ...

    def presence(self, who: Admitted, payload: bytes) -> None:
        """Take note of a will on `status`, already sent to those who subscribe to `d/<device>/status`."""
        ...

    def will_dropped(self, who: Admitted, topic: str) -> None:
        """Take note of a will on another topic than `status`: it is never published, and the CONNECT goes on."""
        ...
