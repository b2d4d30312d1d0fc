"""The machine: the engine's coroutines, stepped by hand over a `MemoryStore`, one store operation a step.

A protocol coroutine awaits its store and nothing else, so that what it does next is a function of the answers that it
has had and of the times at which it had them. `Node` is that history: nodes form a tree for each player, and a
coroutine is run again from its start only when a history is met for the first time. Everything that a state of the
whole system is made of, a player's node among it, can be hashed and compared.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from engine.actor import Actor
from engine.clock import derived_id
from engine.errors import Conflict, NotFound, StoreUnavailable
from engine.events import EngineEvent
from engine.limits import OPERATION_SECONDS, STORE_TIMEOUT_SECONDS
from engine.store.base import Record
from engine.store.memory import ManualClock, MemoryStore
from tests.interleavings.standing import CannotCompare, standing


@dataclass(frozen=True, slots=True)
class Request:
    """One operation that a coroutine asks of the store."""

    operation: str
    key: str
    value: bytes = b""
    after: str | None = None
    limit: int | None = None


Answer: TypeAlias = "Record | list[Record] | datetime | StoreUnavailable | None"


class Asked:
    """Hands one request to whoever steps the coroutine, and its answer back."""

    def __init__(self, request: Request) -> None:
        self._request = request

    def __await__(self) -> Generator[Request, Any, Any]:
        answer = yield self._request
        return answer


class SteppedStore:
    """A store whose every operation is a step; a list of creates, or of deletes, is a step for each item."""

    async def create(self, key: str, value: bytes) -> Record:
        return await Asked(Request("create", key, value))  # type: ignore[no-any-return]

    async def create_all(self, items: Sequence[tuple[str, bytes]]) -> list[Record]:
        return [await Asked(Request("create", key, value)) for key, value in items]

    async def get(self, key: str) -> Record | None:
        return await Asked(Request("get", key))  # type: ignore[no-any-return]

    async def last(self, prefix: str) -> Record | None:
        return await Asked(Request("last", prefix))  # type: ignore[no-any-return]

    async def list(self, prefix: str, *, after: str | None = None, limit: int | None = None) -> list[Record]:
        return await Asked(Request("list", prefix, after=after, limit=limit))  # type: ignore[no-any-return]

    async def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            await Asked(Request("delete", key))

    async def now(self, until: datetime | None = None) -> datetime:
        return await Asked(Request("now", ""))  # type: ignore[no-any-return]

    async def changed(self) -> None:
        raise AssertionError("no protocol coroutine waits for a hint")

    async def close(self) -> None:
        """Do nothing."""


class StepSource:
    """Time from the machine's clock; names that are functions of who draws them and of how many were drawn before."""

    def __init__(self, name: str, clock: Callable[[], float]) -> None:
        self._name = name
        self._clock = clock
        self._drawn = 0

    def monotonic(self) -> float:
        return self._clock()

    def nonce(self) -> str:
        self._drawn += 1
        return f"{self._name}.{self._drawn}"

    def sortable_id(self) -> str:
        self._drawn += 1
        return derived_id("id", self._name, str(self._drawn))


@dataclass(frozen=True, slots=True)
class Noted:
    """An event that the surroundings were told of."""

    action: str
    receipt: str


class Ear:
    """An observer that keeps what a person is told of signals that expired; the rest stands in the store."""

    def __init__(self, said: list[Any]) -> None:
        self._said = said

    def note(self, event: EngineEvent) -> None:
        if event.action == "signal.expired":
            self._said.append(Noted(event.action, event.receipt))


@dataclass(slots=True)
class Hands:
    """What a player's program works with. `said` is what it has told its caller so far."""

    name: str
    store: Any
    source: StepSource
    said: list[Any] = field(default_factory=list)

    def actor(self, instance: str = "") -> Actor:
        """Make the hands of one operation, of an instance of the player's own unless another is named."""
        return Actor(self.store, self.source, instance or self.name, Ear(self.said))


Program = Callable[[Hands], Coroutine[Any, Any, None]]


@dataclass(eq=False, slots=True)
class Node:
    """A player's history: where its program stands after the answers that it has had.

    `request` is what it asks next, None before its start and after its end. `fault` is what it raised that no caller
    expects. A killed player's node is its `grave`, which is the same however it got there: the dead tell
    what they had said and nothing else.
    """

    player: Player
    parent: Node | None
    input: tuple[str, Any, float] | None
    request: Request | None = None
    at: float = 0.0
    said: tuple[Any, ...] = ()
    ended: bool = False
    dead: bool = False
    fault: BaseException | None = None
    children: dict[tuple[str, Any, float], Node] = field(default_factory=dict)
    running: tuple[Coroutine[Any, Any, None], Hands] | None = None

    @property
    def live(self) -> bool:
        return not self.ended and not self.dead

    @property
    def started(self) -> bool:
        return self.input is not None


class Player:
    """One actor of a scenario: a name, and a program that can be started again from its beginning."""

    def __init__(self, name: str, program: Program, *, mortal: bool = True, may_lose: bool = False) -> None:
        self.name = name
        self.program = program
        self.mortal = mortal
        self.may_lose = may_lose
        self.root = Node(self, None, None)
        self.replays = 0
        self.apart = 0
        self._now = 0.0
        self._standing: dict[Any, Node] = {}
        self._graves: dict[tuple[Any, ...], Node] = {}

    def grave(self, said: tuple[Any, ...]) -> Node:
        """Give the node of this player, dead after it had said this much."""
        found = self._graves.get(said)
        if found is None:
            found = self._graves[said] = Node(self, self.root, ("killed", None, 0.0), said=said, dead=True)
        return found

    def advance(self, node: Node, kind: str, answer: Answer, now: float) -> Node:
        """Give the node that follows `node` when it gets `answer` (`kind`: start, answer, lost) at `now`."""
        hashable = tuple(answer) if isinstance(answer, list) else None if kind == "lost" else answer
        step = (kind, hashable, now)
        found = node.children.get(step)
        if found is None:
            found = node.children[step] = self._go(node, step)
        return found

    def _go(self, node: Node, step: tuple[str, Any, float]) -> Node:
        coroutine, hands = self._coroutine_at(node)
        child = Node(self, node, step, at=step[2])
        try:
            child.request = self._send(coroutine, step)
            child.running = coroutine, hands
        except StopIteration:
            child.ended = True
        except (StoreUnavailable, Conflict, NotFound):
            child.ended = True
        except Exception as fault:  # noqa: BLE001 - whatever else a program raises is a finding, with its schedule
            child.ended, child.fault = True, fault
        child.said = tuple(hands.said)
        return self._same(child, coroutine)

    def _same(self, child: Node, coroutine: Coroutine[Any, Any, None]) -> Node:
        """Give the node that is known for where `child` stands, or `child` if it is the first that stands there."""
        try:
            where = "ended" if child.ended else standing(coroutine, _COUNTS)
        except CannotCompare:
            self.apart += 1
            return child
        creates = child.request is not None and child.request.operation == "create"
        key = (where, child.request, child.at if creates else 0.0, child.said, repr(child.fault))
        return self._standing.setdefault(key, child)

    def _coroutine_at(self, node: Node) -> tuple[Coroutine[Any, Any, None], Hands]:
        if node.running is not None:
            running, node.running = node.running, None
            return running
        self.replays += 1
        steps: list[tuple[str, Any, float]] = []
        at: Node | None = node
        while at is not None and at.input is not None:
            steps.append(at.input)
            at = at.parent
        hands = Hands(self.name, SteppedStore(), StepSource(self.name, self._monotonic))
        coroutine = self.program(hands)
        for step in reversed(steps):
            self._send(coroutine, step)
        return coroutine, hands

    def _monotonic(self) -> float:
        """Give whole minutes: all that is asked is whether an operation has run for one, and fewer are fewer states."""
        return self._now // OPERATION_SECONDS * OPERATION_SECONDS

    def _send(self, coroutine: Coroutine[Any, Any, None], step: tuple[str, Any, float]) -> Request:
        kind, answer, now = step
        self._now = now
        match kind:
            case "start":
                return coroutine.send(None)  # type: ignore[no-any-return]
            case "lost":
                fault = StoreUnavailable("the answer was lost", uncertain=True)
                return coroutine.throw(fault)  # type: ignore[no-any-return]
            case _:
                given = list(answer) if isinstance(answer, tuple) else answer
                return coroutine.send(given)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Contents:
    """What the store holds, and what it held and was deleted: the graves say which numbers have been used.

    `mark` is a Zobrist hash of both: equal contents have equal marks, whatever the order they came in.
    """

    records: dict[str, Record]
    keys: list[str]
    graves: tuple[Record, ...]
    mark: int


UNTIMED = ("runs/", "open/", "driving/", "claimed/")
GRAVES = ("claims/", "pending/", "outcomes/", "sent/")


# What counts of values that hold more than the future depends on.
_COUNTS: dict[type, Any] = {
    StepSource: lambda source: (source._name, source._drawn),
    SteppedStore: lambda _: (),
    Ear: lambda _: (),
    Hands: lambda hands: (hands.name, hands.source, hands.said),
}


class Machine:
    """Applies requests to contents; never changes contents, always makes new ones."""

    def __init__(self, start: datetime) -> None:
        self.start = start
        self._clock = ManualClock(start)
        self._store = MemoryStore(self._clock)
        self._held: Contents | None = None
        self._marks: dict[tuple[str, Record], int] = {}

    def empty(self) -> Contents:
        """Give the contents of a new store."""
        return Contents({}, [], (), 0)

    def perform(self, contents: Contents, request: Request, now: datetime) -> tuple[Answer, Contents]:
        """Do one operation at `now`; return its answer and what the store holds then."""
        # No decision reads the stamps of these: with one stamp for all, states that differ by them alone are one.
        self._clock.set(self.start if request.key.startswith(UNTIMED) and request.operation == "create" else now)
        self._hold(contents)
        answer = _result(self._call(request))
        match request.operation:
            case "create" if request.key not in contents.records:
                return answer, self._after(contents, created=answer)
            case "delete" if request.key in contents.records:
                return answer, self._after(contents, deleted=contents.records[request.key])
            case _:
                return answer, contents

    def stale(self, request: Request, node: Node, now: float) -> bool:
        """Tell whether a create was asked for so long ago that its caller has had no answer in time."""
        return request.operation == "create" and now - node.at > STORE_TIMEOUT_SECONDS

    def _call(self, request: Request) -> Coroutine[Any, Any, Answer]:
        store = self._store
        match request.operation:
            case "create":
                return store.create(request.key, request.value)
            case "get":
                return store.get(request.key)
            case "last":
                return store.last(request.key)
            case "list":
                return store.list(request.key, after=request.after, limit=request.limit)
            case "delete":
                return store.delete([request.key])
            case _:
                return store.now()

    def _hold(self, contents: Contents) -> None:
        if self._held is not contents:
            shelf = self._store._shelf
            shelf.records = dict(contents.records)
            shelf.keys = list(contents.keys)
            self._held = contents

    def _after(self, contents: Contents, *, created: Answer = None, deleted: Record | None = None) -> Contents:
        shelf = self._store._shelf
        mark, graves = contents.mark, contents.graves
        if deleted is not None:
            mark ^= self._mark("", deleted)
            if deleted.key.startswith(GRAVES):
                graves = (*graves, deleted)
                mark ^= self._mark("grave", deleted)
        elif isinstance(created, Record):
            mark ^= self._mark("", created)
        # The contents keep the shelf's own dict and list; the next operation on them puts copies on the shelf.
        after = Contents(shelf.records, shelf.keys, graves, mark)
        self._held = None
        return after

    def _mark(self, kind: str, record: Record) -> int:
        found = self._marks.get((kind, record))
        if found is None:
            text = f"{kind}\x00{record.key}\x00{record.stored_at.isoformat()}\x00{record.value.decode()}"
            found = self._marks[kind, record] = int.from_bytes(derived_id(text).encode(), "big")
        return found


def _result(coroutine: Coroutine[Any, Any, Answer]) -> Answer:
    """Run an operation of the memory store, which awaits nothing, to its end."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise AssertionError("the memory store awaited something")
