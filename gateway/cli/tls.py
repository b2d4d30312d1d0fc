"""`wayside tls init|device|show`: certificates for a local network. They are files; no gateway is asked."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated

import typer

from engine.clock import rfc3339
from gateway import certificates
from gateway.cli import output
from gateway.cli.client import settings_of
from gateway.cli.invocation import current

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

    The device has to be there (`wayside device add`); `wayside device disable` and `revoke` end it.
    """
    directory = _directory()
    pair = certificates.issue_device(directory, name, days=days)
    output.result(
        {
            "device": name,
            "certificate": str(pair.certificate),
            "key": str(pair.key),
            "until": rfc3339(certificates.ends(pair.certificate)),
        },
        f"{pair.certificate} is {name} until {_day(pair.certificate)}; its key is {pair.key}",
    )
    if not current().json:
        output.note(f"  mosquitto_pub --cafile ca.pem --cert {name}.pem --key {name}.key -h HOST -p 8883 …")


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
