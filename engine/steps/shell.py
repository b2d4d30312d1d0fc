"""`shell`: run one program with its arguments. No shell reads them: an argument is one argument, whatever it holds."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Mapping

from engine.limits import MAX_OUTPUT_BYTES
from engine.steps.result import Deed, Effect, done, failed
from engine.workflows.definition import ShellTask
from engine.workflows.expressions import render

_KILL_GRACE_SECONDS = 2.0


def prepare(task: ShellTask, env: Mapping[str, object]) -> Deed:
    """Fill in the arguments. The program gets no standard input, and is killed with its children at the timeout."""
    arguments = [_word(render(word, env)) for word in task.run]
    extra = {name: _word(render(value, env)) for name, value in task.env.items()}
    # The gateway's own settings and secrets are not the program's business.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("WAYSIDE_")}

    async def deed() -> Effect:
        return await _run(arguments, {**inherited, **extra}, task.timeout)

    return deed


def _word(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


async def _run(arguments: list[str], environment: dict[str, str], timeout: float) -> Effect:  # noqa: ASYNC109
    try:
        process = await _started(arguments, environment)
    except (OSError, ValueError) as error:
        return failed(f"the program could not be started: {type(error).__name__}")
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(timeout), asyncio.TaskGroup() as reading:
            out = reading.create_task(_read(process.stdout))
            err = reading.create_task(_read(process.stderr))
            code = await process.wait()
    except TimeoutError:
        return failed(f"the program did not end within {timeout:g} s")
    finally:
        await _stop(process)
    outputs = {"exit": code, "stdout": out.result(), "stderr": err.result()}
    return done(outputs) if code == 0 else failed(f"the program ended with status {code}", outputs)


async def _started(arguments: list[str], environment: dict[str, str]) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            env=environment,
            start_new_session=True,
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        # Cancelled half-way, asyncio would kill the program alone and then wait for what it had started to close the
        # pipes, however long.
        with contextlib.suppress(OSError, ValueError):
            await _stop(await starting)
        raise


async def _read(stream: asyncio.StreamReader) -> str:
    """Read a stream to its end; keep its beginning."""
    kept = bytearray()
    while chunk := await stream.read(65_536):
        kept += chunk[: MAX_OUTPUT_BYTES - len(kept)]
    return kept.decode("utf-8", "replace")


async def _stop(process: asyncio.subprocess.Process) -> None:
    """End the program and all that it started, also when it has ended and left children behind."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.returncode is None:
        await asyncio.wait_for(process.wait(), _KILL_GRACE_SECONDS)
