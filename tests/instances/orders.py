"""Two engines in processes of their own race over one store, in orders that are chosen: one pauses before its n-th
operation on the store, the other does all of its work, and the first goes on. For every n, and either way round.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine import names, records
from engine.clock import derived_id
from engine.decisions.fold import fold
from engine.records import Accepted, Pending, Stored
from engine.store.base import Store
from engine.store.open import open_store

# Of a kind of workflow, each with a key of its own: one for each order that is tried.
WORKFLOWS = 600
# A sweep does more and more of them, all alike.
MOST_OPERATIONS = 60
# What holds of every race; a race's own judge names the rest.
APPLIED_ONCE = "A signal is applied at most once."
ANSWERED_IS_STORED = "What was answered is what is stored."


class Violated(AssertionError):
    """What must hold did not, in this order."""

    def __init__(self, invariant: str, where: str, seen: str) -> None:
        super().__init__(f"{where}: {invariant}: {seen}")
        self.invariant = invariant


class Actor:
    """One process."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def hears(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), 60)
        assert line, "the process has ended"
        said: dict[str, Any] = json.loads(line)
        return said

    def tell(self, message: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")

    async def does(self, **command: Any) -> Any:
        """Let it do something without asking."""
        self.tell({**command, "free": True})
        return (await self.hears())["ended"]

    async def begins(self, command: dict[str, Any], operations: int) -> tuple[bool, Any]:
        """Let it begin, and do so many operations; tell whether that was all, and how it ended if so."""
        self.tell(command)
        while True:
            said = await self.hears()
            if "ended" in said:
                return True, said["ended"]
            if not operations:
                return False, said["asks"]
            operations -= 1
            self.tell("go")

    async def goes_on(self) -> Any:
        """Let it come to its end."""
        while True:
            self.tell("go")
            said = await self.hears()
            if "ended" in said:
                return said["ended"]


@dataclass
class Stage:
    """The two processes, and a view of the store of one's own."""

    one: Actor
    other: Actor
    store: Store
    used: Counter[str] = field(default_factory=Counter)
    tried: Counter[str] = field(default_factory=Counter)

    def fresh(self, kind: str) -> tuple[str, str]:
        """Name a workflow whose key nobody has used, and a run that nobody has started."""
        self.used[kind] += 1
        assert self.used[kind] <= WORKFLOWS
        workflow = f"{kind}-{self.used[kind] - 1}"
        return workflow, derived_id("run", workflow)

    async def goes_wrong(self, how: str) -> None:
        """Have both get the protocol wrong from now on: `how` names one of `wrong.MUTATIONS`."""
        for actor in (self.one, self.other):
            assert await actor.does(do="break", how=how) == "broken"


@asynccontextmanager
async def stage(directory: Path, url: str, *, workflows: int = WORKFLOWS) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        actors = []
        for label in ("one", "other"):
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.instances.actor",
                url, str(directory / label), label, str(workflows),
                stdin=PIPE, stdout=PIPE, limit=1 << 20,
            )  # fmt: skip
            stack.push_async_callback(_end, process)
            actors.append(Actor(process))
        for actor in actors:
            assert "ready" in await actor.hears()
        store = open_store(url)
        stack.push_async_callback(store.close)
        yield Stage(actors[0], actors[1], store)


async def _end(process: Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.communicate()


Command = dict[str, Any]
Prepare = Callable[[Stage, str, str], Awaitable[None]]
Judge = Callable[[list[Any], dict[str, int]], None]


@dataclass(frozen=True)
class Race:
    """What two do at once: `one` and `other` make the commands from a workflow's and a run's name."""

    name: str
    one: Callable[[str, str], Command]
    other: Callable[[str, str], Command]
    judge: Judge
    kind: str = "early"
    prepare: Prepare | None = None


async def run_race(
    stage: Stage, race: Race, *, stride: int = 1, begin: int = 0, found: list[Violated] | None = None
) -> int:
    """Try the orders, each `stride`-th of them from `begin` on; tell how many there were.

    The first in which something is wrong ends it with `Violated`; with `found` that is put there, and the next tried.
    """
    tried = 0
    for swapped in (False, True):
        first, second = (stage.other, stage.one) if swapped else (stage.one, stage.other)
        makes = (race.other, race.one) if swapped else (race.one, race.other)
        for pause in range(begin, MOST_OPERATIONS, stride):
            workflow, run = stage.fresh(race.kind)
            if race.prepare is not None:
                await race.prepare(stage, workflow, run)
            all_, said = await first.begins(makes[0](workflow, run), pause)
            answer = await second.does(**makes[1](workflow, run))
            if not all_:
                said = await first.goes_on()
            tried += 1
            for actor in (first, second):
                await actor.does(do="resume", run=run)
                await actor.does(do="sweep")
            answers = [answer, said] if swapped else [said, answer]
            where = f"{race.name}: {'the second' if swapped else 'the first'} paused before operation {pause + 1}"
            try:
                await judge(stage, race, (workflow, run), answers, where)
            except Violated as violated:
                if found is None:
                    raise
                found.append(violated)
            if all_:
                break
    stage.tried[race.name] += tried
    return tried


@dataclass
class Kept:
    """What is stored of a key in the end."""

    claims: int
    # By receipt: how many waits took the signal, and in which slot it was put.
    applied: Counter[str]
    pending: dict[str, int]
    # The slot that the next wait takes from.
    current: int


async def kept(store: Store, key: names.Key) -> Kept:
    claims = [records.key_record(record) for record in await store.list(key.claims)]
    found = Kept(len(claims), Counter(), {}, records.current_slot(claims[-1] if claims else None))
    for claim in claims:
        raw = await store.get(names.outcome(claim.value.wait))  # type: ignore[union-attr]
        outcome = None if raw is None else records.outcome(raw)
        if isinstance(outcome, Stored) and isinstance(outcome.value, Accepted):
            found.applied[outcome.value.receipt] += 1
    for record in await store.list(key.slots):
        entry = records.slot_record(record)
        if isinstance(entry, Stored) and isinstance(entry.value, Pending):
            found.pending[entry.value.receipt] = names.parse_pending(record.key).slot
    return found


async def judge(stage: Stage, race: Race, names_: tuple[str, str], answers: list[Any], where: str) -> None:
    """Compare what was answered with what is stored: the invariants that every race has, then its own."""
    workflow, run = names_
    stored = await kept(stage.store, names.Key(workflow, "verdict"))
    for receipt, times in stored.applied.items():
        if times > 1:
            raise Violated(APPLIED_ONCE, where, f"{receipt} was applied {times} times")
        if stored.pending.get(receipt) == stored.current:
            raise Violated(APPLIED_ONCE, where, f"{receipt} was applied, and is held for the next wait")
    for answer in answers:
        if isinstance(answer, dict) and answer.get("state") in {"delivered", "held"}:
            held = answer["state"] == "held" and answer["receipt"] in stored.pending
            if not (held or stored.applied[answer["receipt"]]):
                raise Violated(ANSWERED_IS_STORED, where, f"{answer} is nowhere")
    kinds = Counter[str]()
    log = [records.event(record) for record in await stage.store.list(names.log(run))]
    if log:
        state = fold(run, log)
        assert state is not None
        kinds.update(type(event.value).__name__ for event in log)
        kinds[f"run {state.status}"] += 1
    kinds["applied"] = stored.applied.total()
    kinds["claims"] = stored.claims
    try:
        race.judge(answers, kinds)
    except AssertionError as error:
        raise Violated(race.judge.__doc__ or "", where, str(error)) from error
