"""`wayside device export`: users and access rules for a broker, once or whenever the registry changes."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from engine.errors import WaysideError
from gateway.cli import output
from gateway.cli.client import Client, connect
from gateway.cli.invocation import current
from gateway.cli.main import finish
from gateway.files import replacing

WATCH_SECONDS: Final = 1.0


def export(
    broker: Annotated[str, typer.Argument(help="mosquitto, emqx or nats")],
    to: Annotated[Path | None, typer.Option(metavar="DIR", help="write the files there; else they are printed")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="write again whenever the registry has changed")] = False,
    reload: Annotated[
        str | None, typer.Option(metavar="COMMAND", help="run this after each change, such as 'pkill -HUP mosquitto'")
    ] = None,
) -> None:
    """Write users and access rules for a broker, from the registry: what keeps devices apart there."""
    if watch and to is None:
        raise typer.BadParameter("--watch needs --to DIR")
    if to is not None:
        to = to.resolve()
        to.mkdir(parents=True, exist_ok=True)
    finish(_export(broker, to, watch=watch, reload=reload))


async def _export(broker: str, to: Path | None, *, watch: bool, reload: str | None) -> None:
    if watch and to is not None:
        await _follow(broker, Target(to, reload))
        return
    async with connect() as client:
        document = await asked(client, broker, to)
    _warn(document, [])
    if to is None:
        _print(document)
    else:
        await Target(to, reload).write(document)


async def _follow(broker: str, target: Target) -> None:
    """Write whenever the registry has changed, for ever: a gateway or a broker that is away for a while ends nothing.

    What is wrong from the start, before anything was written, ends it.
    """
    said: list[str] = []
    begun, trouble = False, ""
    while True:
        try:
            async with connect() as client:
                while True:
                    document = await asked(client, broker, target.to)
                    _warn(document, said)
                    said = document["warnings"]
                    begun = True
                    await target.write(document)
                    trouble = ""
                    await asyncio.sleep(WATCH_SECONDS)
                    if client.local:
                        break  # it would hold the store: look again from the start
        except WaysideError as fault:
            if not begun:
                raise
            if fault.message != trouble:
                trouble = fault.message
                output.note(f"warning: {trouble}; trying again")
            await asyncio.sleep(WATCH_SECONDS)


async def asked(client: Client, broker: str, to: Path | None) -> dict[str, Any]:
    """Ask for an export to a whole path, by which its files name each other."""
    return await client.get(f"/exports/{broker}", directory=to)


def _warn(document: Mapping[str, Any], said: Sequence[str]) -> None:
    if document["warnings"] != said:
        for warning in document["warnings"]:
            output.note(f"warning: {warning}")


def _print(document: Mapping[str, Any]) -> None:
    if current().json:
        output.emit(document)
        return
    for file in document["files"]:
        output.line(f"# ---- {file['name']}")
        output.line(file["text"].rstrip("\n"))


@dataclass(slots=True)
class Target:
    """Where an export goes, and the command that has the broker read it; `owed` until that has succeeded."""

    to: Path
    reload: str | None
    owed: bool = False

    async def write(self, document: Mapping[str, Any]) -> None:
        """Write what has changed, each file at once and whole, then have the broker read it. Raises `WaysideError`."""
        # Every version is the registry's alone: the verifiers in it do not change, so neither does the text.
        changed = [file for file in document["files"] if _text(self.to / file["name"]) != file["text"]]
        for file in changed:
            _replace(self.to / file["name"], file["text"], mode=0o600 if file["secret"] else 0o644)
            output.note(f"wrote {self.to / file['name']}")
            self.owed = True
        if self.owed and self.reload:
            process = await asyncio.create_subprocess_exec(*shlex.split(self.reload))
            if await process.wait():
                raise WaysideError(f"the command of --reload ended with status {process.returncode}")
        self.owed = False


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _replace(path: Path, text: str, *, mode: int) -> None:
    """Replace a file in one step, so that the broker can still read it, which may run as somebody else.

    Written by root, a file keeps its owner and group; a new one has those of its directory.
    """
    with replacing(path, mode=mode) as stream:
        if os.geteuid() == 0:
            known = path.exists()
            before = (path if known else path.parent).stat()
            os.fchown(stream.fileno(), before.st_uid, before.st_gid)
            os.fchmod(stream.fileno(), before.st_mode & 0o777 if known else mode)
        stream.write(text.encode())
