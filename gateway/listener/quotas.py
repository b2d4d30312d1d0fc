"""How much a client may say before it is heard out, pure: PUBLISHes in flight, and packets that say nothing."""

from __future__ import annotations

from collections.abc import Collection

from gateway.listener.codec import MQTT_5, PacketError, Reason
from gateway.listener.codec.reasons import violation
from gateway.listener.limits import ListenerLimits
from gateway.listener.rates import TokenBucket
from gateway.listener.session import Decision, Session


class Overhead:
    """Counts one connection's packets that cost the client next to nothing, and the server an answer."""

    __slots__ = ("_bucket",)

    def __init__(self) -> None:
        self._bucket: TokenBucket | None = None

    def count(self, limits: ListenerLimits, now: float, packets: int) -> None:
        """Count as many; raises `PacketError` for a flood. A single packet, however much it asks for, is none."""
        if self._bucket is None:
            self._bucket = TokenBucket(limits.packets_per_second, limits.packets_burst, now)
        if not self._bucket.take(now, count=min(packets, limits.filters_in_a_packet)):
            raise PacketError(Reason.MESSAGE_RATE_TOO_HIGH, "too many packets a second")


def check_unreleased(limits: ListenerLimits, version: int, session: Session, undecided: Collection[Decision]) -> None:
    """Refuse a QoS 1 or 2 PUBLISH beyond what may be unacknowledged (3.3.4, 4.9)."""
    unreleased = len(session.received or ())
    if version != MQTT_5:
        if unreleased >= limits.unreleased_ids:
            raise violation("too many QoS 2 packet ids are not released")
        return
    # A QoS 2 id counts until PUBCOMP and is among `received`.
    if unreleased + len(undecided) < limits.receive_maximum:
        return
    unanswered = sum(one.qos == 1 for one in undecided)
    if unreleased + unanswered >= limits.receive_maximum:
        raise PacketError(Reason.RECEIVE_MAXIMUM_EXCEEDED, "more PUBLISHes than the receive maximum (3.3.4)")
