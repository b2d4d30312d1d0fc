"""What devices have last said of themselves on `status` with RETAIN set (3.3.1.3), pure: for whoever subscribes later.

In memory like sessions: after a restart a device is heard of again when it connects again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from gateway.listener.limits import ListenerLimits


class Presence(msgspec.Struct, frozen=True):
    """A retained message; `expires_at` is on the listener's monotonic clock."""

    topic: str
    payload: bytes
    expires_at: float | None = None


def presence_topic(device: str) -> str:
    """Name the topic that others hear a device's presence on."""
    return f"d/{device}/status"


_EVERY: Final = presence_topic("+")


class Presences:
    """The last retained presence of each device; the one kept longest goes when there are too many."""

    def __init__(self, limits: ListenerLimits) -> None:
        self._limits = limits
        self._kept: dict[str, Presence] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, device: str, payload: bytes, expires_at: float | None) -> None:
        """Keep a retained message in place of the one before; an empty one, or one that is too long, only ends that."""
        topic = presence_topic(device)
        self._kept.pop(topic, None)
        if not payload or len(payload) > self._limits.presence_bytes:
            return
        self._kept[topic] = Presence(topic, payload, expires_at)
        if len(self._kept) > self._limits.presences:
            del self._kept[next(iter(self._kept))]

    def forget(self, device: str) -> None:
        """Keep nothing of a device: it is revoked, or gone."""
        self._kept.pop(presence_topic(device), None)

    def matching(self, topic_filters: Iterable[str], now: float) -> Iterator[tuple[str, Presence]]:
        """Yield what is kept for a SUBSCRIBE's filters, once and as far as its bound of bytes goes, with its filter.

        A filter is one device's presence or every device's: nothing else under `d/` is anybody's to hear.
        """
        left, shown = self._limits.presence_burst_bytes, set[str]()
        for topic_filter in dict.fromkeys(topic_filters):
            one = self._kept.get(topic_filter)
            for presence in self._kept.values() if topic_filter == _EVERY else () if one is None else (one,):
                if presence.topic in shown or (presence.expires_at is not None and presence.expires_at <= now):
                    continue
                shown.add(presence.topic)
                left -= len(presence.topic) + len(presence.payload)
                if left < 0:
                    return
                yield topic_filter, presence
