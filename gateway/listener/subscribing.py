"""SUBSCRIBE and UNSUBSCRIBE (sections 3.8 to 3.11), pure: what is granted, and what is kept of presence for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gateway.listener.codec import Reason
from gateway.listener.codec import packets as p
from gateway.listener.filters import filter_problem
from gateway.listener.session import Message, Session, Subscription
from gateway.listener.wire import Surroundings

_IF_NEW = 1  # retain handling (3.8.3.1)
_NEVER = 2


def subscribe(around: Surroundings, session: Session, packet: p.Subscribe) -> tuple[p.SubAck, Sequence[Message]]:
    """Decide a SUBSCRIBE, and find the presence that is kept under its filters, to be sent behind the SUBACK."""
    reasons: list[int] = []
    fresh: dict[str, Subscription] = {}
    for wanted in packet.filters[: around.limits.filters_in_a_packet]:
        is_new = wanted.topic_filter not in session.subscriptions
        reason, granted = _decide(around, session, packet, wanted)
        reasons.append(reason)
        if granted is not None and wanted.retain_handling != _NEVER and (is_new or wanted.retain_handling != _IF_NEW):
            fresh[granted.topic_filter] = granted
    reasons += [Reason.QUOTA_EXCEEDED] * (len(packet.filters) - len(reasons))
    return p.SubAck(packet.packet_id, tuple(reasons)), _kept(around, fresh)


def unsubscribe(around: Surroundings, session: Session, packet: p.Unsubscribe) -> p.UnsubAck:
    """Take subscriptions away."""
    gone = (around.sessions.unsubscribe(session, one) for one in packet.filters)
    return p.UnsubAck(
        packet.packet_id, tuple(Reason.SUCCESS if one else Reason.NO_SUBSCRIPTION_EXISTED for one in gone)
    )


def _decide(
    around: Surroundings, session: Session, packet: p.Subscribe, wanted: p.Filter
) -> tuple[int, Subscription | None]:
    """Decide one filter: the granted QoS, or the reason why it is not (3.9.3)."""
    topic_filter, limits = wanted.topic_filter, around.limits
    if (problem := filter_problem(topic_filter, limits.filter_levels, limits.filter_bytes)) is not None:
        return problem, None
    if not around.application.may_subscribe(session.who, topic_filter):
        return Reason.NOT_AUTHORIZED, None
    identifiers = packet.properties.subscription_ids
    subscription = Subscription(
        topic_filter,
        min(wanted.qos, 1),
        wanted.no_local,
        identifiers[0] if identifiers else None,
        wanted.retain_as_published,
    )
    if not around.sessions.subscribe(session, subscription):
        return Reason.QUOTA_EXCEEDED, None
    return subscription.qos, subscription


def _kept(around: Surroundings, fresh: Mapping[str, Subscription]) -> list[Message]:
    # As if it had been published at QoS 0: thousands of them go out at once, over a queue of a hundred and a window.
    return [
        Message(
            topic=presence.topic,
            payload=presence.payload,
            qos=0,
            retain=True,
            expires_at=presence.expires_at,
            subscription_ids=() if (identifier := fresh[topic_filter].identifier) is None else (identifier,),
        )
        for topic_filter, presence in around.presences.matching(fresh, around.monotonic())
    ]
