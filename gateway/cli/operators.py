"""`wayside operator add|list|rotate|revoke` and `wayside login`."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

import typer

from engine.errors import Conflict, WaysideError
from gateway.cli import output
from gateway.cli.arguments import Name
from gateway.cli.client import Client, connect
from gateway.cli.invocation import current
from gateway.cli.main import finish
from gateway.cli.refused import NO_LONGER_OWN, Refused

app = typer.Typer(no_args_is_help=True, help="Operators: who may read, run, signal and administer this gateway.")
RIGHTS = ("read", "run", "signal", "admin")


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="operator")
    parent.command("login")(login)


@app.command()
def add(
    name: Name,
    rights: Annotated[
        list[str] | None,
        typer.Option("--right", help="read, run, signal or admin (all of them); may be given several times [read]"),
    ] = None,
) -> None:
    """Add an operator and print the token, which is shown once."""
    finish(_issue("/operators", {"operator": name, "rights": rights or ["read"]}))


@app.command("list")
def list_() -> None:
    """List the operators."""
    finish(_list())


async def _list() -> None:
    async with connect() as client:
        document = await client.listed("/operators", "operators")
    if current().json:
        output.emit(document)
        return
    output.table(
        ["operator", "state", "rights", "tokens", "changed", "last seen"],
        [
            (
                entry["operator"],
                entry["state"],
                entry["rights"],
                entry["tokens"],
                output.when(entry["changed"]),
                output.when(entry["last_seen"]),
            )
            for entry in document["operators"]
        ],
        empty="No operators. `wayside operator add NAME --right read` adds one.",
    )


@app.command()
def rotate(name: Name, finish_: Annotated[bool, typer.Option("--finish", help="end the older token")] = False) -> None:
    """Give an operator a second token beside the first; with --finish, end the first."""
    if finish_:
        finish(_change(f"/operators/{name}/rotate/finish", f"{name} has the newer token alone"))
    else:
        finish(
            _issue(
                f"/operators/{name}/rotate", None, f"Both tokens work until `wayside operator rotate {name} --finish`."
            )
        )


@app.command()
def revoke(name: Name) -> None:
    """End an operator's tokens and sessions of the page; the name may be used again."""
    finish(_change(f"/operators/{name}/revoke", f"{name} is revoked"))


async def _issue(path: str, body: dict[str, Any] | None, more: str = "") -> None:
    async with connect() as client:
        issued = await client.post(path, body)
    try:
        _show_token(issued)
    except OSError as fault:
        name = issued["operator"]
        raise WaysideError(
            f"{name} has a new token, but it could not be written ({fault.strerror})",
            hint=f"`wayside operator revoke {name}` ends all of its tokens; `wayside operator add` then gives another",
        ) from None
    if more and not current().json:
        output.note(more)


def _show_token(issued: dict[str, Any]) -> None:
    if current().json:
        output.emit({"operator": issued["operator"], "token": issued["token"], "rights": issued["rights"]})
        return
    output.line(issued["token"])
    rights = ", ".join(issued["rights"])
    output.note(f"\nThis is the token of {issued['operator']} ({rights}). It is shown once.")
    output.note("Put it into a file of mode 0600: wayside --server URL --token-file FILE …")


async def _change(path: str, done: str) -> None:
    async with connect() as client:
        document = await client.post(path)
        let_in = client.local or await _is_let_in(client)
    output.result(document, done)
    if not let_in:
        output.note("warning: that ended the token which this command used itself")
        if client.own:
            output.note(f"  local commands are refused now: {NO_LONGER_OWN}")


async def _is_let_in(client: Client) -> bool:
    """Tell whether the command's own token is good, as far as it can be told."""
    try:
        await client.get("/doors")
    except WaysideError as fault:
        return not isinstance(fault, Refused) or fault.status != HTTPStatus.UNAUTHORIZED
    return True


def login() -> None:
    """Print a link that lets you into the page: good for ten minutes, once. Only on a terminal."""
    if not output.on_terminal():
        raise Conflict(
            "the link lets whoever has it in, so it is printed on a terminal only",
            hint="run `wayside login` by hand, with its output on the screen",
        )
    finish(_login())


async def _login() -> None:
    async with connect() as client:
        if client.local:
            raise WaysideError(
                "no gateway serves this data directory, so there is no page to open",
                hint="start one with `wayside serve`, or name a remote one with --server URL",
            )
        offered = await client.post("/logins")
        url = f"{str(client.http.base_url).rstrip('/')}{offered['path']}"
    if current().json:
        output.emit({"url": url, "seconds": offered["seconds"]})
        return
    output.line(url)
    output.note("\nOpen it in a browser within ten minutes; it works once. Whoever opens it acts as you.")
