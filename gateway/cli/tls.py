"""`wayside tls init|device|show`: certificates for a local network.

They are files; the gateway or the store is asked only whether a device is there, and when it was last revoked.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from engine.clock import rfc3339, wall_clock
from engine.errors import WaysideError
from engine.names import is_name
from gateway import certificates
from gateway.cli import output
from gateway.cli.client import connect, settings_of
from gateway.cli.invocation import current
from gateway.cli.main import finish
from gateway.cli.refused import Refused

app = typer.Typer(no_args_is_help=True, help="Certificates for a local network: an authority, the gateway, devices.")
Days = Annotated[int, typer.Option(min=1, max=certificates.AUTHORITY_DAYS, help="how long it is good")]


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="tls")


@app.command()
def init(
    hosts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME|ADDRESS]...", help="how devices reach the gateway; this host's name if none"),
    ] = None,
    days: Days = certificates.SERVER_DAYS,
) -> None:
    """Make an authority, once, and the gateway's certificate; again with other names, only the certificate is new."""
    directory = _directory(create=True)
    given = hosts or []
    named = given or [socket.gethostname()]
    above = certificates.make_authority(directory)
    pair = certificates.issue_server(directory, list(dict.fromkeys([*named, "localhost", "127.0.0.1"])), days=days)
    for_names = list(certificates.names_in(pair.certificate))
    output.result(
        {
            "ca": str(above.certificate),
            "certificate": str(pair.certificate),
            "key": str(pair.key),
            "names": for_names,
            "until": rfc3339(certificates.ends(pair.certificate)),
        },
        f"{pair.certificate} is good for {', '.join(for_names)} until {_day(pair.certificate)}",
    )
    if not current().json:
        host = named[0]
        output.note("\nServe with it:")
        output.note("  wayside serve --mqtts 0.0.0.0:8883 --https 0.0.0.0:8443")
        output.note(f"Clients need the authority's certificate, {above.certificate} (never ca.key):")
        output.note(f"  mosquitto_pub --cafile ca.pem -h {host} -p 8883 …")
        output.note(f"  curl --cacert ca.pem https://{host}:8443/healthz")
        output.note("A gateway that serves already takes up a new certificate on SIGHUP.")


@app.command()
def device(name: str, days: Days = certificates.DEVICE_DAYS) -> None:
    """Make a device's certificate: over TLS it is the device's credential, in place of a token.

    It is good as long as the device is there, active and has a token. `wayside device revoke` and `delete` end it for
    good, by its first second and this host's clock: `device rotate` gives the device a token again, and what it had as
    a certificate stays void. Move that away and make it another. `device disable` keeps it out until `enable`.
    """
    finish(_device(name, days))


async def _device(name: str, days: int) -> None:
    directory = _directory()
    after = await _last_revoked(name) if is_name(name) else None
    pair = certificates.issue_device(directory, name, days=days, after=after)
    since = certificates.begins(pair.certificate)
    # In the very second of a revocation, the next one is waited for: what is printed is to work at once.
    if (seconds := (since - wall_clock()).total_seconds()) > 0:
        await asyncio.sleep(min(seconds, 1.0))
    if since > wall_clock():
        output.note(
            f"warning: {name} was revoked by a clock that is ahead of this one; it is good from {rfc3339(since)}"
        )
    output.result(
        {
            "device": name,
            "certificate": str(pair.certificate),
            "key": str(pair.key),
            "since": rfc3339(since),
            "until": rfc3339(certificates.ends(pair.certificate)),
        },
        f"{pair.certificate} is {name} until {_day(pair.certificate)}; its key is {pair.key}",
    )
    if not current().json:
        output.note(f"  mosquitto_pub --cafile ca.pem --cert {name}.pem --key {name}.key -h HOST -p 8883 …")


async def _last_revoked(name: str) -> datetime | None:
    """Look the device up, say why it would not be let in as things are, and give when it was last revoked."""
    try:
        async with connect() as client:
            device = await client.get(f"/devices/{name}")
    except WaysideError as fault:
        if isinstance(fault, Refused) and fault.error == "not_found":
            output.note(
                f"warning: there is no device {name}; the certificate lets nobody in until `wayside device add`"
            )
        else:
            output.note(f"warning: it could not be seen whether there is a device {name}: {fault.message}")
        return None
    for doubt in _doubts(device):
        output.note(f"warning: {doubt}")
    return datetime.fromisoformat(device["revoked"]) if device["revoked"] else None


def _doubts(device: dict[str, Any]) -> Iterator[str]:
    name = device["device"]
    if not device["tokens"]:
        yield f"{name} is revoked; the certificate does not let it in until `wayside device rotate {name}`"
    if device["state"] != "active":
        yield f"{name} is {device['state']}; the certificate does not let it in until `wayside device enable {name}`"


@app.command()
def show() -> None:
    """Show the certificates that are there, what they are for and until when."""
    directory = _directory()
    files = [certificates.authority(directory).certificate, certificates.server(directory).certificate]
    files += sorted((directory / "devices").glob("*.pem"))
    found = [
        {
            "file": str(file),
            "names": list(certificates.names_in(file)),
            "until": rfc3339(certificates.ends(file)),
        }
        for file in files
        if file.exists()
    ]
    if current().json:
        output.emit({"certificates": found})
        return
    output.table(
        ["certificate", "names", "until"],
        [(it["file"], it["names"], str(it["until"])[:10]) for it in found],
        empty="No certificates. `wayside tls init NAME` makes them.",
    )


def _directory(*, create: bool = False) -> Path:
    invocation = current()
    data: Path = settings_of(invocation).data
    if create:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
    return data / certificates.DIRECTORY


def _day(certificate: Path) -> str:
    return rfc3339(certificates.ends(certificate))[:10]
