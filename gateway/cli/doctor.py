"""`wayside doctor`: look at the installation, and say what to repair."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from engine.clock import wall_clock
from engine.errors import BadInput, WaysideError
from gateway.cli import output
from gateway.cli.client import Client, connect
from gateway.cli.invocation import current
from gateway.cli.main import finish
from gateway.config import Loaded, load
from gateway.settings import Address, Settings

LOW_DISK_BYTES: Final = 256 * 1024 * 1024
CLOCK_SECONDS: Final = 5.0
_STYLES: Final = {"ok": "green", "warning": "yellow", "failed": "red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found; `repair` says what to do about it."""

    check: str
    result: Literal["ok", "warning", "failed"]
    text: str
    repair: str = ""


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
    """Check configuration, data directory, store, clock, ports and workflows. Exit status 1 if something is broken."""
    finish(_broker(url, export, to, reload) if broker else _doctor())


async def _broker(url: str, kind: str | None, to: Path | None, reload: str | None) -> int:
    from gateway.bridge.probe import Found
    from gateway.cli.broker_check import check_broker

    findings: list[Finding] = []

    def told(found: Found) -> None:
        result: Literal["ok", "failed"] = "ok" if found.good else "failed"
        findings.append(Finding(found.check, result, found.text, found.good_to_know))

    await check_broker(url, told, kind=kind, to=to, reload=reload)
    return _tell(findings)


async def _doctor() -> int:
    findings: list[Finding] = []
    loaded = _configuration(findings)
    if loaded is not None:
        settings = loaded.settings
        findings += _directory(settings.data)
        findings += await _gateway(settings)
        findings += await _store(settings)
    return _tell(findings)


def _tell(findings: list[Finding]) -> int:
    failed = any(finding.result == "failed" for finding in findings)
    if current().json:
        told = [{"check": f.check, "result": f.result, "text": f.text, "repair": f.repair} for f in findings]
        output.emit({"ok": not failed, "findings": told})
        return 1 if failed else 0
    for finding in findings:
        output.line(f"{output.styled(f'{finding.result:<8}', _STYLES[finding.result])}{finding.check}: {finding.text}")
        if finding.repair:
            output.line(f"        {finding.repair}")
    return 1 if failed else 0


def _configuration(findings: list[Finding]) -> Loaded | None:
    try:
        loaded = load({"data": current().data}, config=current().config)
    except BadInput as fault:
        findings += [Finding("settings", "failed", problem) for problem in fault.problems or (fault.message,)]
        return None
    findings += [Finding("settings", "warning", warning) for warning in loaded.warnings]
    given = sorted({origin.rsplit(":", 1)[0] for origin in loaded.origins.values() if origin != "default"})
    findings.append(Finding("settings", "ok", f"read from {', '.join(given) or 'defaults alone'}"))
    return loaded


def _directory(data: Path) -> Iterator[Finding]:
    if not data.is_dir():
        yield Finding("data directory", "warning", f"{data} is not there yet", "the first `wayside serve` makes it")
        return
    if data.stat().st_mode & 0o077:
        yield Finding("data directory", "failed", f"others can look into {data}", f"chmod 700 {data}")
    else:
        yield Finding("data directory", "ok", f"{data} is its owner's alone")
    for name in ("admin.token", "wayside.db"):
        file = data / name
        if file.exists() and file.stat().st_mode & 0o077:
            yield Finding("data directory", "failed", f"others can read {file}", f"chmod 600 {file}")
    free = shutil.disk_usage(data).free
    if free < LOW_DISK_BYTES:
        yield Finding("disk", "warning", f"{free // 1_048_576} MB are left", "nothing is acknowledged on a full disk")
    else:
        yield Finding("disk", "ok", f"{free // 1_048_576} MB are left")


async def _gateway(settings: Settings) -> list[Finding]:
    findings: list[Finding] = []
    if not settings.data.is_dir():
        return [_port(name, address) for name, address in (("mqtt", settings.mqtt), ("http", settings.http))]
    try:
        async with connect() as client:
            if client.local:
                findings += [_port(name, a) for name, a in (("mqtt", settings.mqtt), ("http", settings.http))]
                findings.append(Finding("gateway", "ok", "none serves the directory; the store was opened"))
            else:
                findings += await _serving(client)
            findings.append(await _clock(client))
            findings += await _workflows(client)
            if settings.bridge.url is not None:
                findings += await _short_form(client)
    except WaysideError as fault:
        findings.append(Finding("store", "failed", fault.message, fault.hint))
    return findings


async def _store(settings: Settings) -> list[Finding]:
    """Try out what the store promises, unless it is there in another process's memory only, or not yet."""
    from gateway.cli.store import promises

    if not settings.data.is_dir() or settings.store_url == "memory:":
        return []
    try:
        found = await promises(settings.store_url)
    except WaysideError as fault:
        return [Finding("store", "failed", fault.message, fault.hint)]
    results: dict[bool | None, Literal["ok", "warning", "failed"]] = {True: "ok", None: "warning", False: "failed"}
    return [Finding(f"store, {p.name}", results[p.kept], p.seen, p.repair) for p in found]


async def _serving(client: Client) -> list[Finding]:
    doors = await client.get("/doors")
    where = ", ".join(f"{name} on {address}" for name, address in sorted(doors["doors"].items()))
    findings = [Finding("gateway", "ok", f"{doors['instance']} serves the directory: {where}")]
    answer = await client.http.get("/readyz")
    missing = answer.json().get("missing", [])
    if missing:
        repair = "its log says why; a full disk and a damaged file are the usual causes"
        findings.append(Finding("gateway", "failed", f"it is not ready: {', '.join(missing)}", repair))
    else:
        findings.append(Finding("gateway", "ok", "store, sweep and listener are at work"))
    return findings


async def _clock(client: Client) -> Finding:
    """Compare the store's clock, which no step of the host's moves, with the host's."""
    now = datetime.fromisoformat((await client.get("/doors"))["time"])
    apart = abs((wall_clock() - now).total_seconds())
    if apart < CLOCK_SECONDS:
        return Finding("clock", "ok", "the store's and the host's agree")
    repair = "nothing depends on it but the times shown; they agree again after the next boot"
    return Finding("clock", "warning", f"the host's clock was stepped: the store's is {apart:.0f} s away", repair)


async def _short_form(client: Client) -> list[Finding]:
    from gateway.cli.broker_check import double_grants

    return [
        Finding(
            "bridge",
            "warning",
            f"more than one device is granted {key}: the short form, signals/…, is refused for it",
            "have them publish on d/<device>/signals/…, or take one grant away",
        )
        for key in await double_grants(client)
    ]


async def _workflows(client: Client) -> list[Finding]:
    document = await client.get("/workflows")
    broken = {w["file"]: w["problems"] for w in document["workflows"] if w["problems"]} | document["problems"]
    findings = [
        Finding("workflows", "warning", f"{file}: {len(problems)} problem(s)", "`wayside workflow validate` names them")
        for file, problems in broken.items()
    ]
    names = [w["name"] for w in document["workflows"]]
    findings.append(Finding("workflows", "ok", f"in force: {', '.join(names) or 'none'}"))
    return findings


def _port(name: str, address: Address) -> Finding:
    """Tell whether a door's port can be had."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
    except OSError as fault:
        repair = f"stop what has it, or choose another: --{name} HOST:PORT"
        return Finding("ports", "failed", f"{name} cannot listen on {address} ({fault.strerror})", repair)
    return Finding("ports", "ok", f"{address} is free for {name}")
