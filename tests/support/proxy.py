"""A TCP proxy on loopback that loses answers, hangs or refuses when it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from enum import Enum


class Mode(Enum):
    """What becomes of the bytes."""

    PASS = "pass"
    LOSE_ANSWERS = "what the client says arrives; the answer does not, and the connection ends"
    HANG = "nothing arrives any more, either way, and no connection ends"
    ANSWER = "nothing arrives; the client gets a canned answer and the connection ends"
    REFUSE = "connections end as soon as they are made"


class Proxy:
    """Forwards connections to one port of the loopback."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self.lost_answers = 0
        self.canned_answers = 0
        self._canned = b""
        self._target = target
        self._mode = Mode.PASS
        self._changed = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()

    def set(self, mode: Mode, canned: bytes = b"") -> None:
        """Change what becomes of bytes that arrive from now on."""
        self._mode = mode
        self._canned = canned
        self._changed.set()
        self._changed = asyncio.Event()

    def cut(self) -> None:
        """End every connection."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._mode is Mode.REFUSE:
            writer.transport.abort()
            return
        try:
            answers, requests = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, requests}
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, requests, writer))
                group.create_task(self._pump(answers, writer, None))
        except* OSError:
            pass
        finally:
            self._writers -= {writer, requests}
            for end in (writer, requests):
                end.transport.abort()

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, back: asyncio.StreamWriter | None
    ) -> None:
        """Copy; `back` leads to the client where it is the client's bytes that are copied."""
        while data := await source.read(65_536):
            while self._mode is Mode.HANG:
                await self._changed.wait()
            if back is None and self._mode is Mode.LOSE_ANSWERS:
                self.lost_answers += 1
                break
            if back is not None and self._mode is Mode.ANSWER:
                self.canned_answers += 1
                back.write(self._canned)
                await back.drain()
                back.close()
                await back.wait_closed()
                break
            sink.write(data)
            await sink.drain()
        raise ConnectionResetError


@asynccontextmanager
async def proxy(target: int) -> AsyncIterator[Proxy]:
    """Run a proxy in front of `target`."""
    made = Proxy(target)
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(made.serve(reader, writer), name="proxied connection")
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)
