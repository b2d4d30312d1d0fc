"""What the bridge subscribes to, and what a message from the broker is about. Pure, but for who holds which grant.

On the bridge the sender is the topic's device level, as the broker's access list guarantees it. In the short form it is
the one active device whose grants name exactly that workflow and key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from devices.grants import ANY, SignalGrant
from devices.model import Device, Entry
from devices.registry import Registry
from engine.names import is_name
from gateway.bridge.connection import Subscription

SIGNALS: Final = "d/+/signals/#"
RUNS: Final = "d/+/runs/#"
QUESTIONS: Final = "d/+/get/#"
STATUS: Final = "d/+/status"
SHORT: Final = "signals/#"
# Stands for the filters that have no marker of their own.
OWN: Final = ""
# No device has this name, so that a marker is nobody's message.
NOBODY: Final = "-"


class FromDevice(Struct, frozen=True):
    """A message on a device's own topics; `topic` is without `d/<device>/`."""

    device: str
    topic: str


@dataclass(frozen=True, slots=True)
class Short:
    """A signal in the short form: who sends it, the grants say."""

    workflow: str
    key: str


@dataclass(frozen=True, slots=True)
class Marker:
    """What the bridge has sent itself, behind everything that the broker held under `topic_filter`."""

    topic_filter: str
    nonce: str


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Any other topic: a map's, or nobody's."""


@dataclass(frozen=True, slots=True)
class Nonsense:
    """A topic that the bridge subscribes to and that names no device or no key."""


# What the topic of every marker begins with.
MARKED: Final = (f"d/{NOBODY}/", f"signals/{NOBODY}/", "gateway/")

Incoming = FromDevice | Short | Marker | Elsewhere | Nonsense


def read(topic: str) -> Incoming:
    """Tell what a message is about by its topic."""
    levels = topic.split("/")
    match levels:
        case ["d", nobody, kind, _, nonce] if nobody == NOBODY:
            return Marker(f"d/+/{kind}/#", nonce)
        case ["signals", nobody, _, nonce] if nobody == NOBODY:
            return Marker(SHORT, nonce)
        case ["gateway", _, "marker", nonce]:
            return Marker(OWN, nonce)
        case ["d", device, *rest] if rest and is_name(device):
            return FromDevice(device, "/".join(rest))
        case ["signals", workflow, key] | ["signals", workflow, key, _] if is_name(workflow) and is_name(key):
            return Short(workflow, key)
        case ["d" | "signals" | "gateway", *_] | [""]:
            return Nonsense()
        case _:
            return Elsewhere()


def marker_topic(topic_filter: str, client_id: str, nonce: str) -> str:
    """Name a topic that `topic_filter` matches and no device publishes on; a map's filter has the bridge's own."""
    if topic_filter == SHORT:
        return f"signals/{NOBODY}/{client_id}/{nonce}"
    if topic_filter.startswith("d/+/") and topic_filter.endswith("/#"):
        return f"d/{NOBODY}/{topic_filter.split('/')[2]}/{client_id}/{nonce}"
    return f"gateway/{client_id}/marker/{nonce}"


def marker_filter(client_id: str) -> str:
    """Name the filter of the bridge's own markers, which is shared with nobody."""
    return f"gateway/{client_id}/marker/+"


def status_topic(client_id: str) -> str:
    """Name where the bridge says, retained, whether it is there."""
    return f"gateway/{client_id}/status"


def subscriptions(client_id: str, *, short_form: bool, maps: Iterable[str], share: str = "") -> list[Subscription]:
    """List the filters; those of maps come without the retain flag, since state topics are retained by habit."""
    own = [SIGNALS, RUNS, QUESTIONS, *([SHORT] if short_form else [])]
    before = f"$share/{share}/" if share else ""
    wanted = [Subscription(before + topic_filter, as_published=True) for topic_filter in own]
    wanted.append(Subscription(before + STATUS))
    wanted.append(Subscription(marker_filter(client_id)))
    return wanted + [Subscription(before + topic_filter) for topic_filter in maps]


class ShortForm:
    """Who signals a key in the short form: the one active device with a grant on exactly that workflow and key."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._holders: dict[tuple[str, str], list[str]] | None = None
        registry.watch(self._changed)

    def _changed(self, before: Entry | None, after: Entry | None) -> None:
        if isinstance(before or after, Device):
            self._holders = None

    def senders(self, workflow: str, key: str) -> list[str]:
        """Name the devices that the signal could be from; it is taken when there is exactly one."""
        if self._holders is None:
            self._holders = {}
            for device in self._registry.devices():
                for at in _exact(device):
                    self._holders.setdefault(at, []).append(device.name)
        return self._holders.get((workflow, key), [])


def _exact(device: Device) -> Iterator[tuple[str, str]]:
    if device.active and device.secrets:
        for grant in device.grants:
            if isinstance(grant, SignalGrant) and grant.key is not None and ANY not in {grant.workflow, grant.key}:
                yield grant.workflow, grant.key
