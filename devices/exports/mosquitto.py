"""Mosquitto: a password file, an access list, and the settings that put both into force.

One rule is not among them, `use_username_as_clientid`: it is a listener's. In an included file it would be that of
Mosquitto's default listener, which is thereby opened, unencrypted, on port 1883 of every address.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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

DIRECTORY = "/etc/mosquitto/wayside"
SETTINGS = """\
# Read by mosquitto.conf: include_dir, or copy the lines. Paths are those that the broker sees.
# No option here may be one of a listener's: in an included file it would open another, on port 1883 of every address.
# So the file that includes this one has to say
#   per_listener_settings false      (as it is by default; otherwise the two files below are options of a listener)
# and under each of its listeners
#   use_username_as_clientid true
# without which anybody who may connect can take the session of another: the client id is theirs to choose.
allow_anonymous false
password_file {directory}/wayside.passwd
acl_file {directory}/wayside.acl

# A packet over this closes the connection. message_size_limit would acknowledge it and drop it.
max_packet_size 65536

# What is kept for the gateway while it is away, and that it outlives a restart.
persistence true
max_queued_messages 100000
max_inflight_messages 256
"""


def export(devices: Sequence[Device], bridge: BridgeUser, *, directory: str = DIRECTORY) -> Export:
    """Write the files, which name each other in `directory`, a whole path.

    After a change of them Mosquitto takes SIGHUP, which drops the users that are gone.
    """
    known = [(device, secret.verifiers.get("mosquitto")) for device in let_in(devices) if (secret := newest(device))]
    lacking = [device.name for device, verifier in known if verifier is None]
    there = [device for device, verifier in known if verifier is not None]
    lines = [f"{device.name}:{verifier}" for device, verifier in known if verifier is not None]
    said = warnings(there, lacking=lacking, broker="mosquitto")
    if "mosquitto" in bridge.verifiers:
        lines.insert(0, f"{bridge.name}:{bridge.verifiers['mosquitto']}")
    else:
        said += (f"the bridge's user {bridge.name} is not in the password file: no password is configured for it",)
    return Export(
        (
            File("wayside.passwd", "".join(f"{line}\n" for line in lines), secret=True),
            File("wayside.acl", "".join(f"{line}\n" for line in _rules(there, bridge))),
            File("wayside.conf", SETTINGS.format(directory=directory)),
        ),
        said,
    )


def _rules(devices: Sequence[Device], bridge: BridgeUser) -> Iterator[str]:
    # Lines before the first `user` are for anonymous clients: there are none, and none are let in.
    yield f"user {bridge.name}"
    yield from (f"topic read {topic}" for topic in bridge.hears)
    # Commands go to topics that workflows choose; replies, markers and what it clears are under these too.
    yield "topic write #"
    for device in devices:
        own = [f"topic write {topic}" for topic in short_form(device)]
        own += [f"topic read {topic}" for topic in listens(device)]
        if own:
            yield from ("", f"user {device.name}", *own)
    yield ""
    yield "# Every device, by its user name."
    yield from (f"pattern write d/%u/{topic}" for topic in PUBLISHES)
    yield from (f"pattern read d/%u/{topic}" for topic in HEARS)
    yield from (f"pattern read {topic}" for topic in ANYONE_HEARS)
