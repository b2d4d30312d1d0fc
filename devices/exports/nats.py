"""NATS: users with bcrypt passwords and permissions on subjects, as one `authorization` block."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from devices.exports.access import BridgeUser, Export, File, access, let_in, newest, warnings
from devices.model import Device

# An MQTT session's own subjects: without them no subscription at QoS 1 is granted. They are the server's to name.
_OWN = ("$MQTT.sub.>",)
_FORBIDDEN = frozenset(".*> \t")


def export(devices: Sequence[Device], bridge: BridgeUser) -> Export:
    """Write the file. After a change `nats-server --signal reload` takes it; users that are gone are disconnected."""
    known = [(device, secret.verifiers.get("nats")) for device in let_in(devices) if (secret := newest(device))]
    lacking = [device.name for device, verifier in known if verifier is None]
    said = warnings([it for it, verifier in known if verifier], lacking=lacking, broker="nats")
    users = [_device(device, verifier) for device, verifier in known if verifier is not None]
    if "nats" in bridge.verifiers:
        users.insert(0, _user(bridge.name, bridge.verifiers["nats"], [">"], bridge.hears))
    else:
        said += (f"the bridge's user {bridge.name} is left out: no password is configured for it",)
    unsafe = sorted({topic for device, _ in known for topic in _unsafe(device)})
    if unsafe:
        said += (f"NATS cannot tell these topics from others, and they are left out: {', '.join(unsafe)}",)
    text = "# Include it: `include wayside-users.conf`\nauthorization {\n  users = [\n" + "".join(users) + "  ]\n}\n"
    return Export((File("wayside-users.conf", text, secret=True),), said)


def subject(topic: str) -> str:
    """Write a topic filter as NATS's MQTT does: `/` is `.`, `+` is `*`, `#` is `>`."""
    return ".".join({"+": "*", "#": ">"}.get(level, level) for level in topic.split("/"))


def _unsafe(device: Device) -> Iterator[str]:
    allowed = access(device)
    for topic in (*allowed.publish, *allowed.subscribe):
        if any(_FORBIDDEN & set(level) or not level for level in topic.split("/")):
            yield topic


def _device(device: Device, verifier: str) -> str:
    allowed, unsafe = access(device), set(_unsafe(device))
    publish = [subject(topic) for topic in allowed.publish if topic not in unsafe]
    heard = [topic for topic in allowed.subscribe if topic not in unsafe]
    return _user(device.name, verifier, publish, heard)


def _user(name: str, verifier: str, publish: Iterable[str], hears: Iterable[str]) -> str:
    subscribe = [*_with_parents(hears), *_OWN]
    return (
        # Not over NATS's own protocol: there a device could read the subjects of others' sessions.
        f'    {{ user: {json.dumps(name)}, password: {json.dumps(verifier)}, allowed_connection_types: ["MQTT"]\n'
        "    permissions: {\n"
        f"      publish: {{ allow: {json.dumps(list(publish))} }}\n"
        f"      subscribe: {{ allow: {json.dumps(subscribe)} }}\n    }} }}\n"
    )


def _with_parents(topics: Iterable[str]) -> Iterator[str]:
    """`a/#` stands for `a` too (MQTT 5, 4.7.1.2): NATS subscribes to both subjects."""
    for topic in topics:
        yield subject(topic)
        if topic.endswith("/#"):
            yield subject(topic.removesuffix("/#"))
