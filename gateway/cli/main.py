"""The command line's entry: the shared options, the commands, and how a fault is told. Never a traceback."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Coroutine, Sequence
from typing import Any, Final, NoReturn

from engine.errors import BadInput, WaysideError
from gateway.cli import invocation, output, streams
from gateway.cli.reaching import EXIT_STATUS, NoGateway


def run() -> NoReturn:
    """Run the command that was typed and end the process with its exit status."""
    streams.prepare()
    try:
        invocation.set_current(invocation.parse(sys.argv[1:]))
        _call(invocation.current().rest)
    except WaysideError as fault:
        told(fault)
        _leave(_status(fault))
    except KeyboardInterrupt:
        _leave(130)
    except BrokenPipeError:
        # Whoever read our output has enough of it (`| head`).
        streams.let_go()
        _leave(0)
    except Exception as fault:
        if isinstance(fault, OSError) and streams.is_of_output(fault):
            told(streams.NotWritten(fault))
            _leave(1)
        if os.environ.get("WAYSIDE_DEBUG"):
            raise
        output.note(f"error: something went wrong inside wayside ({type(fault).__name__})")
        output.note("  set WAYSIDE_DEBUG=1 and run it again to see where, and please report that")
        _leave(1)
    _leave(0)


def _status(fault: WaysideError) -> int:
    match fault:
        case BadInput():
            return 2
        case NoGateway():
            return EXIT_STATUS
        case _:
            return 1


# What these do happens where they are typed.
_HERE: Final = {
    "serve": "a gateway serves from the machine that it is started on",
    "demo": "it starts a gateway of its own",
    "config": "settings are shown where the gateway runs",
    "map": "maps are tried where wayside.toml is",
    "store": "a store is named by its URL, from any machine that reaches it",
    "tls": "certificates are made where the gateway's data directory is",
    "simulate": "devices speak MQTT: name that door with --host and --port",
}


def _refuse_remote(arguments: Sequence[str]) -> None:
    """Raise `BadInput` if a command that cannot act on a remote gateway is told to."""
    name = next((argument for argument in arguments if not argument.startswith("-")), "")
    words = {argument.partition("=")[0] for argument in arguments}
    if not invocation.current().server or name not in _HERE or words & {"-h", "--help", "--host"}:
        return
    raise BadInput(
        f"`wayside {name}` does not work with --server: {_HERE[name]}",
        hint="leave --server out, and unset WAYSIDE_SERVER",
    )


def _call(arguments: Sequence[str]) -> None:
    _refuse_remote(arguments)
    if arguments[:1] == ("serve",):
        # Not by way of typer: importing that, and what it imports, takes a third of the time to a ready gateway.
        from gateway.cli import serve

        sys.exit(serve.main(arguments[1:]))
    from gateway.cli import commands

    commands.call(arguments)


def _leave(status: int) -> NoReturn:
    try:
        sys.stdout.flush()
    except OSError:
        streams.let_go()
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

        text = json.dumps(document, ensure_ascii=not streams.takes_all(sys.stderr))
        with contextlib.suppress(OSError):
            print(text, file=sys.stderr, flush=True)
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
        sys.exit(status)
