"""Topic aliases of MQTT 5 (section 3.3.2.3.4), one table a direction and connection."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gateway.listener.codec import PacketError, Reason
from gateway.listener.codec.packets import Publish
from gateway.listener.codec.reasons import violation


class IncomingAliases:
    """The aliases that a client has set, 1 to `maximum`."""

    __slots__ = ("_maximum", "_topics")

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._topics: dict[int, str] | None = None

    def resolve(self, topic: str, alias: int | None) -> str:
        """Return the topic that is meant, remembering a new alias. Raises `PacketError` for one that is not valid."""
        if alias is None:
            return topic
        if not 0 < alias <= self._maximum:
            raise PacketError(Reason.TOPIC_ALIAS_INVALID, "a topic alias is above the maximum (3.3.2.3.4)")
        if topic:
            self._topics = self._topics or {}
            self._topics[alias] = topic
            return topic
        if self._topics is None or alias not in self._topics:
            raise violation("a topic alias was never set (3.3.2.3.4)")
        return self._topics[alias]


class OutgoingAliases:
    """The aliases for topics sent to a client: the first `maximum` topics get one each."""

    __slots__ = ("_aliases", "_maximum")

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._aliases: dict[str, int] = {}

    def shorten(self, publish: Publish) -> tuple[Publish, Callable[[], None] | None]:
        """Return the packet to send, and what to call once it has been sent: before, the client knows no alias."""
        topic = publish.topic
        alias = self._aliases.get(topic)
        if alias is None and len(self._aliases) >= self._maximum:
            return publish, None
        new = alias is None
        number = len(self._aliases) + 1 if alias is None else alias
        shorter = msgspec.structs.replace(
            publish,
            topic=topic if new else "",
            properties=msgspec.structs.replace(publish.properties, topic_alias=number),
        )
        return shorter, (lambda: self._aliases.__setitem__(topic, number)) if new else None
