"""The MQTT door: what the listener asks of the application, in terms of `deliver`, grants and limits.

It turns topics into requests and answers into replies and reason codes, and closes the connections of devices that are
no longer allowed to have them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from devices.model import Device, Entry
from devices.registry import Registry
from engine.clock import Source
from engine.limits import MAX_PAYLOAD_BYTES
from gateway import audit as log
from gateway.answers import TITLES, BadTopic, RateLimited, Stopping, StoreAway, Words, mqtt_payload, mqtt_reason, say
from gateway.auth import Authority, Principal, Rejected
from gateway.deliver import Deliver, Delivered, Origin
from gateway.limits import Allowed, DeviceLimits, Limited, Seldom
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
from gateway.maps import Mapped, Maps
from gateway.topics import (
    OffMap,
    RunTopic,
    SignalTopic,
    StatusTopic,
    Topic,
    WaitsTopic,
    canonical,
    is_own_replies,
    parse_topic,
    reply_topic,
)

OFF_MAP_ANSWER_SECONDS: Final = 60.0
SIGNAL_ID_PROPERTY: Final = "signal-id"
_ENDS_AS_USUAL: Final = frozenset({"disconnected", "closed", "keep_alive", "taken_over", "stopping"})


class Connections(Protocol):
    """As much of the listener as is needed to put a change into force."""

    def close_device(self, device: str) -> int: ...

    def close_connections(self, device: str, ended: Callable[[Admitted], bool]) -> int: ...

    def recheck_device(self, device: str, who: Admitted) -> None: ...


class MqttDoor:
    """The listener's `Application`. `attach` the listener once it exists; before that nothing is connected."""

    def __init__(
        self,
        deliver: Deliver,
        authority: Authority,
        limits: DeviceLimits,
        audit: log.Audit,
        source: Source,
        *,
        door: log.Door = "mqtt",
        maps: Maps | None = None,
    ) -> None:
        self._door = door
        self._maps = maps or Maps()
        self._deliver = deliver
        self._authority = authority
        self._limits = limits
        self._audit = audit
        self._source = source
        self._off_map = Seldom(OFF_MAP_ANSWER_SECONDS)
        self._connections: Connections | None = None

    def attach(self, connections: Connections, registry: Registry) -> None:
        """Have changes of the registry reach the open connections."""
        self._connections = connections
        registry.watch(self._heard)

    # -- connecting --------------------------------------------------------------------------------------------------

    async def connect(
        self,
        *,
        username: str | None,
        password: bytes | None,
        certificate: Certificate | None,
        client_id: str,  # noqa: ARG002 - carries no authority
        address: str,
    ) -> Admitted | Denied:
        """Authenticate a device; bans and rates count only against one that has proved who it is.

        A token counts if one is given, else the certificate.
        """
        if certificate is not None and not password:
            who = await self._authority.certificate(
                certificate.names, certificate.good_since, username, address=address
            )
        else:
            who = await self._authority.device(username, password, address=address)
        if isinstance(who, Rejected):
            self._login_refused(who.reason, who.name, address)
            # Too many failures are failures still: who mends the token is to see that it was the token.
            return Denied("bad_credentials" if who.reason == "rate" else who.reason)
        now = self._source.monotonic()
        device = self._authority.standing(who)
        if not isinstance(device, Device):
            return Denied("bad_credentials")
        match self._limits.take(who.id, "connects", now, device.limits):
            case Allowed():
                return Admitted(who.id, who)
            case Limited(limit=limit, close=close):
                banned = close or limit == "banned"
                self._login_refused("banned" if banned else "rate", who.id, address)
                return Denied("banned" if banned else "rate")

    def connected(self, who: Admitted, client_id: str, address: str) -> None:  # noqa: ARG002
        """Take note of a connection."""
        principal = _principal(who)
        self._authority.saw("device", who.device)
        self._audit.add(log.Entry(action="login.accepted", principal=str(principal), door="mqtt", address=address))
        if self._authority.standing(principal) is None:
            # The credential ended between CONNECT and now.
            self._close_ended(who.device)

    def disconnected(self, who: Admitted, client_id: str, address: str, reason: EndReason) -> None:  # noqa: ARG002
        """Take note of a connection's end; one for an unusual reason is an event."""
        principal = _principal(who)
        self._authority.saw("device", who.device)
        if reason not in _ENDS_AS_USUAL:
            entry = log.Entry(
                action="device.disconnected", result=reason, principal=str(principal), door="mqtt", address=address
            )
            self._audit.refuse(entry)

    def refused(self, reason: RefusalReason, device: str, address: str) -> None:
        """Take note of a CONNECT over one of the listener's own limits."""
        self._login_refused(reason, device, address)

    def will_dropped(self, who: Admitted, topic: str) -> None:  # noqa: ARG002 - a topic may hold anything
        """Take note of a will that is not published."""
        self._audit.refuse(log.Entry(action="device.will_dropped", principal=str(_principal(who)), door="mqtt"))

    def presence(self, who: Admitted, payload: bytes) -> None:  # noqa: ARG002 - a payload is written nowhere
        """Take note of a will on `status`."""
        self._authority.saw("device", who.device)

    def _login_refused(self, reason: str, name: str, address: str) -> None:
        principal = f"device:{name or '?'}"
        entry = log.Entry(action="login.refused", result=reason, principal=principal, door="mqtt", address=address)
        self._audit.refuse(entry)

    # -- subscribing -------------------------------------------------------------------------------------------------

    def may_subscribe(self, who: Admitted, topic_filter: str) -> bool:
        """Allow a device its own replies and what its `listen` grants cover, as they are now."""
        principal = _principal(who)
        if is_own_replies(topic_filter, who.device):
            return self._authority.standing(principal) is not None
        return self._authority.may_listen(principal, topic_filter)

    # -- publishing --------------------------------------------------------------------------------------------------

    async def publish(
        self, who: Admitted, message: Published, *, address: str, origin: Origin | None = None
    ) -> Handled:
        """Decide a PUBLISH; raises `Unavailable` when nothing durable was decided.

        `origin` is given where a broker stands between: what its queue has made of the message.
        """
        origin = origin or Origin(door=self._door, address=address)
        about = _addressed(parse_topic(message.topic, who.device), message)
        match about:
            case SignalTopic() | RunTopic() | WaitsTopic():
                delivered = await self._ask(_principal(who), about, message, origin)
                return self._handled(who, about, message, delivered)
            case StatusTopic():
                return self._status(who, message)
            case OffMap():
                if tried := list(self._maps.tried(message.topic, message.payload, via=who.device)):
                    mapped = [it.mapped for it in tried if it.mapped is not None]
                    return await self._map(mapped, origin) if mapped else self._counted(who, Handled())
                return self._answer_off_map(who, about, message, address)

    async def _map(self, mapped: list[Mapped], origin: Origin) -> Handled:
        """Deliver what the configuration's maps make of a PUBLISH, as if the mapped devices had sent it.

        They are answered, too; whoever has published is told no more than that it arrived.
        """
        replies: list[Reply] = []
        for it in mapped:
            principal = self._authority.vouched_for(it.device)
            about, message = parse_topic(it.topic, it.device), Published(it.topic, it.payload, 1)
            assert isinstance(about, SignalTopic)
            delivered = await self._ask(principal, about, message, origin)
            handled = self._handled(Admitted(it.device, principal), about, message, delivered)
            replies += [msgspec.structs.replace(reply, device=it.device) for reply in handled.replies]
        return Handled(tuple(replies))

    def _status(self, who: Admitted, message: Published) -> Handled:
        """Take note of what a device says of itself, within its rate and the size of a signal."""
        if self._authority.standing(_principal(who)) is not None:
            self._authority.saw("device", who.device)
        if len(message.payload) > MAX_PAYLOAD_BYTES:
            return self._counted(who, _acknowledge(Words(code=413, error="payload_too_large"), ()))
        return self._counted(who, Handled(presence=message.payload))

    def _counted(self, who: Admitted, handled: Handled) -> Handled:
        """Count a PUBLISH that is no signal as one: `handled` as long as the device keeps to its rate."""
        limited = self._within_rate(who)
        return handled if limited is None else _acknowledge(say(limited, reader=False), ())

    async def _ask(
        self, principal: Principal, about: SignalTopic | RunTopic | WaitsTopic, message: Published, origin: Origin
    ) -> Delivered:
        raw, retained = message.payload, message.retain
        match about:
            case SignalTopic(workflow=workflow, key=key, signal_id=signal_id):
                return await self._deliver.signal(
                    principal, origin, workflow=workflow, key=key, raw=raw, signal_id=signal_id, retained=retained
                )
            case RunTopic(workflow=workflow, signal_id=signal_id):
                return await self._deliver.start_run(
                    principal, origin, workflow=workflow, raw=raw, signal_id=signal_id, retained=retained
                )
            case WaitsTopic(workflow=workflow):
                return await self._deliver.waits(principal, origin, workflow=workflow, raw=raw)

    def _handled(self, who: Admitted, about: Topic, message: Published, delivered: Delivered) -> Handled:
        answer = delivered.answer
        away = answer if isinstance(answer, StoreAway) else StoreAway()
        if delivered.words.code == 503 and not away.unreadable:
            # MQTT has no words for it: the connection is closed unacknowledged, and the device sends again. Over a
            # record that nobody can read it would do so for ever, and nothing else of it would get through.
            raise Unavailable(stopping=isinstance(answer, Stopping), uncertain=away.uncertain)
        if delivered.close:
            self._close(who.device)
        replies = (_reply(who, about, message, delivered.words, delivered.id),) if delivered.answer_it else ()
        return _acknowledge(delivered.words, replies)

    def refuse(self, who: Admitted, message: Published, hint: str, *, address: str) -> Handled:
        """Refuse a PUBLISH for its form, which `hint` tells: answered at most once a minute."""
        return self._answer_off_map(who, OffMap(hint), message, address)

    def _answer_off_map(self, who: Admitted, about: OffMap, message: Published, address: str) -> Handled:
        """Drop a PUBLISH that means nothing here, and say so at most once a minute."""
        answer = self._within_rate(who) or BadTopic(about.hint)
        words = say(answer, reader=False)
        entry = log.Entry(
            action="topic.refused",
            result=words.error,
            principal=str(_principal(who)),
            door=self._door,
            address=address,
            bytes=len(message.payload),
        )
        self._audit.refuse(entry)
        due = isinstance(answer, BadTopic) and self._off_map.due(who.device, self._source.monotonic())
        return _acknowledge(words, (_reply(who, about, message, words, "-"),) if due else ())

    def _within_rate(self, who: Admitted) -> RateLimited | None:
        """Count a PUBLISH that is no signal as one: a flood of them is one all the same."""
        device = self._authority.standing(_principal(who))
        if not isinstance(device, Device):
            return None
        match self._limits.take(who.device, "signals", self._source.monotonic(), device.limits):
            case Allowed():
                return None
            case Limited(limit=limit, retry_after_seconds=seconds, close=close):
                if close:
                    self._close(who.device)
                return RateLimited(limit=limit, retry_after_seconds=seconds)

    # -- changes of the registry ---------------------------------------------------------------------------------------

    def _heard(self, before: Entry | None, after: Entry | None) -> None:
        entry = after or before
        if not isinstance(entry, Device):
            return
        name = entry.name
        if not isinstance(after, Device) or not after.active or not after.secrets:
            self._close(name)
            if after is None or after.state == "deleted":
                # Whoever gets the name next begins afresh.
                self._limits.forget(name)
            return
        self._close_ended(name)
        if isinstance(before, Device) and before.limits != after.limits:
            self._limits.forget(name)
        if self._connections is not None and (not isinstance(before, Device) or before.grants != after.grants):
            self._connections.recheck_device(name, Admitted(name, self._authority.vouched_for(name)))

    def _close(self, device: str) -> None:
        if self._connections is not None:
            self._connections.close_device(device)

    def _close_ended(self, device: str) -> None:
        """Close the connections whose own credential has ended: of two tokens, one may be in force still."""
        if self._connections is not None:
            self._connections.close_connections(device, lambda who: self._authority.standing(_principal(who)) is None)


def _principal(who: Admitted) -> Principal:
    assert isinstance(who.principal, Principal)
    return who.principal


def _addressed(about: Topic, message: Published) -> Topic:
    """Add the signal id that MQTT 5 carries as a user property; two different ids are none."""
    if not isinstance(about, SignalTopic):
        return about
    if not message.user_properties:
        return about
    ids = {value for name, value in message.user_properties if name == SIGNAL_ID_PROPERTY}
    if about.signal_id is not None:
        ids.add(about.signal_id)
    if len(ids) > 1:
        return OffMap("one signal id: in the topic or as the user property signal-id")
    return SignalTopic(about.workflow, about.key, next(iter(ids), None))


def _reply(who: Admitted, about: Topic, message: Published, words: Words, request_id: str) -> Reply:
    topic = reply_topic(about, accepted=words.ok)
    given = message.response_topic
    response = given if given is not None and is_own_replies(given, who.device) else None
    correlation = message.correlation_data
    payload = mqtt_payload(
        words,
        request_id,
        topic=response or canonical(who.device, topic),
        correlation_bytes=len(correlation) if correlation else 0,
    )
    return Reply(topic, payload, correlation_data=correlation, response_topic=response)


def _acknowledge(words: Words, replies: tuple[Reply, ...]) -> Handled:
    return Handled(replies, mqtt_reason(words), TITLES[words.error] if words.error else "")
