"""All sessions of a listener by (device, client id), pure: opening, take-over, bounds, and who receives a message."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from gateway.listener.filters import FilterTree, matches
from gateway.listener.limits import ListenerLimits
from gateway.listener.port import Admitted, Reply
from gateway.listener.session import Delivery, Message, Session, Subscription

SessionRefusal = Literal["device_connections", "device_sessions", "sessions"]
_STEP: Final = 256  # receivers between two pauses of `deliver`


@dataclass(frozen=True, slots=True)
class Opened:
    """A session for a connection: whether the client's earlier state is in it, and which sessions ended for it."""

    session: Session
    present: bool
    ended: tuple[Session, ...] = ()


class Sessions:
    """The sessions of one process. They live in memory: after a restart none is present."""

    def __init__(
        self,
        limits: ListenerLimits,
        may_subscribe: Callable[[Admitted, str], bool],
        dropped: Callable[[Session], None],
    ) -> None:
        self._limits = limits
        self._dropped = dropped
        self._may_subscribe = may_subscribe
        self._devices: dict[str, dict[str, Session]] = {}
        self._tree: FilterTree[Session, Subscription] = FilterTree()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def of(self, device: str) -> list[Session]:
        """Return the device's sessions, connected or away."""
        return list(self._devices.get(device, {}).values())

    def all(self) -> Iterator[Session]:
        """Yield every session."""
        for sessions in self._devices.values():
            yield from sessions.values()

    def find(self, device: str, client_id: str) -> Session | None:
        """Return the session of that key, connected or away."""
        return self._devices.get(device, {}).get(client_id)

    def refusal(self, who: Admitted, client_id: str, *, persistent: bool) -> SessionRefusal | None:
        """Say which bound keeps the device from opening this session, if one does; nothing is touched."""
        sessions = self._devices.get(who.device, {})
        others = [one for one in sessions.values() if one.client_id != client_id]
        if client_id not in sessions and self._count >= self._limits.max_sessions:
            return "sessions"
        if sum(one.link is not None for one in others) >= who.max_connections:
            return "device_connections"
        kept = [one for one in others if one.expiry_seconds > 0]
        if persistent and len(kept) >= who.max_sessions and all(one.link is not None for one in kept):
            return "device_sessions"
        return None

    def open(self, who: Admitted, client_id: str, *, clean: bool, expiry_seconds: int) -> Opened:
        """Open the session that an authenticated CONNECT names (3.1.2.4), after `refusal` and without a connection."""
        existing = self.find(who.device, client_id)
        assert existing is None or existing.link is None
        if existing is not None and not clean:
            existing.expiry_seconds = expiry_seconds
            existing.who = who
            self.recheck(existing, who)
            return Opened(existing, present=True)
        ended = [] if existing is None else [existing]
        kept = [one for one in self.of(who.device) if one.expiry_seconds > 0 and one is not existing]
        if expiry_seconds > 0 and len(kept) >= who.max_sessions:
            # A client that draws a new id each time would lock itself out: its oldest abandoned session goes instead.
            ended.append(min((one for one in kept if one.link is None), key=lambda one: one.ends_at or 0.0))
        for one in ended:
            self.drop(one)
        session = Session(who, client_id, expiry_seconds, self._limits)
        self._devices.setdefault(who.device, {})[client_id] = session
        self._count += 1
        return Opened(session, present=False, ended=tuple(ended))

    def drop(self, session: Session) -> None:
        """Forget a session and its subscriptions; does nothing when another has taken its place."""
        session.detach()
        self._dropped(session)
        for topic_filter in session.subscriptions:
            self._tree.remove(topic_filter, session)
        session.subscriptions = {}
        sessions = self._devices.get(session.who.device, {})
        if sessions.get(session.client_id) is session:
            del sessions[session.client_id]
            self._count -= 1
            if not sessions:
                del self._devices[session.who.device]

    def holds(self, session: Session) -> bool:
        """Say whether the session still exists."""
        return self._devices.get(session.who.device, {}).get(session.client_id) is session

    def subscribe(self, session: Session, subscription: Subscription) -> bool:
        """Add or replace a subscription (3.8.4); False when the session has as many as it may."""
        name = subscription.topic_filter
        if name not in session.subscriptions and len(session.subscriptions) >= self._limits.subscriptions:
            return False
        session.subscriptions[name] = subscription
        if not name.startswith("replies/"):
            # The short form of a reply is a device's own; nothing else is published under it.
            self._tree.add(name, session, subscription)
        return True

    def unsubscribe(self, session: Session, topic_filter: str) -> bool:
        """Remove a subscription (3.10.4); False when there was none."""
        if session.subscriptions.pop(topic_filter, None) is None:
            return False
        self._tree.remove(topic_filter, session)
        return True

    def recheck(self, session: Session, who: Admitted) -> None:
        """Take the grants of `who`, the session's device, as they are now; what they no longer cover ends."""
        for topic_filter in [name for name in session.subscriptions if not self._may_subscribe(who, name)]:
            self.unsubscribe(session, topic_filter)

    def reply(self, device: str, reply: Reply, now: float) -> int:
        """Send a reply to each connection of the device that subscribes to it; return how many got it."""
        suffix = _own_reply(device, reply.response_topic) or reply.topic
        forms = (suffix, f"d/{device}/{suffix}")
        sent = 0
        for session in self._devices.get(device, {}).values():
            if session.link is None:
                continue
            for topic in forms:
                found = [one for one in session.subscriptions.values() if matches(one.topic_filter, topic)]
                if found:
                    message = _message(found, topic, reply.payload, 1, correlation_data=reply.correlation_data)
                    sent += session.deliver(message, now) is Delivery.SENT
                    break
        return sent

    def deliver(
        self,
        topic: str,
        payload: bytes,
        *,
        qos: int,
        now: float,
        expires_at: float | None,
        publisher: tuple[str, str] | None,
        retain: bool = False,
    ) -> Iterator[int]:
        """Send a message once to all who subscribe to it (3.3.4); yield now and then how many connections got it.

        Sessions that are away keep it at QoS 1 and are not counted. `publisher`, a device and its client id, is passed
        over where its subscription says No Local.
        """
        receivers: dict[Session, list[Subscription]] = {}
        for session, subscription in self._tree.match(topic):
            if subscription.no_local and publisher == (session.who.device, session.client_id):
                continue
            receivers.setdefault(session, []).append(subscription)
        sent = 0
        for position, (session, found) in enumerate(receivers.items(), 1):
            message = _message(found, topic, payload, qos, expires_at=expires_at, retain=retain)
            sent += session.deliver(message, now) is Delivery.SENT
            if position % _STEP == 0:
                yield sent
        yield sent


def _own_reply(device: str, topic: str | None) -> str | None:
    """Return the part after `d/<device>/` of a topic under the device's own `replies/`, in either form, else None."""
    if topic is None:
        return None
    suffix = topic.removeprefix(f"d/{device}/")
    return suffix if suffix.startswith("replies/") else None


def _message(
    found: list[Subscription],
    topic: str,
    payload: bytes,
    qos: int,
    *,
    expires_at: float | None = None,
    correlation_data: bytes | None = None,
    retain: bool = False,
) -> Message:
    """Make the message for one receiver: the highest QoS of its filters, and all their identifiers (3.3.4)."""
    return Message(
        topic=topic,
        payload=payload,
        qos=min(qos, max(one.qos for one in found)),
        retain=retain and any(one.retain_as_published for one in found),  # 3.8.3.1
        expires_at=expires_at,
        correlation_data=correlation_data,
        subscription_ids=tuple(one.identifier for one in found if one.identifier is not None),
    )
