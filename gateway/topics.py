"""The topic map of devices: what a device's PUBLISH is about, and where it is answered. Parsed once, at the door.

Every topic has a canonical form, `d/<device>/…`, and a short one without that head, since the connection says who
publishes. Another device's head is off the map like any other topic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from msgspec import Struct

from engine.names import is_name, is_signal_id

Subject = Literal["signals", "runs", "waits", "-"]
NOWHERE: Final = "-"
STATUS_TOPIC: Final = "status"


class SignalTopic(Struct, frozen=True):
    """`signals/<workflow>/<key>[/<signal-id>]`."""

    workflow: str
    key: str
    signal_id: str | None = None


@dataclass(frozen=True, slots=True)
class RunTopic:
    """`runs/<workflow>/<signal-id>`: the run's id derives from it."""

    workflow: str
    signal_id: str


@dataclass(frozen=True, slots=True)
class WaitsTopic:
    """`get/waits/<workflow>`."""

    workflow: str


@dataclass(frozen=True, slots=True)
class StatusTopic:
    """`status`: the device's presence."""


@dataclass(frozen=True, slots=True)
class OffMap:
    """Anything else; `hint` is the form that was probably meant. It quotes nothing of what was sent."""

    hint: str


Topic = SignalTopic | RunTopic | WaitsTopic | StatusTopic | OffMap

_SIGNAL: Final = "signals/<workflow>/<key> or signals/<workflow>/<key>/<signal-id>"
_RUN: Final = "runs/<workflow>/<signal-id>"
_WAITS: Final = "get/waits/<workflow>"
_NAMES: Final = "; names: a-z 0-9 _ -"


def parse_topic(topic: str, device: str) -> Topic:
    """Read the topic of a PUBLISH that `device` sent, in either form."""
    levels = topic.split("/")
    if levels[:2] == ["d", device]:
        levels = levels[2:]
    match levels:
        case ["signals", workflow, key] if is_name(workflow) and is_name(key):
            return SignalTopic(workflow, key)
        case ["signals", workflow, key, signal_id] if is_name(workflow) and is_name(key) and is_signal_id(signal_id):
            return SignalTopic(workflow, key, signal_id)
        case ["signals", *_]:
            return OffMap(_SIGNAL + _NAMES)
        case ["runs", workflow, signal_id] if is_name(workflow) and is_signal_id(signal_id):
            return RunTopic(workflow, signal_id)
        case ["runs", *_]:
            return OffMap(_RUN + _NAMES)
        case ["get", "waits", workflow] if is_name(workflow):
            return WaitsTopic(workflow)
        case ["get", *_]:
            return OffMap(_WAITS + _NAMES)
        case [level] if level == STATUS_TOPIC:
            return StatusTopic()
        case _:
            return OffMap(_SIGNAL)


def reply_topic(about: Topic, *, accepted: bool) -> str:
    """Name where a PUBLISH is answered: the canonical topic without `d/<device>/`."""
    match about:
        case SignalTopic(workflow=workflow, key=key):
            return _reply("signals", workflow, key, accepted=accepted)
        case RunTopic(workflow=workflow):
            return _reply("runs", workflow, NOWHERE, accepted=accepted)
        case WaitsTopic(workflow=workflow):
            return _reply("waits", workflow, NOWHERE, accepted=accepted)
        case StatusTopic() | OffMap():
            return _reply("-", NOWHERE, NOWHERE, accepted=accepted)


def _reply(subject: Subject, workflow: str, key: str, *, accepted: bool) -> str:
    return f"replies/{subject}/{workflow}/{key}/{'accepted' if accepted else 'rejected'}"


def canonical(device: str, topic: str) -> str:
    """Give the long form of a device's own topic."""
    return f"d/{device}/{topic}"


def is_own_replies(topic_filter: str, device: str) -> bool:
    """Tell whether a filter or topic stays within the device's own `replies/`, in either form."""
    levels = topic_filter.split("/")
    if levels[:2] == ["d", device]:
        levels = levels[2:]
    return levels[0] == "replies" and len(levels) > 1
