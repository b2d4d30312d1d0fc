"""Hints of a change: sent at once, then at most every so often; heard by whoever waits. Nothing depends on them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress


class Hints:
    """What this instance tells the others, and what it heard of them."""

    def __init__(self, tell: Callable[[], Awaitable[None]], *, every_seconds: float) -> None:
        self._tell = tell
        self._every_seconds = every_seconds
        self._heard = asyncio.Event()
        self._wrote = False
        self._task: asyncio.Task[None] | None = None

    def heard(self) -> None:
        """Take note that another instance may have written."""
        self._heard.set()

    def wrote(self) -> None:
        """Take note that this instance has written: `tell` is awaited soon, once for many."""
        self._wrote = True
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="store hints")

    async def changed(self) -> None:
        """Return when something was heard since the last call."""
        await self._heard.wait()
        self._heard.clear()

    async def close(self) -> None:
        """Tell no more."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        try:
            while self._wrote:
                self._wrote = False
                await self._tell()
                await asyncio.sleep(self._every_seconds)
        finally:
            self._task = None
