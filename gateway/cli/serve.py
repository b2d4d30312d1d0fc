"""`wayside serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gateway.cli import output
from gateway.cli.invocation import current


def register(parent: typer.Typer) -> None:
    parent.command("serve")(serve)


def serve(
    *,
    mqtt: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="the MQTT door [127.0.0.1:1883]")] = None,
    http: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="the HTTP door [127.0.0.1:8080]")] = None,
    workflows: Annotated[Path | None, typer.Option(metavar="DIR", help="definitions [DATA/workflows]")] = None,
    store: Annotated[str | None, typer.Option(metavar="URL", help="the store [sqlite:///DATA/wayside.db]")] = None,
    log_level: Annotated[str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error [info]")] = None,
    log_format: Annotated[str | None, typer.Option(metavar="FORMAT", help="auto, console or json [auto]")] = None,
    allow_plaintext: Annotated[
        bool, typer.Option("--allow-plaintext", help="listen beyond this machine without TLS")
    ] = False,
) -> None:
    """Run the gateway: the MQTT door, the engine with its sweep, HTTP. Settings: flag, environment, wayside.toml."""
    import asyncio

    from gateway import app
    from gateway.config import load

    invocation = current()
    loaded = load(
        {
            "data": invocation.data,
            "mqtt": mqtt,
            "http": http,
            "workflows": workflows,
            "store": store,
            "log.level": log_level,
            "log.format": log_format,
            "allow_plaintext": True if allow_plaintext else None,
        },
        config=invocation.config,
    )

    def ready(presence: app.Presence) -> None:
        if invocation.json:
            output.emit({"ready": True, "instance": presence.instance, "mqtt": presence.mqtt, "http": presence.http})
        else:
            output.line(
                f"ready: MQTT on {presence.mqtt}, HTTP on http://{presence.http}, data in {loaded.settings.data}"
            )

    raise typer.Exit(asyncio.run(app.serve(loaded, ready=ready)))
