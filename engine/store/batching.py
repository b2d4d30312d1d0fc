"""Do together what concurrent callers ask for: one batch at a time, gathered while the one before it is under way.

One caller gets a batch for itself; many share one. What they ask for at the same time has no order among itself: each
waits for its answer before it asks for anything that depends on it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Generic, TypeVar

from engine.errors import StoreUnavailable, WaysideError
from engine.limits import STORE_TIMEOUT_SECONDS

Q = TypeVar("Q")
A = TypeVar("A")
Perform = Callable[[Sequence[Q], float], Awaitable[Sequence[A]]]


@dataclass(slots=True, eq=False)
class _Request(Generic[Q, A]):
    question: Q
    records: int
    volume: int
    since: float
    answer: asyncio.Future[A]


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """What a batch takes at most: how many records, and how many bytes of values; one request is always taken."""

    records: int
    volume: int


class Batcher(Generic[Q, A]):
    """Gathers questions; `perform(questions, deadline)` answers a batch of them, in order, by `deadline` (monotonic).

    A fault that `perform` raises is told to everybody in the batch, each with one of its own. Who has waited for
    `STORE_TIMEOUT_SECONDS` before the batch began is told so: nothing of it was done. There is a task while there is
    something to do, and none otherwise.
    """

    def __init__(self, name: str, perform: Perform[Q, A], bounds: Bounds) -> None:
        self._name = name
        self._perform = perform
        self._bounds = bounds
        self._queue: deque[_Request[Q, A]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def ask(self, question: Q, *, records: int = 1, volume: int = 0) -> A:
        """Put a question into the next batch and wait for its answer."""
        if self._closed:
            raise StoreUnavailable("the store is closed")
        loop = asyncio.get_running_loop()
        request: _Request[Q, A] = _Request(question, records, volume, monotonic(), loop.create_future())
        self._queue.append(request)
        if self._task is None:
            self._task = loop.create_task(self._run(), name=f"store {self._name}")
        return await request.answer

    async def close(self) -> None:
        """Finish what was asked for; refuse what comes later."""
        self._closed = True
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._queue:
                batch = self._gather()
                if batch:
                    await self._answer(batch)
        finally:
            self._task = None
            # Only when the task was cancelled from outside is anybody left.
            for request in self._queue:
                request.answer.cancel()
            self._queue.clear()

    def _gather(self) -> list[_Request[Q, A]]:
        batch: list[_Request[Q, A]] = []
        records = volume = 0
        too_old = monotonic() - STORE_TIMEOUT_SECONDS
        while self._queue:
            request = self._queue[0]
            over = records + request.records > self._bounds.records or volume + request.volume > self._bounds.volume
            if batch and over:
                break
            self._queue.popleft()
            # Whoever gave up before the work began is not in it.
            if request.answer.done():
                continue
            if request.since <= too_old:
                request.answer.set_exception(
                    StoreUnavailable(f"the store has not answered for {STORE_TIMEOUT_SECONDS:g} s")
                )
                continue
            batch.append(request)
            records += request.records
            volume += request.volume
        return batch

    async def _answer(self, batch: list[_Request[Q, A]]) -> None:
        deadline = batch[0].since + STORE_TIMEOUT_SECONDS
        try:
            answers = await self._perform([request.question for request in batch], deadline)
        except WaysideError as error:
            for request in batch:
                if not request.answer.done():
                    request.answer.set_exception(again(error))
        except BaseException as error:
            for request in batch:
                if not request.answer.done():
                    told = StoreUnavailable(f"the store failed: {type(error).__name__}", uncertain=True)
                    request.answer.set_exception(told)
            if not isinstance(error, Exception):
                raise
        else:
            for request, answer in zip(batch, answers, strict=True):
                if not request.answer.done():
                    request.answer.set_result(answer)


def again(error: WaysideError) -> WaysideError:
    """Make another fault like `error`: one that several raise gathers their tracebacks, and each may change it."""
    if isinstance(error, StoreUnavailable):
        return type(error)(error.message, hint=error.hint, uncertain=error.uncertain)
    return type(error)(error.message, hint=error.hint)
