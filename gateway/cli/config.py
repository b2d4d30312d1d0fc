"""`wayside config show`: every setting, its value and where it comes from; secrets are not shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import typer

from engine.errors import BadInput
from gateway.cli import output
from gateway.cli.invocation import current
from gateway.config import SECRETS, load
from gateway.settings import Address, SettingPath, Settings, is_table, known

app = typer.Typer(no_args_is_help=True, help="Settings: flags, environment, wayside.toml and defaults.")


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="config")


@app.callback()
def _settings() -> None:
    """Keep `show` a command of its own although there is no other."""


@app.command()
def show() -> None:
    """Show every setting that `serve` would have here, and where each comes from. Exit status 2 if one is wrong."""
    if current().server:
        raise BadInput("settings are shown where the gateway runs", hint="leave --server out")
    loaded = load({"data": current().data}, config=current().config)
    for warning in loaded.warnings:
        output.note(f"warning: {warning}")
    shown = {
        ".".join(path): {
            "value": _shown(loaded.settings, path),
            "origin": loaded.origins.get(".".join(path), "default"),
        }
        for path, kind in known().items()
        if not is_table(kind)
    }
    if current().json:
        output.emit({"settings": shown})
        return
    output.table(
        ["setting", "value", "from"],
        [(name, _plain(it["value"]), it["origin"]) for name, it in shown.items()],
        empty="",
    )


def _shown(settings: Settings, path: SettingPath) -> object:
    value: Any = settings  # of any table
    for name in path:
        value = getattr(value, name)
    if path in SECRETS:
        # A path is no secret; a URL may hold a password.
        return value if not value or ("://" not in str(value) and path == ("store",)) else "(not shown)"
    if isinstance(value, (Address, Path)):
        return str(value)
    shown: object = msgspec.to_builtins(value)
    return shown


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    return "-" if value in (None, "") else str(value)
