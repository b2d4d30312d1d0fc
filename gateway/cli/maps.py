"""`wayside map test`: try the configuration's maps on a message."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from engine.errors import BadInput
from gateway.cli import output
from gateway.cli.client import loaded_of
from gateway.cli.invocation import current

app = typer.Typer(no_args_is_help=True, help="Maps: signals from devices that cannot be told what to publish.")


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="map")


@app.command()
def test(
    topic: str,
    payload: Annotated[str, typer.Argument(help="the message; - reads standard input")],
) -> None:
    """Say what the maps of wayside.toml make of a message. Exit status 1 if no signal comes of it."""
    from gateway.maps import Maps

    given = sys.stdin.buffer.read() if payload == "-" else payload.encode()
    loaded = loaded_of(current())
    if not loaded.settings.map:
        raise BadInput(
            "there are no maps", hint="write a [[map]] in wayside.toml: topic, device, signal, when, payload"
        )
    tried = list(Maps(loaded.settings.map, loaded.maps).tried(topic, given))
    made = [it.mapped for it in tried if it.mapped is not None]
    if current().json:
        shown = [
            {
                "map": it.number,
                "why": it.why,
                "device": it.mapped.device if it.mapped else None,
                "topic": it.mapped.topic if it.mapped else None,
                "payload": it.mapped.payload.decode() if it.mapped else None,
            }
            for it in tried
        ]
        output.emit({"ok": bool(made), "maps": shown})
    else:
        if not tried:
            output.line("no map has a topic that matches")
        for it in tried:
            what = f"{it.mapped.device} signals {it.mapped.topic} {it.mapped.payload.decode()}" if it.mapped else it.why
            output.line(f"map {it.number}: {what}")
    raise typer.Exit(0 if made else 1)
