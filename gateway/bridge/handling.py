"""What becomes of one message from the broker: the same use case as at the other MQTT door, under the same limits.

Nothing that the broker lets through is believed but the topic's device level: the device has to be there, active and
with a token that has not ended, at every message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from devices.registry import Registry
from engine.clock import Source
from engine.errors import StoreUnavailable
from gateway import audit as log
from gateway import logs
from gateway.auth import Authority, Principal
from gateway.bridge.heard import Heard
from gateway.bridge.topics import Elsewhere, FromDevice, Marker, Nonsense, Short, ShortForm, read
from gateway.deliver import Origin
from gateway.limits import Seldom
from gateway.listener.port import Admitted, Handled, Published, Reply, Unavailable
from gateway.maps import Maps
from gateway.mqtt_door import SIGNAL_ID_PROPERTY, MqttDoor
from gateway.topics import STATUS_TOPIC, SignalTopic, canonical, parse_topic

RETRY_SECONDS: Final = 0.25
MAX_RETRY_SECONDS: Final = 5.0
UNKNOWN_ANSWER_SECONDS: Final = 1.0
# After this long without the store, the log says what the broker is kept waiting for; once in so many seconds.
SLOW_SECONDS: Final = 10.0
TELL_SECONDS: Final = 60.0
_MAX_TOPIC_BYTES: Final = 65_535  # MQTT 5, 1.5.4
_log = logs.get_logger("bridge")
_NEEDS_ID: Final = "over a shared subscription a signal needs an id: signals/<workflow>/<key>/<signal-id>"


class Outgoing(Struct, frozen=True):
    """A message for the broker, at QoS 0; `retain` only to clear a retained one."""

    topic: str
    payload: bytes
    retain: bool = False
    correlation_data: bytes | None = None


class Parcel(Struct, frozen=True):
    """A device's message, whoever's topic it came on."""

    device: str
    message: Published


class Handling:
    """Decides messages. `replays`: the broker marks only what it replays as retained, as over MQTT 3.1.1."""

    def __init__(
        self,
        door: MqttDoor,
        *,
        authority: Authority,
        registry: Registry,
        audit: log.Audit,
        source: Source,
        maps: Maps,
        address: str,
        short_form: bool = True,
        ids_required: bool = False,
    ) -> None:
        self._door = door
        self._authority = authority
        self._registry = registry
        self._audit = audit
        self._source = source
        self._maps = maps
        self._address = address
        self._short = ShortForm(registry) if short_form else None
        self._ids_required = ids_required
        self._looked = Seldom(UNKNOWN_ANSWER_SECONDS, capacity=1)
        self._unknown = Seldom(UNKNOWN_ANSWER_SECONDS)
        self._named = Seldom(UNKNOWN_ANSWER_SECONDS, capacity=1)
        self._told = Seldom(TELL_SECONDS, capacity=1)

    async def decide(
        self,
        heard: Heard,
        *,
        age_seconds: float,
        is_stale: Callable[[float], bool],
        replays: bool,
        stopped: Callable[[], bool],
    ) -> list[Outgoing]:
        """Decide a message, durably, trying again while the store is away; raises `Unavailable` once `stopped`.

        It grows older meanwhile, unless an attempt may have landed: that one was in time.
        """
        out, parcels = self._opened(heard, replays=replays)
        began = self._source.monotonic()
        for parcel in parcels:
            age, landed, again, wait = age_seconds, False, False, RETRY_SECONDS
            while True:
                stale = not landed and is_stale(age)
                origin = Origin(door="bridge", address=self._address, age_seconds=age, stale=stale, again=again)
                try:
                    out += await self._publish(parcel, origin)
                    break
                except Unavailable as fault:
                    if fault.stopping or stopped():
                        raise
                    landed = landed or fault.uncertain
                await asyncio.sleep(wait)
                again, wait = True, min(MAX_RETRY_SECONDS, wait * 2)
                waited = self._source.monotonic() - began
                self._tell_of_delay(waited)
                age = age if landed else age_seconds + waited
        return out

    def _tell_of_delay(self, seconds: float) -> None:
        if seconds >= SLOW_SECONDS and self._told.due("", self._source.monotonic()):
            _log.warning("the store takes no message; the broker keeps what comes", seconds=round(seconds))

    def _opened(self, heard: Heard, *, replays: bool) -> tuple[list[Outgoing], Sequence[Parcel]]:
        """Tell whose messages are in it, and what has to be cleared at the broker."""
        match read(heard.topic):
            case FromDevice(device=device, topic=topic):
                return self._own(device, topic, heard, replays=replays)
            case Short(workflow=workflow, key=key):
                senders = self._short.senders(workflow, key) if self._short else []
                if len(senders) == 1:
                    return self._own(senders[0], heard.topic, heard, replays=replays)
                if heard.payload:
                    self._drop("signal.refused", "two_senders" if senders else "no_sender", heard, workflow, key)
                return [], ()
            case Elsewhere() if heard.retain and replays:
                return [], ()
            case Elsewhere():
                mapped = self._maps.read(heard.topic, heard.payload)
                return [], [Parcel(it.device, Published(it.topic, it.payload, 1)) for it in mapped]
            case Nonsense():
                self._drop("topic.refused", "bad_topic" if heard.topic else "malformed", heard)
                return [], ()
            case Marker():
                return [], ()

    def _own(self, device: str, topic: str, heard: Heard, *, replays: bool) -> tuple[list[Outgoing], Sequence[Parcel]]:
        if topic == STATUS_TOPIC:
            return [], () if heard.retain and replays else (Parcel(device, _published(topic, heard)),)
        if not heard.payload and (heard.retain or not topic.startswith("get/")):
            # What clears a retained message, ours included: no signal, no run and no question.
            return [], ()
        clear = [Outgoing(heard.topic, b"", retain=True)] if heard.retain else []
        if heard.retain and replays:
            self._drop("topic.refused", "retained_not_allowed", heard)
            return clear, ()
        return clear, (Parcel(device, _published(topic, heard)),)

    async def _publish(self, parcel: Parcel, origin: Origin) -> list[Outgoing]:
        who = await self._principal(parcel.device)
        admitted, message = Admitted(parcel.device, who), parcel.message
        known = self._authority.standing(who) is not None
        if known:
            self._authority.saw("device", parcel.device)
        if self._ids_required and _lacks_id(message, parcel.device):
            handled = self._door.refuse(admitted, message, _NEEDS_ID, address=self._address)
        else:
            handled = await self._door.publish(admitted, message, address=self._address, origin=origin)
        return self._within_reason(parcel, handled, known=known)

    def _within_reason(self, parcel: Parcel, handled: Handled, *, known: bool) -> list[Outgoing]:
        """Give the replies; nobody has the gateway send as much as they like to topics that no device has."""
        replies = _replies(parcel.device, handled)
        if known or not replies or self._unknown.due(parcel.device, self._source.monotonic()):
            return replies
        nobody = self._registry.device(parcel.device) is None
        return [] if nobody or not _has_id(parcel.message) else replies

    async def _principal(self, device: str) -> Principal:
        if self._registry.device(device) is None and self._looked.due("", self._source.monotonic()):
            # Another process may just have added it.
            try:
                await self._registry.refresh()
            except StoreUnavailable:
                raise Unavailable from None
        return self._authority.vouched_for(device)

    def _drop(self, action: str, reason: str, heard: Heard, workflow: str = "", key: str = "") -> None:
        if workflow and not self._named.due("", self._source.monotonic()):
            # Whoever makes names up fills no log: without them it is one refusal, repeated.
            workflow = key = ""
        entry = log.Entry(
            action=action,
            result="dropped",
            reason=reason,
            workflow=workflow,
            key=key,
            door="bridge",
            address=self._address,
            bytes=len(heard.payload),
        )
        self._audit.refuse(entry)


def _published(topic: str, heard: Heard) -> Published:
    return Published(
        topic,
        heard.payload,
        1 if heard.mid else 0,
        retain=heard.retain,
        dup=heard.dup,
        response_topic=heard.response_topic,
        correlation_data=heard.correlation_data,
        user_properties=heard.user_properties,
    )


def _has_id(message: Published) -> bool:
    named = message.topic.count("/") > (1 if message.topic.startswith("runs/") else 2)
    return named or any(name == SIGNAL_ID_PROPERTY for name, _ in message.user_properties)


def _lacks_id(message: Published, device: str) -> bool:
    about = parse_topic(message.topic, device)
    return isinstance(about, SignalTopic) and not _has_id(message)


def _replies(device: str, handled: Handled) -> list[Outgoing]:
    return [Outgoing(_where(device, it), it.payload, correlation_data=it.correlation_data) for it in handled.replies]


def _where(device: str, reply: Reply) -> str:
    """Name the topic of a reply: always in the canonical form, since other devices share the broker."""
    wanted = reply.response_topic
    if wanted is None or not wanted.isprintable() or any(character in "+#" for character in wanted):
        return canonical(device, reply.topic)
    topic = wanted if wanted.startswith(f"d/{device}/") else canonical(device, wanted)
    return topic if len(topic.encode()) <= _MAX_TOPIC_BYTES else canonical(device, reply.topic)
