"""`wayside doctor`: look at the installation, and say what to repair."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from engine.errors import WaysideError
from gateway.cli import doctor_gateway, doctor_host
from gateway.cli.client import connect
from gateway.cli.findings import Finding, tell
from gateway.cli.invocation import current
from gateway.cli.main import finish
from gateway.cli.reaching import NoGateway
from gateway.cli.refused import Refused
from gateway.settings import Settings

_KEPT: Final[dict[bool | None, Literal["ok", "warning", "failed"]]] = {True: "ok", None: "warning", False: "failed"}

_NO_RULE: Final = "NATS has no rule against it; who does it hears nothing that is for the other, and says nothing as it"


def register(parent: typer.Typer) -> None:
    parent.command("doctor")(doctor)


def doctor(
    broker: Annotated[
        bool, typer.Option("--broker", help="prove the access rules of the bridge's broker with two throw-away devices")
    ] = False,
    url: Annotated[str, typer.Option(metavar="URL", help="another broker than that of [bridge]")] = "",
    export: Annotated[
        str | None, typer.Option(metavar="KIND", help="write the export first: mosquitto, emqx or nats")
    ] = None,
    to: Annotated[Path | None, typer.Option(metavar="DIR", help="where the export goes")] = None,
    reload: Annotated[str | None, typer.Option(metavar="COMMAND", help="what has the broker read it")] = None,
) -> None:
    """Check the whole installation, and say of each fault what to do. Exit status 1 if something is broken.

    Settings, data directory, disk, certificates, ports, clock, store, workflows, devices, operators, waits, the bridge,
    and instances that were killed. With --server, what can be seen of a remote gateway.
    """
    finish(_broker(url, export, to and to.resolve(), reload) if broker else _doctor())


async def _broker(url: str, kind: str | None, to: Path | None, reload: str | None) -> int:
    from gateway.bridge.probe import TAKE_OVER, Found
    from gateway.cli.broker_check import check_broker

    findings: list[Finding] = []

    def told(found: Found) -> None:
        if found.good:
            findings.append(Finding(found.check, "ok", found.text))
        elif found.check == TAKE_OVER and kind == "nats":
            findings.append(Finding(found.check, "warning", found.text, _NO_RULE))
        else:
            findings.append(Finding(found.check, "failed", found.text, found.good_to_know))

    await check_broker(url, told, kind=kind, to=to, reload=reload)
    return tell(findings)


async def _doctor() -> int:
    if current().server:
        async with connect() as client:
            return tell(await doctor_gateway.checks(client, bridge=False))
    loaded, findings = doctor_host.settings()
    if loaded is not None:
        findings += doctor_host.checks(loaded.settings)
        findings += await _gateway(loaded.settings)
        # A store that cannot be opened is found by both, with a gateway and without one: that is one finding.
        findings += [found for found in await _store(loaded.settings) if found not in findings]
    return tell(findings)


async def _gateway(settings: Settings) -> list[Finding]:
    if not settings.data.is_dir():
        return doctor_host.ports(settings)
    try:
        async with connect() as client:
            found = doctor_host.ports(settings) if client.local else []
            return found + await doctor_gateway.checks(client, bridge=settings.bridge.url is not None)
    except WaysideError as fault:
        # Whoever refuses a token is there, and has a store.
        refused = isinstance(fault, Refused) and fault.error == "unauthorized"
        what = "gateway" if refused or isinstance(fault, NoGateway) else "store"
        return [Finding(what, "failed", fault.message, fault.hint)]


async def _store(settings: Settings) -> list[Finding]:
    """Try out what the store promises, unless it is there in another process's memory only, or not yet."""
    from gateway.cli.store import promises

    if not settings.data.is_dir() or settings.store_url == "memory:":
        return []
    try:
        found = await promises(settings.store_url)
    except WaysideError as fault:
        return [Finding("store", "failed", fault.message, fault.hint)]
    return [Finding(f"store, {p.name}", _KEPT[p.kept], p.seen, p.repair) for p in found]
