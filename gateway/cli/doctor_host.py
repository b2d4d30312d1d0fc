"""What `wayside doctor` looks at on this host: settings, files, certificates, ports."""

from __future__ import annotations

import os
import resource
import shutil
import socket
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from engine.clock import wall_clock
from engine.errors import BadInput
from gateway import tls
from gateway.cli.findings import Finding
from gateway.cli.invocation import current
from gateway.config import Loaded, load
from gateway.data import TOKEN_FILE
from gateway.listener.descriptors import RESERVED
from gateway.settings import Address, Settings

LOW_DISK_BYTES: Final = 256 * 1024 * 1024
ENDS_SOON: Final = timedelta(days=30)
MAX_FILES: Final = 10_000
MAX_NAMED: Final = 10
_PLAIN: Final = ("mqtt", "mqtt_ws", "http")
_DOORS: Final = ("mqtt", "mqtts", "mqtt_ws", "mqtt_wss", "http", "https")


def settings() -> tuple[Loaded | None, list[Finding]]:
    """Read the settings; every mistake is a finding with the place where it stands."""
    try:
        loaded = load({"data": current().data}, config=current().config)
    except BadInput as fault:
        repair = "mend it; `wayside config show` shows what is in force"
        return None, [Finding("settings", "failed", p, repair) for p in fault.problems or (fault.message,)]
    repair = "write the name that is meant, or take the line out"
    found = [Finding("settings", "warning", warning, repair) for warning in loaded.warnings]
    given = sorted({origin.rsplit(":", 1)[0] for origin in loaded.origins.values() if origin != "default"})
    return loaded, [*found, Finding("settings", "ok", f"read from {', '.join(given) or 'defaults alone'}")]


def checks(settings: Settings) -> Iterator[Finding]:
    """Look at the data directory, the disk, the certificates, what is open to others, and the system's limits."""
    if not settings.data.is_dir():
        yield Finding(
            "data directory", "warning", f"{settings.data} is not there yet", "the first `wayside serve` makes it"
        )
    else:
        yield from _directory(settings.data)
        yield from _disk({settings.data, *([settings.audit.file.parent] if settings.audit.file else [])})
    yield from _certificates(settings)
    yield from _exposed(settings)
    yield from _descriptors(settings.listener.max_connections)


def _directory(data: Path) -> Iterator[Finding]:
    if data.stat().st_mode & 0o077:
        yield Finding("data directory", "failed", f"others can look into {data}", f"chmod 700 {data}")
    else:
        yield Finding("data directory", "ok", f"{data} is its owner's alone")
    if data.stat().st_uid != os.geteuid() and os.geteuid() != 0:
        repair = "run the gateway and its commands as the user that owns it"
        yield Finding("data directory", "warning", f"{data} is another user's", repair)
    elif not os.access(data, os.W_OK | os.X_OK):
        yield Finding("data directory", "failed", f"{data} cannot be written", "give it to the gateway's user")
    for file in _open_to_others(data):
        yield Finding("data directory", "failed", f"others can read {file}", f"chmod 600 {file}")


def _open_to_others(data: Path) -> list[Path]:
    """Name the files with secrets or payloads that others could read if the directory let them in."""
    found = []
    files = (file for _, file in zip(range(MAX_FILES), data.rglob("*"), strict=False))
    for file in files:
        secret = file.name == TOKEN_FILE or file.suffix == ".key" or file.name.startswith("wayside.db")
        if secret and file.is_file() and file.stat().st_mode & 0o077:
            found.append(file)
    return sorted(found)[:MAX_NAMED]


def _disk(directories: set[Path]) -> Iterator[Finding]:
    for directory in sorted(directories):
        if not directory.is_dir():
            continue
        free = shutil.disk_usage(directory).free
        text = f"{free // 1_048_576} MB are left for {directory}"
        if free < LOW_DISK_BYTES:
            repair = "make room, or set [engine] retention: nothing is acknowledged on a full disk"
            yield Finding("disk", "warning", text, repair)
        else:
            yield Finding("disk", "ok", text)


def _certificates(settings: Settings) -> Iterator[Finding]:
    """Look at the certificates in use: those of the doors with TLS, and what `wayside tls init` has made."""
    from gateway.certificates import authority, ends

    try:
        doors = tls.contexts(settings) is not None
    except BadInput as fault:
        yield Finding("certificates", "failed", fault.message, fault.hint)
        return
    files = settings.tls_files
    wanted = [file for file in (files.certificate, files.client_ca) if doors and file is not None]
    own = authority(settings.data / "tls").certificate
    for file in dict.fromkeys([*wanted, *([own] if own.is_file() else [])]):
        yield _ending(file, ends)
    if doors and files.key.stat().st_mode & 0o077:
        yield Finding("certificates", "failed", f"others can read the key {files.key}", f"chmod 600 {files.key}")


def _ending(file: Path, ends: Callable[[Path], datetime]) -> Finding:
    try:
        end = ends(file)
    except (OSError, ValueError) as fault:
        return Finding("certificates", "failed", f"{file} cannot be read ({type(fault).__name__})", "it is a PEM file")
    left = end - wall_clock()
    repair = "issue another (`wayside tls init` does for its own), then send the gateway SIGHUP"
    if left <= timedelta():
        return Finding("certificates", "failed", f"{file} ended on {end:%Y-%m-%d}: nobody can connect", repair)
    text = f"{file} ends on {end:%Y-%m-%d}, in {left.days} days"
    return Finding("certificates", "warning" if left < ENDS_SOON else "ok", text, repair if left < ENDS_SOON else "")


def _exposed(settings: Settings) -> Iterator[Finding]:
    """Name the doors that other machines reach without TLS: allowed is not the same as safe."""
    for name in _PLAIN:
        address: Address | None = getattr(settings, name)
        if address is None or address.loopback:
            continue
        behind = name == "http" and bool(settings.trusted_proxies)
        if behind:
            yield Finding("exposure", "ok", f"{name} on {address} answers the reverse proxies alone")
        else:
            text = f"{name} on {address} can be reached from other machines without TLS: tokens can be read on the way"
            yield Finding("exposure", "warning", text, "`wayside tls init`, then use the door's form with TLS")
    if settings.metrics_open and not settings.http.loopback:
        yield Finding("exposure", "warning", "/metrics is open to everybody who reaches HTTP", "metrics_open = false")


def _descriptors(connections: int) -> Iterator[Finding]:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < connections + RESERVED:
        text = f"this user may have {hard} files open, too few for listener.max_connections = {connections}"
        yield Finding("limits", "warning", text, "LimitNOFILE= in the service, or `ulimit -Hn`; else fewer connections")


def ports(settings: Settings) -> list[Finding]:
    """Tell of each door that is set whether its port can be had."""
    return [_port(name, address) for name in _DOORS if (address := getattr(settings, name)) is not None]


def _port(name: str, address: Address) -> Finding:
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
    except OSError as fault:
        repair = f"stop what has it, or choose another: --{name.replace('_', '-')} HOST:PORT"
        return Finding("ports", "failed", f"{name} cannot listen on {address} ({fault.strerror})", repair)
    return Finding("ports", "ok", f"{address} is free for {name}")
