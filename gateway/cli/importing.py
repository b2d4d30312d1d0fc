"""`wayside device import`: many devices from a file, all of which is looked at before the first is added."""

from __future__ import annotations

import contextlib
import csv
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from devices.grants import parse
from devices.model import MAX_GRANTS, MAX_NOTE_CHARACTERS, LimitOverrides
from engine.errors import BadInput, WaysideError
from engine.limits import NAME_FORM
from engine.names import is_name
from gateway.cli import output
from gateway.cli.client import Client, connect
from gateway.cli.invocation import current
from gateway.cli.main import finish

MAX_BYTES: Final = 16 * 1024 * 1024
MAX_DEVICES: Final = 10_000
_COLUMNS: Final = {"name": "device", "device": "device", "grants": "grants", "note": "note"}
_FORMS: Final = (
    "CSV whose first line is `name,grants` or `name,grants,note`, grants with spaces or semicolons between them; "
    "or what `wayside device list --json` prints"
)


@dataclass(frozen=True, slots=True)
class Row:
    """A device as a file describes it; `where` says where in the file."""

    where: str
    device: str
    grants: tuple[str, ...] = ()
    note: str = ""
    state: str = ""  # where the file says nothing of it
    limits: Mapping[str, Any] = field(default_factory=dict)


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help=_FORMS)],
    tokens: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="a new file for the tokens, CSV device,token; else they are printed"),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="look at the file and at the devices, and add none")
    ] = False,
) -> None:
    """Add the devices of a file, each with a token that is shown once. None is added if anything in it is wrong.

    A device that is there already, with the same grants, is left as it is: what was broken off can be run again.
    """
    finish(_import(file, tokens, dry_run=dry_run))


async def _import(file: Path, tokens: Path | None, *, dry_run: bool) -> None:
    rows = read(file)
    async with connect(create=not dry_run) as client:
        there = {it["device"]: it for it in (await client.listed("/devices", "devices"))["devices"]}
        problems = [problem for row in rows if (problem := _differs(row, there.get(row.device)))]
        if problems:
            raise BadInput(f"{file}: devices that are there already are other than it says", problems=tuple(problems))
        fresh = [row for row in rows if row.device not in there]
        same = [row.device for row in rows if row.device in there]
        if dry_run:
            names = [row.device for row in fresh]
            said = f"{len(fresh)} device(s) would be added: {', '.join(names)}; " if fresh else "none would be added; "
            output.result({"dry_run": True, "would_add": names, "unchanged": same}, f"{said}{len(same)} are there")
            return
        with _sink(tokens) as told:
            added = [await _add(client, row, told) for row in fresh]
    if current().json:
        output.emit({"added": added if tokens is None else [it["device"] for it in added], "unchanged": same})
    else:
        where = f", their tokens are in {tokens}" if tokens else ""
        output.note(f"{len(added)} device(s) added{where}; {len(same)} were there")


async def _add(client: Client, row: Row, told: Callable[[str, str], None]) -> dict[str, str]:
    body = {"device": row.device, "grants": list(row.grants), "note": row.note, "limits": dict(row.limits)}
    issued = await client.post("/devices", body)
    told(row.device, issued["token"])
    if row.state == "disabled":
        await client.post(f"/devices/{row.device}/disable")
    return {"device": row.device, "token": issued["token"]}


@contextlib.contextmanager
def _sink(tokens: Path | None) -> Iterator[Callable[[str, str], None]]:
    """Give what takes each token as it is made: a break-off loses none that is in force."""
    if tokens is None:
        yield lambda device, token: None if current().json else output.line(f"{device},{token}")
        return
    try:
        opened = os.open(tokens, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as fault:
        raise BadInput(
            f"--tokens: {tokens} cannot be made ({fault.strerror})", hint="name a file that is not there yet"
        ) from None
    with os.fdopen(opened, "w", encoding="ascii") as stream:
        stream.write("device,token\n")

        def write(device: str, token: str) -> None:
            stream.write(f"{device},{token}\n")
            stream.flush()

        yield write
        os.fsync(stream.fileno())


def _differs(row: Row, there: Mapping[str, Any] | None) -> str:
    if there is None:
        return ""
    if set(there["grants"]) != set(row.grants):
        has = f"has {', '.join(there['grants']) or 'no grants'}; `wayside device grant` and `ungrant` change it"
    elif row.state and there["state"] != row.state:
        has = f"is {there['state']}; `wayside device enable` and `disable` change it"
    elif row.limits and _limits(there["limits"]) != _limits(row.limits):
        has = "has other limits; `wayside device limit` changes them"
    else:
        return ""
    return f"{row.where}: {row.device} {has}"


def _limits(given: Mapping[str, Any]) -> LimitOverrides:
    return msgspec.convert(given, LimitOverrides)


# -- the file ------------------------------------------------------------------------------------------------------


def read(file: Path) -> list[Row]:
    """Read all of a file; raises `BadInput` that names everything that is wrong with it, by its line."""
    try:
        with file.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
        text = content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as fault:
        raise BadInput(f"{file} cannot be read ({type(fault).__name__})", hint=f"it is {_FORMS}, in UTF-8") from None
    problems: list[str] = []
    if len(content) > MAX_BYTES:
        raise BadInput(f"{file} is over {MAX_BYTES} bytes")
    rows = _json(text, problems) if text.lstrip()[:1] in {"{", "["} else _csv(text, problems)
    checked = [_checked(row, problems) for row in rows]
    first: dict[str, str] = {}
    for row in rows:
        if row.device in first:
            problems.append(f"{row.where}: {row.device} is there already, {first[row.device]}")
        first.setdefault(row.device, row.where)
    if len(rows) > MAX_DEVICES:
        problems.append(f"{len(rows)} devices: a file has at most {MAX_DEVICES}")
    if problems or not rows:
        raise BadInput(f"{file}: nothing is added", hint=f"it is {_FORMS}", problems=tuple(problems or ["it is empty"]))
    return checked


def _csv(text: str, problems: list[str]) -> list[Row]:
    lines = csv.reader(text.splitlines(), strict=True)
    header: list[str] | None = None
    rows = []
    try:
        for fields in lines:
            if not any(one.strip() for one in fields) or fields[0].startswith("#"):
                continue
            where = f"line {lines.line_num}"
            if header is None:
                header = [_COLUMNS.get(one.strip().lower(), "") for one in fields]
                if "device" not in header or "" in header or len(set(header)) < len(header):
                    problems.append(f"{where}: the first line names the columns: name,grants or name,grants,note")
                    return []
            elif len(fields) > len(header):
                problems.append(f"{where}: {len(fields)} fields under {len(header)} columns; quote what has a comma")
            else:
                found = dict(zip(header, (one.strip() for one in fields), strict=False))
                grants = tuple(found.get("grants", "").replace(";", " ").split())
                rows.append(Row(where, found["device"], grants, found.get("note", "")))
    except csv.Error as fault:
        problems.append(f"line {lines.line_num}: {fault}")
    return rows


def _json(text: str, problems: list[str]) -> list[Row]:
    try:
        document = json.loads(text)
    except ValueError as fault:
        line = f"line {fault.lineno}: {fault.msg}" if isinstance(fault, json.JSONDecodeError) else "it is no JSON"
        problems.append(line)
        return []
    items = document.get("devices") if isinstance(document, dict) else document
    if not isinstance(items, list):
        problems.append("there is no list of devices in it")
        return []
    return [row for at, item in enumerate(items, 1) if (row := _item(f"device {at}", item, problems)) is not None]


def _item(where: str, item: object, problems: list[str]) -> Row | None:
    """Read one device of the API's list; what only says how it stands (`tokens`, `changed`, …) is passed over."""
    if isinstance(item, dict):
        name, grants, note = item.get("device", item.get("name")), item.get("grants", []), item.get("note") or ""
        limits, state = item.get("limits") or {}, item.get("state", "")
        texts = isinstance(grants, list) and all(isinstance(it, str) for it in [name, note, *grants])
        if texts and isinstance(limits, dict) and state in {"", "active", "disabled"}:
            return Row(where, str(name), tuple(grants), note, state, limits)
    problems.append(f"{where}: it has a device, a list of grants, and a note, limits and a state if it likes")
    return None


def _checked(row: Row, problems: list[str]) -> Row:
    """Give a row with its grants as they are kept; what is wrong with it is added to `problems`."""

    def wrong(text: str) -> None:
        problems.append(f"{row.where}: {text}")

    if not is_name(row.device):
        wrong(f"{row.device!r} is no name: {NAME_FORM}")
    if len(row.note) > MAX_NOTE_CHARACTERS:
        wrong(f"a note has at most {MAX_NOTE_CHARACTERS} characters")
    grants: dict[str, None] = {}
    for text in row.grants:
        try:
            grants[str(parse(text))] = None
        except WaysideError as fault:
            wrong(f"{text!r}: {fault.message}")
    if len(grants) > MAX_GRANTS:
        wrong(f"a device has at most {MAX_GRANTS} grants")
    try:
        _limits(row.limits)
    except msgspec.ValidationError as fault:
        wrong(f"limits: {fault}")
    return Row(row.where, row.device, tuple(grants), row.note, row.state, row.limits)
