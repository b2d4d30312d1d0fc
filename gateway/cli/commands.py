"""The commands by name, and the typer application that has those of them that a call needs."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import typer

from engine.format import writer
from gateway.cli import invocation

app: Final = typer.Typer(
    name="wayside",
    epilog=invocation.HELP,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# Which module holds which command: what a call does not need is not imported.
_COMMANDS: Final[Mapping[str, str]] = {
    "serve": "serve",
    "demo": "demo",
    "workflow": "workflows",
    "run": "runs",
    "waits": "signals",
    "signal": "signals",
    "device": "devices",
    "map": "maps",
    "operator": "operators",
    "login": "operators",
    "audit": "audit",
    "simulate": "simulate",
    "doctor": "doctor",
    "tls": "tls",
    "config": "config",
    "store": "store",
}


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(writer())
        raise typer.Exit


@app.callback()
def root(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Show which build this is.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """A gateway through which a device's MQTT message moves a waiting workflow run."""


def call(arguments: Sequence[str]) -> None:
    """Run the command that the arguments name; ends the process by SystemExit."""
    asked = next((argument for argument in arguments if not argument.startswith("-")), "")
    modules = [_COMMANDS[asked]] if asked in _COMMANDS else list(dict.fromkeys(_COMMANDS.values()))
    for module in modules:
        importlib.import_module(f"gateway.cli.{module}").register(app)
    app(args=list(arguments), prog_name="wayside")
