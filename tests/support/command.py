"""The installed command, `wayside`: as a subprocess, or in this process where a start of its own shows nothing."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from gateway.cli import commands, invocation
from gateway.cli.main import run as main

PROGRAM = str(Path(sys.executable).with_name("wayside"))
SECONDS = 60.0


@dataclass(frozen=True)
class Ran:
    """How a command ended, and what it printed."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Read standard output as one JSON document."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """Read standard output as one JSON document a line."""
        return [json.loads(line) for line in self.out.splitlines()]


def environment(**more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("WAYSIDE_")} | more


async def start(*arguments: str, **variables: str) -> Process:
    return await asyncio.create_subprocess_exec(
        PROGRAM, *arguments, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment(**variables)
    )


async def wayside(*arguments: str, given: bytes = b"", status: int | None = 0, **variables: str) -> Ran:
    """Run a command to its end; unless `status` is None it has to exit with that."""
    process = await start(*arguments, **variables)
    try:
        out, err = await asyncio.wait_for(process.communicate(given), SECONDS)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return _judged(Ran(process.returncode or 0, out.decode(), err.decode()), arguments, status)


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


async def typed(*arguments: str, screen: bool = False, status: int | None = 0, **variables: str) -> Ran:
    """Run a command's own code in this process, on a thread: a start takes a hundred times as long as what it does.

    For commands that ask a gateway, or are refused before: one that acts by itself would set up this process's logs.
    """
    return _judged(await asyncio.to_thread(_type_in, arguments, screen, variables), arguments, status)


def _type_in(arguments: Sequence[str], screen: bool, variables: dict[str, str]) -> Ran:
    out, err = (Screen() if screen else io.StringIO()), io.StringIO()
    status: object = None
    with (
        patch.dict(os.environ, environment(**variables), clear=True),
        patch.object(sys, "argv", ["wayside", *arguments]),
    ):
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                main()
        except SystemExit as ended:
            status = ended.code
        finally:
            invocation.set_current(invocation.Invocation())
            commands.app.registered_commands, commands.app.registered_groups = [], []
    assert status is None or isinstance(status, int)
    return Ran(status or 0, out.getvalue(), err.getvalue())


def _judged(ran: Ran, arguments: Sequence[str], status: int | None) -> Ran:
    assert "Traceback" not in ran.out + ran.err, ran.err
    assert status is None or ran.status == status, f"{' '.join(arguments)}: {ran.status}\n{ran.out}\n{ran.err}"
    return ran


@dataclass
class Serving:
    """A gateway that serves `data`, and what its ready line said."""

    data: Path
    process: Process
    mqtt: tuple[str, int]
    http: str
    log: list[str] = field(default_factory=list)
    more: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def run(self, *arguments: str, given: bytes = b"", status: int | None = 0) -> Ran:
        return await wayside(*arguments, "--data", str(self.data), given=given, status=status)

    async def json(self, *arguments: str) -> Any:
        return (await self.run(*arguments, "--json")).json

    async def typed(self, *arguments: str, status: int | None = 0) -> Ran:
        """Run a command as `typed` does."""
        return await typed(*arguments, "--data", str(self.data), status=status)

    async def told(self, *arguments: str) -> Any:
        """Give the JSON of a command that is run as `typed` does."""
        return (await self.typed(*arguments, "--json")).json

    async def says(self, word: str) -> None:
        """Return once the log has a line with this word."""
        async with self.more:
            await self.more.wait_for(lambda: any(word in line for line in self.log))

    async def stop(self) -> int:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        return await asyncio.wait_for(self.process.wait(), SECONDS)


@contextlib.asynccontextmanager
async def serving(data: Path, options: Sequence[str] = ()) -> AsyncIterator[Serving]:
    """Run a gateway on free ports until the context ends; its log is collected."""
    doors = ("--mqtt", "127.0.0.1:0", "--http", "127.0.0.1:0")
    process = await start("serve", "--data", str(data), *doors, "--json", *options)
    assert process.stdout is not None
    assert process.stderr is not None
    reader = process.stderr
    log: list[str] = []
    more = asyncio.Condition()

    async def collect() -> None:
        while line := await reader.readline():
            async with more:
                log.append(line.decode())
                more.notify_all()

    collecting = asyncio.create_task(collect())
    try:
        ready: dict[str, Any] = {}
        while "mqtt" not in ready:  # audit events may come first
            line = await asyncio.wait_for(process.stdout.readline(), SECONDS)
            assert line, f"the gateway did not start: {''.join(log)}"
            ready = json.loads(line)
        host, _, port = ready["mqtt"].rpartition(":")
        yield Serving(data, process, (host, int(port)), ready["http"], log, more)
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), SECONDS)
            except TimeoutError:
                process.kill()
                await process.wait()
        await collecting
