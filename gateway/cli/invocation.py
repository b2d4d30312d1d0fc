"""What every command takes: `--data`, `--json`, `--server` and their like, before or after the command's own name."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.errors import BadInput

_MAX_TOKEN_FILE_BYTES: Final = 4_096
_HOLDS: Final = "it holds one operator's token and is readable by you alone (chmod 600)"
_FLAGS: Final = {"--json": "json"}
_VALUES: Final = {
    "--data": "data",
    "--config": "config",
    "--server": "server",
    "--token-file": "token_file",
    "--ca": "ca",
}

HELP: Final = (
    "Every command takes, before or after its name: --data DIR (the data directory, also WAYSIDE_DATA), "
    "--json (machine-readable output), --config FILE, --server URL with --token-file FILE (a remote gateway; "
    "also WAYSIDE_SERVER and WAYSIDE_TOKEN or WAYSIDE_TOKEN_FILE; --ca FILE or WAYSIDE_CA for its authority)."
)


@dataclass(frozen=True, slots=True)
class Invocation:
    """The options that every command shares. `rest` is what is left for the command itself."""

    rest: tuple[str, ...] = ()
    json: bool = False
    data: str | None = None
    config: str | None = None
    server: str | None = None
    token_file: str | None = None
    ca: str | None = None

    def token(self, environment: Mapping[str, str] | None = None) -> str | None:
        """Read the token for `--server`; never taken from the command line, which others on the machine can read."""
        environment = os.environ if environment is None else environment
        file = self.token_file or environment.get("WAYSIDE_TOKEN_FILE")
        if file is None:
            given = environment.get("WAYSIDE_TOKEN")
            return None if given is None else _checked(given, "WAYSIDE_TOKEN")
        try:
            with Path(file).open("rb") as opened:
                text = opened.read(_MAX_TOKEN_FILE_BYTES + 1).decode()
        except (OSError, UnicodeDecodeError) as fault:
            raise BadInput(f"the token file {file} cannot be read ({type(fault).__name__})", hint=_HOLDS) from None
        return _checked(text, f"the token file {file}")


def _checked(text: str, where: str) -> str:
    """Give the token that stands somewhere; raises `BadInput` for what is none. It is never shown."""
    token = text.strip()
    if not token:
        raise BadInput(f"{where} is empty", hint=_HOLDS)
    if len(text) > _MAX_TOKEN_FILE_BYTES or not token.isascii() or not token.isprintable() or " " in token:
        raise BadInput(f"{where} holds something else than one token", hint=_HOLDS)
    return token


def parse(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> Invocation:
    """Take the shared options out of `arguments`, wherever they stand before a `--`."""
    environment = os.environ if environment is None else environment
    found: dict[str, str] = {}
    rest: list[str] = []
    waiting = list(arguments)
    while waiting:
        argument = waiting.pop(0)
        name, equals, value = argument.partition("=")
        if argument == "--":
            rest += [argument, *waiting]
            break
        if argument in _FLAGS:
            found[_FLAGS[argument]] = "yes"
        elif name in _VALUES:
            if not equals and not waiting:
                raise BadInput(f"{name} needs a value", hint=HELP)
            found[_VALUES[name]] = value if equals else waiting.pop(0)
        else:
            rest.append(argument)
    return Invocation(
        rest=tuple(rest),
        json="json" in found,
        data=found.get("data"),
        config=found.get("config"),
        server=found.get("server") or environment.get("WAYSIDE_SERVER"),
        token_file=found.get("token_file"),
        ca=found.get("ca") or environment.get("WAYSIDE_CA"),
    )


_current = Invocation()


def current() -> Invocation:
    """Give the invocation of this process; the one place that a command learns of the shared options."""
    return _current


def set_current(invocation: Invocation) -> None:
    global _current  # noqa: PLW0603  the process has one command line
    _current = invocation
