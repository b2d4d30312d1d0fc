"""`wayside device add|list|show|grant|ungrant|limit|rotate|revoke|disable|enable|delete`."""

from __future__ import annotations

import contextlib
import math
from typing import Annotated, Any, Final

import typer

from devices.model import MAX_RATE
from engine.errors import BadInput, WaysideError
from gateway.cli import output
from gateway.cli.arguments import Name
from gateway.cli.client import Client, connect
from gateway.cli.doubts import doubts, keys_of
from gateway.cli.exports import export
from gateway.cli.importing import import_
from gateway.cli.invocation import current
from gateway.cli.main import finish
from gateway.pasting import how_to_connect

app = typer.Typer(no_args_is_help=True, help="Devices: who may connect, and what each may do.")
app.command()(export)
app.command("import")(import_)


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="device")


@app.command()
def add(
    name: Name,
    grants: Annotated[
        list[str] | None,
        typer.Option("--grant", help="signal:WORKFLOW[/KEY], read:WORKFLOW, run:WORKFLOW or listen:TOPIC-FILTER"),
    ] = None,
    note: Annotated[str, typer.Option(help="a note for people")] = "",
) -> None:
    """Add a device and print its token, which is shown once. It can connect at once."""
    finish(_add(name, grants or [], note))


async def _add(name: str, grants: list[str], note: str) -> None:
    async with connect(create=True) as client:
        issued = await client.post("/devices", {"device": name, "grants": grants, "note": note})
        try:
            await _show_token(client, issued)
        except OSError as fault:
            # Of all that is printed, this is nowhere else.
            raise WaysideError(
                f"{name} was added, but its token could not be written ({fault.strerror})",
                hint=f"`wayside device rotate {name}` gives it another, and with --finish ends the one that is lost",
            ) from None
        await _doubt(client, grants)


async def _doubt(client: Client, grants: list[str]) -> None:
    """Say which grants name nothing that there is: a device is told no more than `not_found`."""
    with contextlib.suppress(WaysideError):
        for doubt in doubts(grants, keys_of(await client.listed("/workflows", "workflows"))):
            output.note(f"warning: {doubt}")


async def _show_token(client: Client, issued: dict[str, Any]) -> None:
    if current().json:
        output.emit({"device": issued["device"], "token": issued["token"]})
        return
    output.line(issued["token"])
    output.note(f"\nThis is the token of {issued['device']}. It is shown once; `wayside device rotate` gives another.")
    doors = (await client.get("/doors"))["doors"]
    for line in how_to_connect(issued["device"], issued["token"], issued["grants"], doors):
        output.note(line)


@app.command("list")
def list_() -> None:
    """List the devices."""
    finish(_list())


async def _list() -> None:
    async with connect() as client:
        document = await client.listed("/devices", "devices")
    if current().json:
        output.emit(document)
        return
    output.table(
        ["device", "state", "grants", "tokens", "connections", "changed", "note"],
        [
            (
                d["device"],
                d["state"],
                d["grants"],
                d["tokens"],
                d["connections"],
                output.when(d["changed"]),
                d["note"] or None,
            )
            for d in document["devices"]
        ],
        empty="No devices. `wayside device add NAME --grant signal:WORKFLOW/KEY` adds one.",
    )


@app.command()
def show(name: Name) -> None:
    """Show one device: its grants, and since when each of its tokens is good."""
    finish(_show(name))


async def _show(name: str) -> None:
    async with connect() as client:
        document = await client.get(f"/devices/{name}")
    if current().json:
        output.emit(document)
        return
    output.line(f"{document['device']}  {output.status(document['state'])}  {output.plain(document['note'])}".rstrip())
    output.line(f"changed {output.when(document['changed'])}, {document['connections']} connection(s) here")
    output.line("grants: " + (", ".join(document["grants"]) or "none"))
    if document["revoked"]:
        output.line(f"revoked {output.when(document['revoked'])}: certificates made until then are void")
    for number, secret in enumerate(document["secrets"], start=1):
        output.line(f"token {number}: since {output.when(secret['made'])}{_use(secret, number, document['tokens'])}")


def _use(secret: dict[str, Any], number: int, tokens: int) -> str:
    """Say whether a token is in use, as far as it is known: uses are noted while there are two."""
    if secret["used_since"]:
        return f", used since the newer was made (first {output.when(secret['used_since'])})"
    if secret["first_used"]:
        return f", first used {output.when(secret['first_used'])}"
    if tokens < 2:
        return ""
    return ", not used since the newer was made" if number == 1 else ", not used yet"


@app.command()
def grant(name: Name, grant: str) -> None:
    """Give a device one grant more."""
    finish(_grant(name, grant))


async def _grant(name: str, grant: str) -> None:
    async with connect() as client:
        output.result(await client.post(f"/devices/{name}/grants", {"grant": grant}), f"{name} has {grant}")
        await _doubt(client, [grant])


@app.command()
def ungrant(name: Name, grant: str) -> None:
    """Take a grant from a device; in force for its open connections at once."""
    finish(_change("DELETE", f"/devices/{name}/grants", f"{name} no longer has {grant}", query={"grant": grant}))


_RATE: Final = "RATE"


@app.command()
def limit(
    name: Name,
    signals: Annotated[str | None, typer.Option(metavar=_RATE, help="signals a second, 5 or 5/20: 20 at once")] = None,
    runs: Annotated[str | None, typer.Option(metavar=_RATE, help="runs that it may start a second")] = None,
    reads: Annotated[str | None, typer.Option(metavar=_RATE, help="reads a second")] = None,
    connects: Annotated[str | None, typer.Option(metavar=_RATE, help="connects a second")] = None,
) -> None:
    """Change a device's own limits, or show them; RATE `default` is everybody's. In force at once."""
    given = {"signals": signals, "runs": runs, "reads": reads, "connects": connects}
    finish(_limit(name, {what: _rate(what, text) for what, text in given.items() if text is not None}))


def _rate(what: str, text: str) -> dict[str, float] | None:
    """Read `PER_SECOND` or `PER_SECOND/BURST`; without a burst, four seconds' worth of it."""
    if text == "default":
        return None
    per_second, slash, burst = text.partition("/")
    try:
        rate = float(per_second)
        most = int(burst) if slash else max(1, math.ceil(4 * rate))
    except (ValueError, OverflowError):
        rate, most = 0.0, 0
    if not (0 < rate <= MAX_RATE and 0 < most <= MAX_RATE):
        raise BadInput(f"--{what} {text}: this is no rate", hint="5, 0.5, 5/20 (a second/at once), or default")
    return {"per_second": rate, "burst": most}


async def _limit(name: str, changes: dict[str, dict[str, float] | None]) -> None:
    async with connect() as client:
        path = f"/devices/{name}"
        document = await (client.post(f"{path}/limits", changes) if changes else client.get(path))
    own = {what: rate for what, rate in document["limits"].items() if rate is not None}
    words = [f"{what} {rate['per_second']:g} a second, {rate['burst']} at once" for what, rate in own.items()]
    output.result(
        {"device": name, "limits": own}, f"{name}: {'; '.join(words)}" if words else f"{name} has everybody's limits"
    )


@app.command()
def rotate(
    name: Name,
    finish_: Annotated[bool, typer.Option("--finish", help="end the older token")] = False,
) -> None:
    """Give a device a second token beside the first, or a revoked one a token again; with --finish, end the first."""
    if finish_:
        finish(_change("POST", f"/devices/{name}/rotate/finish", f"{name} has its newer token alone"))
    else:
        finish(_rotate(name))


async def _rotate(name: str) -> None:
    async with connect() as client:
        issued = await client.post(f"/devices/{name}/rotate")
        await _show_token(client, issued)
    if current().json:
        return
    if issued["tokens"] > 1:
        output.note(f"\nBoth tokens work until `wayside device rotate {name} --finish`.")
    else:
        output.note(
            f"\n{name} had no token: this one is its only one, and what it had before it was revoked stays void."
        )


@app.command()
def revoke(name: Name) -> None:
    """End a device's tokens and its certificates, and close its connections.

    `rotate` lets it back in, by its new token or a certificate that is made after this; older ones stay void for good.
    """
    finish(_change("POST", f"/devices/{name}/revoke", f"{name} has no token any more"))


@app.command()
def disable(name: Name) -> None:
    """Keep a device out until `enable`; its tokens and grants stay."""
    finish(_change("POST", f"/devices/{name}/disable", f"{name} is disabled"))


@app.command()
def enable(name: Name) -> None:
    """Let a disabled device in again."""
    finish(_change("POST", f"/devices/{name}/enable", f"{name} is enabled"))


@app.command()
def delete(name: Name) -> None:
    """Delete a device; its certificates are void for good, also for another device of that name."""
    finish(_change("DELETE", f"/devices/{name}", f"{name} is deleted"))


async def _change(
    method: str,
    path: str,
    done: str,
    body: dict[str, Any] | None = None,
    query: dict[str, Any] | None = None,
) -> None:
    async with connect() as client:
        document = await client.call(method, path, body=body, query=query)
    output.result(document, done)
