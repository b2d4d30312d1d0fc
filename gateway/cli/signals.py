"""`wayside signal` and `wayside waits`."""

from __future__ import annotations

import sys
from typing import Annotated, Any, Final

import typer

from engine.errors import BadInput
from engine.names import is_record_id, is_signal_id
from gateway.cli import output
from gateway.cli.arguments import checked_name
from gateway.cli.client import connect
from gateway.cli.following import say_how_it_stands
from gateway.cli.invocation import current
from gateway.cli.main import finish

_USAGE: Final = "wayside signal WORKFLOW KEY '<json>' or wayside signal --wait ID '<json>'; - reads standard input"


def register(parent: typer.Typer) -> None:
    parent.command("signal")(signal)
    parent.command("waits")(waits)


def signal(
    arguments: Annotated[
        list[str], typer.Argument(metavar="[WORKFLOW KEY] JSON", help="JSON: an object, or - for stdin")
    ],
    wait: Annotated[str | None, typer.Option("--wait", metavar="ID", help="signal this wait instead of a key")] = None,
    signal_id: Annotated[
        str | None, typer.Option("--id", metavar="SIGNAL-ID", help="a repeat under it counts once")
    ] = None,
) -> None:
    """Send a signal as an operator: to a key of a workflow, or to one wait. Prints the receipt."""
    if len(arguments) != (1 if wait else 3):
        raise BadInput("a signal goes to a workflow's key or to a wait", hint=_USAGE)
    if wait and not is_record_id(wait):
        raise BadInput(
            "--wait takes a wait's id: 26 characters of a-z and 0-9", hint="`wayside waits` shows what is open"
        )
    if signal_id and not is_signal_id(signal_id):
        raise BadInput("--id takes 1 to 64 characters of A-Z, a-z, 0-9, _ and -")
    path = f"/waits/{wait}/signal" if wait else "/signals/" + "/".join(map(checked_name, arguments[:2]))
    text = sys.stdin.buffer.read(1 << 20) if arguments[-1] == "-" else arguments[-1].encode("utf-8", "surrogateescape")
    finish(_signal(path, text, {"Idempotency-Key": signal_id} if signal_id else {}))


async def _signal(path: str, text: bytes, headers: dict[str, str]) -> None:
    async with connect() as client:
        receipt = await client.call("POST", path, raw=text, headers=headers)
        output.result(receipt, _receipt(receipt))
        if client.local and receipt.get("run"):
            say_how_it_stands(receipt["run"], await client.settle(receipt["run"]))


def _receipt(answer: dict[str, Any]) -> str:
    state = str(answer.get("state", "accepted"))
    repeat = ", as an earlier message with this id was" if answer.get("duplicate") else ""
    until = f" until {output.when(answer['held_until'])}" if answer.get("held_until") else ""
    where = f" by {answer['job']}.{answer['step']} of run {answer['run']}" if answer.get("run") else ""
    verb = {"delivered": "taken" + where, "held": "held" + until}.get(state, state)
    return f"{output.status(state)}: receipt {answer['receipt']}, {verb}{repeat}"


def waits(
    workflow: Annotated[str | None, typer.Option(help="only of this workflow")] = None,
    key: Annotated[str | None, typer.Option(help="only of this key")] = None,
) -> None:
    """List open waits with their deadlines, and signals that are held for a wait to come."""
    finish(_waits(workflow, key))


async def _waits(workflow: str | None, key: str | None) -> None:
    async with connect() as client:
        document = await client.listed("/waits", "waits", workflow=workflow, key=key)
    if current().json:
        output.emit(document)
        return
    output.table(
        ["workflow", "key", "step", "run", "wait", "deadline"],
        [
            (w["workflow"], w["key"], f"{w['job']}.{w['step']}", w["run"], w["wait"], output.until(w["deadline"]))
            for w in document["waits"]
        ],
        empty="Nothing waits for a signal.",
    )
    if document["pending"]:
        output.table(
            ["workflow", "key", "held signal", "from", "until"],
            [
                (p["workflow"], p["key"], p["receipt"], p.get("sender"), output.until(p["until"]))
                for p in document["pending"]
            ],
            empty="",
        )
    if damaged := document.get("damaged"):
        output.table(
            ["record that cannot be read", "workflow"],
            [(it["record"], it["workflow"] or "-") for it in damaged],
            empty="",
        )
