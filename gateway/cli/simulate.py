"""`wayside simulate`: the simulator, with what it needs to find the gateway of the data directory."""

from __future__ import annotations

import typer

from gateway.cli.invocation import current


def register(parent: typer.Typer) -> None:
    parent.command(
        "simulate",
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(simulate)


def simulate(context: typer.Context) -> None:
    """Play devices against a gateway: kitchen, fleet, early, late, duplicate, flaky, storm, bad. --help says more."""
    from devices import simulator

    arguments = list(context.args)
    invocation = current()
    if invocation.json:
        arguments.append("--json")
    if invocation.token_file is not None:
        arguments += ["--token-file", invocation.token_file]
    if not any(name.split("=")[0] in {"--host", "--port", "-h", "--help"} for name in arguments):
        arguments += _where()
    raise typer.Exit(simulator.main(arguments))


def _where() -> list[str]:
    """Name the MQTT door of the gateway that serves the data directory, if one does."""
    from gateway.cli.client import find

    _, _, served = find(current())
    if not served:
        return []
    host, _, port = served[0].mqtt.rpartition(":")
    return ["--host", host.strip("[]").replace("0.0.0.0", "127.0.0.1"), "--port", port]  # noqa: S104  none is bound
