"""`wayside config show`: every setting, its value and where it comes from; secrets are not shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import msgspec
import typer

from gateway.cli import output
from gateway.cli.invocation import current
from gateway.config import SECRETS, load
from gateway.settings import Address, SettingPath, Settings, is_table, known

HIDDEN: Final = "(not shown)"
app = typer.Typer(no_args_is_help=True, help="Settings: flags, environment, wayside.toml and defaults.")


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="config")


@app.callback()
def _settings() -> None:
    """Keep `show` a command of its own although there is no other."""


@app.command()
def show() -> None:
    """Show every setting that `serve` would have here, and where each comes from. Exit status 2 if one is wrong."""
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
    match path:
        case ("store",):
            return _without_secrets(settings.store_url)
        case ("workflows",):
            return str(settings.workflow_directory)
        case ("bridge", "url") | ("trace",) if value:
            return _without_secrets(value)
        case _ if path in SECRETS and value:
            return HIDDEN
    if isinstance(value, (Address, Path)):
        return str(value)
    shown: object = msgspec.to_builtins(value)
    return list(shown) if isinstance(shown, tuple) else shown


def _without_secrets(url: str) -> str:
    """Show a path or a URL: who logs in there and what the query says may be secret."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url
    place, question, _ = rest.partition("?")
    authority, slash, path = place.partition("/")
    _, at, host = authority.rpartition("@")
    return f"{scheme}://{'…' if at else ''}{at}{host}{slash}{path}{'?…' if question else ''}"


def _plain(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return str(int(value)) if value.is_integer() else str(value)
        case list():
            return ", ".join(item if isinstance(item, str) else json.dumps(item) for item in value) or "-"
        case None | "":
            return "-"
        case _:
            return str(value)
