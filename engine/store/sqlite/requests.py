"""What callers ask of the writer thread, and how they are answered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Lock
from time import monotonic
from typing import Literal

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
class Turn(Request):
    """Answers with None when what its taker created is stored.

    The writer offers it with the write lock held and a stamp taken, then waits. Its taker, on its event loop, begins,
    reads and gives back what is to be created; or it is too late, and nothing is.
    """

    offered: asyncio.Future[int] = field(kw_only=True)
    _given: SimpleQueue[Items] = field(default_factory=SimpleQueue)
    _lock: Lock = field(default_factory=Lock)
    _state: Literal["offered", "begun", "missed"] = "offered"

    def begin(self) -> bool:
        """Take the turn, unless the writer has gone on without its taker. Whoever begins gives back in any case."""
        with self._lock:
            if self._state == "offered":
                self._state = "begun"
        return self._state == "begun"

    def give_back(self, items: Items) -> None:
        """Have these records created and committed."""
        self._given.put(items)

    def wait(self, seconds: float) -> Items:
        """Wait until the taker gives back; a taker that has not begun within `seconds` has missed its turn."""
        try:
            return self._given.get(timeout=seconds)
        except Empty:
            with self._lock:
                if self._state == "offered":
                    self._state = "missed"
        return () if self._state == "missed" else self._given.get()


@dataclass(slots=True, eq=False)
class Watch(Request):
    """Answers with None when another process has committed; needs no transaction, and waits for ever."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The last thing in the queue."""


Write = Create | Delete | Load | ReadClock | Turn
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


def offer(turn: Turn, stamp_us: int) -> None:
    """Tell the taker of a turn that it has come."""
    try:
        turn.loop.call_soon_threadsafe(_offer, turn, stamp_us)
    except RuntimeError:
        # The loop is closed: nobody will come.
        turn.give_back(())


def _offer(turn: Turn, stamp_us: int) -> None:
    if not turn.offered.done():
        turn.offered.set_result(stamp_us)


def _resolve(answers: Answers) -> None:
    for request, answer in answers:
        if request.answer.done():
            continue
        if not isinstance(answer, WaysideError):
            request.answer.set_result(answer)
        elif isinstance(request, Turn) and not request.offered.done():
            request.offered.set_exception(answer)
        else:
            request.answer.set_exception(answer)
