"""What a device may publish and hear at a broker, in MQTT's words. One source for every export and for every question.

The canonical topics are the same for every device but for its name, so that a broker with patterns needs no new rules
when grants change; whether a device may signal a key is the gateway's to check, at every message. The short form and
`listen` follow the grants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from devices.grants import ANY, ListenGrant, SignalGrant, covers
from devices.model import Device, Secret

BrokerKind = Literal["mosquitto", "emqx", "nats"]
BROKERS: Final[tuple[BrokerKind, ...]] = ("mosquitto", "emqx", "nats")

# Below `d/<device>/`.
PUBLISHES: Final = ("signals/#", "runs/#", "get/#", "status")
HEARS: Final = ("replies/#",)
# What every device may hear beside that: whether the gateway is there.
ANYONE_HEARS: Final = ("gateway/+/status",)
# The bridge: what devices send, its own markers, and what it clears. It publishes commands, which go anywhere else.
BRIDGE_HEARS: Final = ("d/+/signals/#", "d/+/runs/#", "d/+/get/#", "d/+/status", "signals/#", "gateway/+/marker/+")


@dataclass(frozen=True, slots=True)
class Access:
    """Topic filters that a device may publish to and subscribe to."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]

    def may_publish(self, topic: str) -> bool:
        """Tell whether a topic without wildcards is covered."""
        return "+" not in topic and "#" not in topic and any(covers(wide, topic) for wide in self.publish)

    def may_subscribe(self, topic_filter: str) -> bool:
        """Tell whether every topic of a filter is covered; a shared subscription is never."""
        return not topic_filter.startswith("$") and any(covers(wide, topic_filter) for wide in self.subscribe)


def access(device: Device) -> Access:
    """Give what a device may do at a broker, its own topics included."""
    return Access(
        publish=(*(f"d/{device.name}/{topic}" for topic in PUBLISHES), *short_form(device)),
        subscribe=(*(f"d/{device.name}/{topic}" for topic in HEARS), *ANYONE_HEARS, *listens(device)),
    )


def short_form(device: Device) -> tuple[str, ...]:
    """List the short topics of the keys that a device is granted by name, with and without a signal id."""
    exact = [
        f"signals/{it.workflow}/{it.key}"
        for it in device.grants
        if isinstance(it, SignalGrant) and it.key is not None and ANY not in {it.workflow, it.key}
    ]
    return tuple(topic for name in exact for topic in (name, f"{name}/+"))


def listens(device: Device) -> tuple[str, ...]:
    return tuple(it.topic_filter for it in device.grants if isinstance(it, ListenGrant))


@dataclass(frozen=True, slots=True)
class BridgeUser:
    """The gateway's own user at the broker. `maps` are the topics that the configuration's maps read."""

    name: str
    verifiers: dict[str, str] = field(default_factory=dict, repr=False)
    digest: str = field(default="", repr=False)
    maps: tuple[str, ...] = ()

    @property
    def hears(self) -> tuple[str, ...]:
        return (*BRIDGE_HEARS, *self.maps)


@dataclass(frozen=True, slots=True)
class File:
    """One file of an export; a secret one is for its owner's eyes alone."""

    name: str
    text: str = field(repr=False)
    secret: bool = False


@dataclass(frozen=True, slots=True)
class Export:
    """What there is to write, and what a person has to know: devices that will not get in, and why."""

    files: tuple[File, ...]
    warnings: tuple[str, ...] = ()


def newest(device: Device) -> Secret | None:
    """Choose the secret that goes to a broker, which takes one of them."""
    return max(device.secrets, key=lambda secret: secret.since, default=None)


def let_in(devices: Sequence[Device]) -> list[Device]:
    """List the devices that have a place at a broker: active and with a token."""
    return [device for device in devices if device.active and device.secrets]


def warnings(devices: Sequence[Device], *, lacking: Sequence[str], broker: BrokerKind) -> tuple[str, ...]:
    """Say which devices the broker will not know, or only by one of their tokens."""
    said = []
    if lacking:
        said.append(
            f"no verifier for {broker} is stored of: {', '.join(lacking)}; they are left out. Set "
            f'`verifiers = ["{broker}"]` under [bridge], then `wayside device rotate` each'
        )
    twice = [device.name for device in devices if len(device.secrets) > 1]
    if twice:
        said.append(f"{broker} knows the newer token alone of: {', '.join(twice)}")
    return tuple(said)
