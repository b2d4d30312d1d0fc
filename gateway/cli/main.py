"""The command line's entry: the shared options, the commands, and how a fault is told. Never a traceback."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

import typer

from engine.errors import BadInput, WaysideError
from gateway.cli import invocation, output

app = typer.Typer(
    name="wayside",
    help="A gateway through which a device's MQTT message moves a waiting workflow run.",
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
    status = asyncio.run(work)
    if status:
        raise typer.Exit(status)


def _register() -> None:
    from gateway.cli import audit, demo, devices, doctor, runs, serve, signals, simulate, workflows

    modules: tuple[Callable[[typer.Typer], None], ...] = (
        serve.register,
        demo.register,
        workflows.register,
        runs.register,
        signals.register,
        devices.register,
        audit.register,
        simulate.register,
        doctor.register,
    )
    for register in modules:
        register(app)
