"""Operations of the engine stepped by hand, from one store operation to the next, in every order of two of them."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from typing import Any

from engine.actor import Actor
from engine.store.memory import MemoryStore, Snapshot
from tests.support.bench import Bench


class _Turn:
    """Awaited before each store operation, so that a coroutine can be stepped from one to the next."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class Steps:
    """An operation over its own handle of the store, one store operation a step."""

    def __init__(self, one: Bench, work: Callable[[Actor], Coroutine[Any, Any, Any]]) -> None:
        assert isinstance(one.store, MemoryStore)
        handle = one.store.peer()

        async def before(operation: str, key: str) -> None:
            await _Turn()

        handle.before_operation = before
        actor = one.actor()
        actor.store = handle
        self.result: Any = None
        self.over = False
        self._work = work(actor)

    def step(self) -> None:
        if self.over:
            return
        try:
            self._work.send(None)
        except StopIteration as end:
            self.over, self.result = True, end.value


def finish(steps: Steps) -> Any:
    while not steps.over:
        steps.step()
    return steps.result


async def every_order(one: Bench, make: Callable[[], tuple[Steps, Steps]]) -> AsyncIterator[tuple[Any, Any]]:
    """Let one go some steps, then the other some, then the first to its end, then the other: for all numbers of steps.

    Whatever of the two can be written between any two operations of the other is written there once.
    """
    assert isinstance(one.store, MemoryStore)
    begin = one.store.snapshot()
    for first in (0, 1):
        for before in itertools.count():
            for between in itertools.count():
                one.store.restore(begin)
                both = make()
                for _ in range(before):
                    both[first].step()
                for _ in range(between):
                    both[1 - first].step()
                whole = both[1 - first].over
                finish(both[first])
                finish(both[1 - first])
                yield both[0].result, both[1].result
                if whole:
                    break
            if over_after(make, first, before, one, begin):
                break


def over_after(make: Callable[[], tuple[Steps, Steps]], which: int, steps: int, one: Bench, begin: Snapshot) -> bool:
    """Tell whether that many steps are all that the operation has when it is alone."""
    assert isinstance(one.store, MemoryStore)
    one.store.restore(begin)
    both = make()
    for _ in range(steps):
        both[which].step()
    over = both[which].over
    finish(both[which])
    finish(both[1 - which])
    return over
