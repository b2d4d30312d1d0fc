"""What callers ask of the writer thread, and how they are answered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic

from engine.errors import WaysideError
from engine.store.base import Record

Items = Sequence[tuple[str, bytes]]


@dataclass(slots=True, eq=False)
class Request:
    """Something for the writer to do, and who waits for it.

    `records` and `volume` (bytes) count against the bounds of a batch; `since` is when it was asked for (monotonic).
    """

    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[object]
    records: int = 0
    volume: int = 0
    since: float = field(default_factory=monotonic)


@dataclass(slots=True, eq=False)
class Create(Request):
    """Answers with the records stored under the items' keys afterwards."""

    items: Items = ()


@dataclass(slots=True, eq=False)
class Load(Request):
    """Answers with None: the records are stored with the stamps that they bear."""

    loaded: Sequence[Record] = ()


@dataclass(slots=True, eq=False)
class Delete(Request):
    """Answers with None."""

    keys: Sequence[str] = ()


@dataclass(slots=True, eq=False)
class ReadClock(Request):
    """Answers with the microseconds of a moment that no later commit is stamped before."""


@dataclass(slots=True, eq=False)
class Watch(Request):
    """Answers with None when another process has committed; needs no transaction, and waits for ever."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The last thing in the queue."""


Write = Create | Delete | Load | ReadClock
Answers = list[tuple[Request, list[Record] | int | WaysideError | None]]


def deliver(answers: Answers) -> None:
    """Resolve the futures, with one call into each event loop that somebody waits in."""
    by_loop: dict[asyncio.AbstractEventLoop, Answers] = {}
    for answer in answers:
        by_loop.setdefault(answer[0].loop, []).append(answer)
    for loop, those in by_loop.items():
        # A loop may be closed: then nobody waits there any more.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_resolve, those)


def _resolve(answers: Answers) -> None:
    for request, answer in answers:
        if request.answer.done():
            continue
        if isinstance(answer, WaysideError):
            request.answer.set_exception(answer)
        else:
            request.answer.set_result(answer)
