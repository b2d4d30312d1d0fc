"""A session's state (section 4.1), pure: subscriptions, QoS 1 out in order with DUP, QoS 2 ids in."""

from __future__ import annotations

import math
from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from gateway.listener.codec import NO_PROPERTIES, Properties
from gateway.listener.codec.packets import Publish, Will
from gateway.listener.limits import ListenerLimits
from gateway.listener.port import Admitted, EndReason, Handled, Published

if TYPE_CHECKING:
    from gateway.listener.codec import Reason

_LAST_PACKET_ID: Final = 65_535


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """An application message on its way to one session; `expires_at` is on the listener's monotonic clock."""

    topic: str
    payload: bytes
    qos: int
    retain: bool = False
    expires_at: float | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_ids: tuple[int, ...] = ()

    def size(self) -> int:
        """Count what it takes to keep: a response topic and correlation data are as long as a client wants them."""
        return len(self.topic) + len(self.payload) + len(self.response_topic or "") + len(self.correlation_data or b"")


class Subscription(msgspec.Struct, frozen=True):
    """A granted filter: QoS 0 or 1, and the options of MQTT 5 that mean something here (3.8.3.1)."""

    topic_filter: str
    qos: int
    no_local: bool = False
    identifier: int | None = None
    retain_as_published: bool = False


class Decision:
    """A PUBLISH that the application has or decides. QoS 2 repeats share the first one's."""

    __slots__ = ("failed", "handled", "packet_id", "published", "qos", "replied", "retain")

    def __init__(self, published: Published, packet_id: int | None) -> None:
        self.published: Published | None = published  # until it is decided
        self.qos = published.qos
        self.retain = published.retain
        self.packet_id = packet_id
        self.handled: Handled | None = None
        self.failed = False
        self.replied = False


class Delivery(Enum):
    """What became of a message for one session."""

    SENT = auto()  # written to the connection, or waiting behind others for the client's acknowledgements
    KEPT = auto()  # in the session of a client that is away
    DROPPED = auto()


class Link(Protocol):
    """A session's connection, as the session sees it."""

    def send_publish(self, publish: Publish) -> bool:
        """Write a PUBLISH; False when it may not be sent (too large for the client, or a congested QoS 0)."""
        ...

    def flush(self) -> None:
        """Acknowledge what has been decided."""
        ...

    def end(self, reason: EndReason, code: Reason | None, *, will: bool = True) -> None:
        """Close the connection."""
        ...


class Session:
    """One client's session, keyed by (device, client id). It outlives connections when `expiry_seconds` is not 0."""

    __slots__ = (
        "_again",
        "_inflight",
        "_next_id",
        "_queue",
        "_queue_bytes",
        "_window",
        "client_id",
        "dropped",
        "ends_at",
        "expiry_seconds",
        "limits",
        "link",
        "received",
        "subscriptions",
        "who",
        "will",
        "will_at",
    )

    def __init__(self, who: Admitted, client_id: str, expiry_seconds: int, limits: ListenerLimits) -> None:
        self.who = who
        self.client_id = client_id
        self.expiry_seconds = expiry_seconds
        self.limits = limits
        self.link: Link | None = None
        self.ends_at: float | None = None
        self.will: Will | None = None  # one that waits for its delay (3.1.3.2.2)
        self.will_at: float | None = None
        self.subscriptions: dict[str, Subscription] = {}
        self.received: dict[int, Decision] | None = None  # QoS 2 ids that the client has not released
        self.dropped = 0
        self._inflight: dict[int, Message] | None = None
        self._again: deque[int] | None = None  # ids of `_inflight` that this connection has not been sent yet
        self._queue: deque[Message] | None = None
        self._queue_bytes = 0
        self._next_id = 1
        self._window = limits.window

    def attach(self, link: Link, receive_maximum: int, now: float) -> None:
        """Give the session its connection: the unacknowledged goes out again with DUP, then what waited (4.4)."""
        self.link = link
        self.ends_at = None
        self._window = min(receive_maximum, self.limits.window)
        # A client may have come back with a smaller receive maximum than it left with: these, too, wait for room.
        self._again = deque(self._inflight) if self._inflight else None
        self._pump(now)

    def detach(self) -> None:
        """Take the connection away; what is unacknowledged stays."""
        self.link = None

    def deliver(self, message: Message, now: float) -> Delivery:
        """Send a message, or keep one of QoS 1 within the queue's bounds."""
        if message.qos == 0:
            sent = self.link is not None and self.link.send_publish(_publish(message, None, now))
            return self._count(Delivery.SENT if sent else Delivery.DROPPED)
        if self.link is None and self.expiry_seconds == 0:
            return Delivery.DROPPED
        if self.link is not None and not self._queue and not self._again and self._room():
            return self._count(Delivery.SENT if self._send(message, now) else Delivery.DROPPED)
        if not self._enqueue(message):
            return self._count(Delivery.DROPPED)
        return Delivery.SENT if self.link is not None else Delivery.KEPT

    def acknowledged(self, packet_id: int, now: float) -> bool:
        """Take a PUBACK (4.3.2) and send what waited behind it; False when the id was not in use."""
        if self._inflight is None or packet_id not in self._inflight:
            return False
        self._forget(packet_id)
        self._pump(now)
        return True

    def unacknowledged(self) -> int:
        """QoS 1 messages sent and not acknowledged."""
        return len(self._inflight or ())

    def waiting(self) -> int:
        """Messages in the queue."""
        return len(self._queue or ())

    def _room(self) -> bool:
        return len(self._inflight or ()) - len(self._again or ()) < self._window

    def _send(self, message: Message, now: float) -> bool:
        packet_id = self._fresh_id()
        if self._inflight is None:
            self._inflight = {}
        self._inflight[packet_id] = message
        if self.link is not None and self.link.send_publish(_publish(message, packet_id, now)):
            return True
        # Too large for this client: as if it had been sent and acknowledged (3.1.2.11.4).
        self._forget(packet_id)
        return False

    def _pump(self, now: float) -> None:
        while self._again and self._inflight and self.link is not None and self._room():
            packet_id = self._again.popleft()
            if not self.link.send_publish(_publish(self._inflight[packet_id], packet_id, now, dup=True)):
                self._forget(packet_id)
        self._again = self._again or None
        while self._queue and self.link is not None and self._room():
            message = self._queue.popleft()
            self._queue_bytes -= message.size()
            if message.expires_at is not None and message.expires_at <= now:
                continue  # 3.3.2.3.3
            if not self._send(message, now):
                self.dropped += 1
        if not self._queue:
            self._queue = None

    def _enqueue(self, message: Message) -> bool:
        if self._queue is None:
            self._queue = deque()
        full = len(self._queue) >= self.limits.queue_messages
        if full or self._queue_bytes + message.size() > self.limits.queue_bytes:
            return False
        self._queue_bytes += message.size()
        self._queue.append(message)
        return True

    def _forget(self, packet_id: int) -> None:
        if self._inflight is not None:
            self._inflight.pop(packet_id, None)
            if not self._inflight:
                self._inflight = None
        if self._again and packet_id in self._again:
            self._again.remove(packet_id)

    def _fresh_id(self) -> int:
        # The window is far smaller than the ids are many.
        while self._inflight is not None and self._next_id in self._inflight:
            self._next_id = self._next_id % _LAST_PACKET_ID + 1
        packet_id = self._next_id
        self._next_id = packet_id % _LAST_PACKET_ID + 1
        return packet_id

    def _count(self, delivery: Delivery) -> Delivery:
        self.dropped += delivery is Delivery.DROPPED
        return delivery


def _publish(message: Message, packet_id: int | None, now: float, *, dup: bool = False) -> Publish:
    properties = NO_PROPERTIES
    expires_at = message.expires_at
    if (
        message.subscription_ids
        or message.correlation_data is not None
        or expires_at is not None
        or message.response_topic
    ):
        properties = Properties(
            message_expiry=None if expires_at is None else max(0, math.ceil(expires_at - now)),
            response_topic=message.response_topic,
            correlation_data=message.correlation_data,
            subscription_ids=message.subscription_ids,
        )
    return Publish(
        topic=message.topic,
        payload=message.payload,
        qos=message.qos,
        retain=message.retain,
        dup=dup,
        packet_id=packet_id,
        properties=properties,
    )
