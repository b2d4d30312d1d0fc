"""`wayside serve`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gateway.cli import invocation, output

if TYPE_CHECKING:
    import typer

    from gateway.config import Loaded
    from gateway.presence import Presence


def register(parent: typer.Typer) -> None:
    """List the command among the others; `main` is called without typer."""
    parent.command("serve", help="Run the gateway: the MQTT door, the engine with its sweep, HTTP.")(lambda: None)


def main(arguments: Sequence[str]) -> int:
    """Run the gateway; return the exit status. Wrong usage ends the process with status 2."""
    import asyncio

    from gateway import app
    from gateway.config import load

    shared = invocation.current()
    given = vars(_parser().parse_args(arguments))

    def read() -> Loaded:
        return load({"data": shared.data, **{name: given[name] for name in given}}, config=shared.config)

    loaded = read()

    def ready(presence: Presence) -> None:
        if shared.json:
            doors = {"mqtt": presence.mqtt, "http": presence.http} | presence.more
            output.emit({"ready": True, "instance": presence.instance} | doors)
        else:
            data = loaded.settings.data
            more = "".join(f", {name.replace('_', '-')} on {where}" for name, where in presence.more.items())
            output.line(f"ready: MQTT on {presence.mqtt}, HTTP on http://{presence.http}{more}, data in {data}")

    return asyncio.run(app.serve(loaded, ready=ready, load=read))


def _parser() -> argparse.ArgumentParser:
    """Make the parser; each option's destination is the setting that it gives."""
    parser = argparse.ArgumentParser(
        prog="wayside serve",
        description="Run the gateway: the MQTT door, the engine with its sweep, HTTP. A line says when it is ready; "
        "SIGTERM stops it in order, SIGHUP has it read its definitions, certificate and settings again.",
        epilog=f"Settings come from flags, the environment (WAYSIDE_MQTT, WAYSIDE_ENGINE__RETENTION, ...) and "
        f"wayside.toml in the data directory, in that order. {invocation.HELP}",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--mqtt", metavar="HOST:PORT", help="the MQTT door (127.0.0.1:1883)")
    add("--http", metavar="HOST:PORT", help="the HTTP door (127.0.0.1:8080)")
    add("--mqtts", metavar="HOST:PORT", help="MQTT over TLS, usually port 8883; `wayside tls init` makes certificates")
    add("--mqtt-ws", dest="mqtt_ws", metavar="HOST:PORT", help="MQTT over WebSocket, path /mqtt")
    add("--mqtt-wss", dest="mqtt_wss", metavar="HOST:PORT", help="the same over TLS")
    add("--https", metavar="HOST:PORT", help="HTTP over TLS")
    add("--workflows", metavar="DIR", help="the definitions (workflows in the data directory)")
    add("--store", metavar="URL", help="the store (wayside.db in the data directory)")
    add(
        "--bridge",
        dest="bridge.url",
        metavar="URL",
        help="the door to a broker that is there already, such as mqtt://HOST:PORT (with a password in it: better by "
        "WAYSIDE_BRIDGE__URL, since others on the machine can read a command line)",
    )
    add("--trace", metavar="URL", help="a collector of traces (OTLP over HTTP), such as http://127.0.0.1:4318")
    add("--log-level", dest="log.level", metavar="LEVEL", help="debug, info, warning or error (info)")
    add("--log-format", dest="log.format", metavar="FORMAT", help="auto, console or json (auto)")
    add(
        "--allow-plaintext",
        action="store_const",
        const=True,
        help="listen beyond this machine without TLS: tokens and signals can then be read on the way",
    )
    return parser
