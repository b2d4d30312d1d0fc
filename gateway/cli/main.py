"""The command line's entry: the shared options, the commands, and how a fault is told. Never a traceback."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Coroutine, Mapping
from typing import Any, Final, NoReturn

import typer

from engine.errors import BadInput, WaysideError
from gateway.cli import invocation, output

app = typer.Typer(
    name="wayside",
    epilog=invocation.HELP,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run() -> NoReturn:
    """Run the command that was typed and end the process with its exit status."""
    try:
        invocation.set_current(invocation.parse(sys.argv[1:]))
        _register()
        app(args=list(invocation.current().rest), prog_name="wayside")
    except WaysideError as fault:
        told(fault)
        _leave(2 if isinstance(fault, BadInput) else 1)
    except KeyboardInterrupt:
        _leave(130)
    except BrokenPipeError:
        # Whoever read our output has enough of it (`| head`).
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _leave(0)
    except Exception as fault:
        if os.environ.get("WAYSIDE_DEBUG"):
            raise
        output.note(f"error: something went wrong inside wayside ({type(fault).__name__})")
        output.note("  set WAYSIDE_DEBUG=1 and run it again to see where, and please report that")
        _leave(1)
    _leave(0)


def _leave(status: int) -> NoReturn:
    sys.stdout.flush()
    sys.exit(status)


def told(fault: WaysideError) -> None:
    """Say on standard error what went wrong and what to do: as JSON with `--json`, else in words."""
    problems = getattr(fault, "problems", ())
    if invocation.current().json:
        document = getattr(fault, "document", None) or {
            "error": fault.code,
            "detail": fault.message,
            **({"problems": list(problems)} if problems else {}),
            **({"hint": fault.hint} if fault.hint else {}),
        }
        import json

        print(json.dumps(document, ensure_ascii=False), file=sys.stderr, flush=True)
        return
    output.note(f"error: {fault.message}")
    for problem in problems:
        output.note(f"  {problem}")
    if fault.hint:
        output.note(f"  {fault.hint}")


def finish(work: Coroutine[Any, Any, int | None]) -> None:
    """Run a command's coroutine; a number that it returns is the exit status."""
    import asyncio

    status = asyncio.run(work)
    if status:
        raise typer.Exit(status)


# Which module holds which command: what a call does not need is not imported, which a gateway's start would feel.
_COMMANDS: Final[Mapping[str, str]] = {
    "serve": "serve",
    "demo": "demo",
    "workflow": "workflows",
    "run": "runs",
    "waits": "signals",
    "signal": "signals",
    "device": "devices",
    "operator": "operators",
    "login": "operators",
    "audit": "audit",
    "simulate": "simulate",
    "doctor": "doctor",
}


@app.callback()
def root() -> None:
    """A gateway through which a device's MQTT message moves a waiting workflow run."""


def _register() -> None:
    """Register the command that is asked for, or all of them where that is not clear."""
    asked = next((argument for argument in invocation.current().rest if not argument.startswith("-")), "")
    modules = [_COMMANDS[asked]] if asked in _COMMANDS else list(dict.fromkeys(_COMMANDS.values()))
    for module in modules:
        importlib.import_module(f"gateway.cli.{module}").register(app)
