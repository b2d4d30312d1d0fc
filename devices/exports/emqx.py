"""EMQX: users for its built-in database, and rules for its access file. Our digest is a form that EMQX knows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from devices.exports.access import (
    ANYONE_HEARS,
    HEARS,
    PUBLISHES,
    BridgeUser,
    Export,
    File,
    let_in,
    listens,
    newest,
    short_form,
    warnings,
)
from devices.model import Device

SETTINGS = """\
# Part of emqx.conf (EMQX 5); the two other files go beside it. EMQX reads the users as it makes the authenticator, and
# changes none that it has. After a change: the dashboard, Access Control, Authentication, Users, Import; they are
# hashed already, and who is gone from the file has to be deleted there. Where EMQX asks the gateway, nothing.
mqtt.use_username_as_clientid = true
mqtt.max_packet_size = 64KB
authentication = [
  {
    mechanism = password_based
    backend = built_in_database
    user_id_type = username
    password_hash_algorithm { name = sha256, salt_position = disable }
    bootstrap_file = "${EMQX_ETC_DIR}/wayside-users.csv"
    bootstrap_type = hash
  }
]
authorization {
  no_match = deny
  deny_action = ignore
  sources = [ { type = file, enable = true, path = "${EMQX_ETC_DIR}/wayside-acl.conf" } ]
}
"""


def export(devices: Sequence[Device], bridge: BridgeUser) -> Export:
    """Write the files. EMQX reads its access file again by `emqx ctl conf reload` or over its API."""
    there = let_in(devices)
    users = [(device.name, secret.digest) for device in there if (secret := newest(device))]
    said = warnings(there, lacking=(), broker="emqx")
    if bridge.digest:
        users.insert(0, (bridge.name, bridge.digest))
    else:
        said += (f"the bridge's user {bridge.name} is not among the users: no password is configured for it",)
    lines = ["user_id,password_hash,salt,is_superuser", *(f"{name},{digest},,false" for name, digest in users)]
    return Export(
        (
            File("wayside-users.csv", "".join(f"{line}\n" for line in lines), secret=True),
            File("wayside-acl.conf", "".join(f"{line}\n" for line in _rules(there, bridge))),
            File("wayside.conf", SETTINGS),
        ),
        said,
    )


def _rules(devices: Sequence[Device], bridge: BridgeUser) -> Iterator[str]:
    yield _rule(f'{{username, "{bridge.name}"}}', "subscribe", bridge.hears)
    yield _rule(f'{{username, "{bridge.name}"}}', "publish", ["#"])
    yield _rule("all", "publish", [f"d/${{username}}/{topic}" for topic in PUBLISHES])
    yield _rule("all", "subscribe", [*(f"d/${{username}}/{topic}" for topic in HEARS), *ANYONE_HEARS])
    for device in devices:
        if short := short_form(device):
            yield _rule(f'{{username, "{device.name}"}}', "publish", short)
        if heard := listens(device):
            yield _rule(f'{{username, "{device.name}"}}', "subscribe", heard)
    yield "{deny, all}."


def _rule(who: str, what: str, topics: Iterable[str]) -> str:
    quoted = ", ".join(f'"{_escaped(topic)}"' for topic in topics)
    return f"{{allow, {who}, {what}, [{quoted}]}}."


def _escaped(topic: str) -> str:
    return topic.replace("\\", "\\\\").replace('"', '\\"')
