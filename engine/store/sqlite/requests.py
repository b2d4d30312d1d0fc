"""What callers ask of the writer thread, and how they are answered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import assert_never

from engine.errors import WaysideError
from engine.store.base import Record


@dataclass(slots=True, eq=False, kw_only=True)
class Request:
    """Something to do in a transaction, and who waits for it until when."""

    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[object]
    lock_until: float = field(default=0.0)


@dataclass(slots=True, eq=False, kw_only=True)
class Create(Request):
    """Answers with the records stored under the items' keys afterwards."""

    items: Sequence[tuple[str, bytes]]
    size: int


@dataclass(slots=True, eq=False, kw_only=True)
class Delete(Request):
    """Answers with None."""

    keys: Sequence[str]


@dataclass(slots=True, eq=False, kw_only=True)
class ReadClock(Request):
    """Answers with the microseconds of a moment that no later commit is stamped before."""


@dataclass(slots=True, eq=False, kw_only=True)
class Watch(Request):
    """Answers with None when another process has committed; needs no transaction and has no deadline."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The last thing in the queue."""


Write = Create | Delete | ReadClock
Answer = list[Record] | int | None


def size_of(request: Write | Watch | Stop) -> tuple[int, int]:
    """Count a request's records and bytes."""
    match request:
        case Create(items=items, size=size):
            return len(items), size
        case Delete(keys=keys):
            return len(keys), 0
        case ReadClock() | Watch() | Stop():
            return 0, 0
        case _:
            assert_never(request)


def deliver(answers: Sequence[tuple[Request, Answer | WaysideError]]) -> None:
    """Resolve the futures, with one call into each event loop that somebody waits in."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Request, Answer | WaysideError]]] = {}
    for answer in answers:
        by_loop.setdefault(answer[0].loop, []).append(answer)
    for loop, those in by_loop.items():
        # A loop may be closed: then nobody waits there any more.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_resolve, those)


def _resolve(answers: Sequence[tuple[Request, Answer | WaysideError]]) -> None:
    for request, answer in answers:
        if request.answer.done():
            continue
        if isinstance(answer, WaysideError):
            request.answer.set_exception(answer)
        else:
            request.answer.set_result(answer)
