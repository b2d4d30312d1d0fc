"""Proves that events ride with the moment they are noted in: stored by its commit, or never noted, in one chain.

The store is scripted: its transactions end one after the other, as one writer's do, and each as a test says.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.clock import SystemSource
from engine.errors import StoreUnavailable
from engine.records import Stored
from engine.store.base import Record, Store
from engine.store.memory import ManualClock, MemoryStore
from engine.store.sqlite import SqliteStore
from gateway import audit as module
from gateway.audit import BATCH, FLOOD_SECONDS, Audit, Entry, read_event
from gateway.chain import verify
from tests.support.source import HandSource

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
Items = Sequence[tuple[str, bytes]]
Fate = Literal["stored", "refused", "landed", "lost"]
"""The last two are uncertain for whoever asked."""


def fault(fate: Fate) -> StoreUnavailable | None:
    return None if fate == "stored" else StoreUnavailable(fate, uncertain=fate != "refused")


@dataclass(eq=False)
class Asked:
    """A transaction that is waiting for its turn."""

    items: Items = ()
    answer: asyncio.Future[list[Record]] | None = None
    moment: Moment | None = None


@dataclass(eq=False)
class Moment:
    """Operations that each note an event."""

    reasons: list[str]
    rode: bool = False
    arrived: bool = False
    fate: Fate | None = None

    @property
    def was(self) -> bool:
        return self.fate in {"stored", "landed"}


@dataclass
class Serial:
    """One writer, one audit log, and what a test knows about both."""

    records: dict[str, Record] = field(default_factory=dict)
    queue: deque[Asked] = field(default_factory=deque)
    source: HandSource = field(default_factory=HandSource)
    noted: list[tuple[str, Moment | None]] = field(default_factory=list)
    moment: Moment | None = None
    waits: list[asyncio.Task[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.audit = Audit(cast("Store", self), "one", self.source)

    # What the log asks of a store.

    async def create_all(self, items: Items) -> list[Record]:
        answer: asyncio.Future[list[Record]] = asyncio.get_running_loop().create_future()
        self.queue.append(Asked(items, answer))
        return await answer

    async def now(self, until: datetime | None = None) -> datetime:
        if until is None:
            await self.create_all(())
        return NOW

    async def get(self, key: str) -> Record | None:
        return self.records.get(key)

    # What a test does.

    def note(self, moment: Moment | None = None) -> None:
        reason = f"n-{len(self.noted)}"
        self.noted.append((reason, moment))
        if moment is not None:
            moment.reasons.append(reason)
        self.audit.add(Entry(action="signal.held", reason=reason))

    def ask_for_a_moment(self) -> None:
        """One at a time, as a store does them."""
        if self.moment is None:
            self.moment = Moment([])
            self.queue.append(Asked(moment=self.moment))

    def begin(self, events: int) -> Moment:
        """Do the operations of the moment that is first in the queue; its commit is still to come."""
        first = self.queue[0]
        assert first.moment is not None
        self.audit.embark()
        for _ in range(events):
            self.note(first.moment)
        first.items = self.audit.ride(NOW)
        first.moment.rode = bool(first.items)
        first.moment.fate = "refused"
        return first.moment

    def break_off(self) -> None:
        """Have the file fail in the midst of the operations."""
        moment = self.queue.popleft().moment
        assert moment is not None
        self.audit.embark()
        self.note(moment)
        self.arrive(moment, "refused")

    def arrive(self, moment: Moment, fate: Fate) -> None:
        moment.arrived, self.moment, moment.fate = True, None, fate
        self.audit.arrive(fault(fate))

    def give_up(self) -> None:
        """Have whoever waits for the commit leave before it ends."""
        first = self.queue[0]
        assert first.moment is not None
        self.arrive(first.moment, "lost")

    def commit(self, fate: Fate = "stored") -> None:
        """End the first transaction."""
        asked = self.queue.popleft()
        stored = [self._create(*item) if fate in {"stored", "landed"} else None for item in asked.items]
        if asked.answer is not None:
            if not asked.answer.done():
                why = fault(fate)
                asked.answer.set_result([r for r in stored if r]) if why is None else asked.answer.set_exception(why)
        elif asked.moment is not None and not asked.moment.arrived:
            self.arrive(asked.moment, fate)
        elif asked.moment is not None and fate in {"stored", "landed"}:
            asked.moment.fate = "landed"
        self.check_nothing_is_said_of_what_never_was()

    def _create(self, key: str, value: bytes) -> Record:
        return self.records.setdefault(key, Record(key, value, NOW))

    def step(self, fate: Fate, events: int) -> None:
        if self.queue and self.queue[0].moment is not None and self.queue[0].moment.fate is None:
            self.begin(events)
        elif self.queue:
            self.commit(fate)

    def wait(self) -> asyncio.Task[None]:
        upto = self.audit.noted
        assert upto == len(self.noted)
        self.waits.append(asyncio.ensure_future(self._wait(upto)))
        return self.waits[-1]

    async def _wait(self, upto: int) -> None:
        await self.audit.written(upto)
        there = set(self.log())
        for reason, moment in self.noted[:upto]:
            assert reason in there or (moment is not None and (moment.fate != "stored"))

    # What is true of it.

    def log(self) -> list[str]:
        found = [read_event(self.records[key]) for key in sorted(self.records)]
        return [event.value.reason for event in found if isinstance(event, Stored)]

    def check_nothing_is_said_of_what_never_was(self) -> None:
        there = set(self.log())
        for reason, moment in self.noted:
            assert moment is None or moment.was or reason not in there, f"{reason} never was"

    async def drain(self) -> list[str]:
        """Have all end well, and give the log: whole, in order, and one chain."""
        self.wait()
        for _ in range(60 + 4 * len(self.noted)):
            if self.queue:
                self.step("stored", 0)
            elif all(wait.done() for wait in self.waits):
                break
            await turn()
        for wait in self.waits:
            assert wait.done(), "somebody waits for ever"
            assert wait.cancelled() or isinstance(wait.exception(), StoreUnavailable | None)
        self.check_nothing_is_said_of_what_never_was()
        log = self.log()
        there = set(log)
        known = [reason for reason, _ in self.noted]
        assert [reason for reason in log if reason in known] == [reason for reason in known if reason in there]
        for reason, moment in self.noted:
            if moment is None or moment.fate == "stored" or (moment.fate == "landed" and moment.rode):
                assert reason in there, f"{reason} is missing"
        copy = MemoryStore(ManualClock(NOW))
        await copy.load(list(self.records.values()))
        assert (await verify(copy)).flaws == ()
        assert self.audit.head.partition(":")[0] in {str(len(log)), ""}
        assert self.audit.waiting == 0
        return log


async def turn(times: int = 4) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


async def test_events_are_stored_by_the_commit_of_their_moment_behind_those_that_waited() -> None:
    serial = Serial()
    serial.note()
    serial.ask_for_a_moment()
    serial.begin(2)
    assert serial.log() == []
    waiting = serial.wait()
    await turn()
    assert not waiting.done()
    assert not serial.audit.head
    serial.commit()
    await waiting
    assert serial.log() == ["n-0", "n-1", "n-2"]
    assert await serial.drain() == ["n-0", "n-1", "n-2"]


@pytest.mark.parametrize("fate", ["refused", "lost"])
async def test_what_was_noted_in_a_moment_that_was_not_stored_never_was(fate: Fate) -> None:
    serial = Serial()
    serial.note()
    serial.ask_for_a_moment()
    serial.begin(2)
    serial.note()
    serial.commit(fate)
    assert await serial.drain() == ["n-0", "n-3"]


async def test_a_moment_that_landed_although_nobody_could_say_so_is_in_the_log_once() -> None:
    serial = Serial()
    serial.ask_for_a_moment()
    serial.begin(1)
    serial.commit("landed")
    serial.note()
    assert await serial.drain() == ["n-0", "n-1"]


@pytest.mark.parametrize("fate", ["stored", "lost"])
async def test_a_commit_that_ends_after_its_taker_gave_up_is_judged_by_how_it_ends(fate: Fate) -> None:
    serial = Serial()
    serial.ask_for_a_moment()
    serial.begin(1)
    serial.give_up()
    serial.note()
    serial.wait()
    await turn()
    serial.commit(fate)
    assert await serial.drain() == (["n-0", "n-1"] if fate == "stored" else ["n-1"])


async def test_operations_that_the_file_broke_off_were_never_noted() -> None:
    serial = Serial()
    serial.ask_for_a_moment()
    serial.break_off()
    serial.note()
    assert await serial.drain() == ["n-1"]


async def test_a_write_that_is_under_way_is_part_of_the_moments_commit() -> None:
    serial = Serial()
    serial.ask_for_a_moment()
    serial.note()
    waiting = serial.wait()
    await turn()
    assert serial.queue[1].answer is not None
    serial.begin(1)
    serial.commit()
    assert serial.log() == ["n-0", "n-1"]
    serial.commit("refused")
    with pytest.raises(StoreUnavailable):
        await waiting
    assert await serial.drain() == ["n-0", "n-1"]


async def test_a_write_that_is_about_to_begin_takes_nothing_of_a_moment_that_may_fail() -> None:
    serial = Serial()
    # Two who wait for one write: the next one lets others note theirs first.
    serial.note()
    both = [serial.wait(), serial.wait()]
    await turn()
    serial.commit()
    await asyncio.gather(*both)
    serial.note()
    serial.wait()
    await asyncio.sleep(0)
    serial.ask_for_a_moment()
    serial.begin(1)
    await turn()
    serial.commit("refused")
    while serial.queue:
        serial.commit()
        await turn()
    assert await serial.drain() == ["n-0", "n-1"]


async def test_more_than_a_batch_is_written_before_a_moments_events() -> None:
    serial = Serial()
    for _ in range(BATCH + 1):
        serial.note()
    serial.ask_for_a_moment()
    moment = serial.begin(1)
    assert not moment.rode
    serial.wait()
    await turn()
    assert len(serial.queue) == 1
    serial.commit()
    serial.ask_for_a_moment()
    serial.begin(1)
    serial.commit("refused")
    await turn()
    # One batch, and the rest.
    assert len(serial.queue[0].items) == BATCH
    assert await serial.drain() == [f"n-{number}" for number in range(BATCH + 2)]


async def test_the_count_of_a_flood_that_ended_in_a_moment_holds_though_the_moment_does_not() -> None:
    serial = Serial()
    audit = serial.audit
    refusal = Entry(action="signal.refused", result="not_found", principal="device:d")
    assert audit.refuse(refusal)
    assert not audit.refuse(refusal)
    audit.embark()
    serial.source.advance(FLOOD_SECONDS)
    assert audit.refuse(refusal)
    audit.ride(NOW)
    audit.arrive(fault("refused"))
    writing = asyncio.ensure_future(audit.written())
    await turn()
    serial.commit()
    await writing
    found = [read_event(serial.records[key]) for key in sorted(serial.records)]
    assert [(event.value.action, event.value.count) for event in found if isinstance(event, Stored)] == [
        ("signal.refused", 1),
        ("signal.refused", 1),
    ]
    assert [event.value.seconds for event in found if isinstance(event, Stored)] == [0.0, FLOOD_SECONDS]


@pytest.mark.parametrize("fate", ["refused", "lost"])
async def test_a_refusal_in_a_moment_that_never_was_does_not_stand_for_the_next(fate: Fate) -> None:
    serial = Serial()
    refusal = Entry(action="signal.refused", result="not_found", principal="device:d")
    serial.ask_for_a_moment()
    serial.audit.embark()
    assert serial.audit.refuse(refusal)
    serial.queue[0].items = serial.audit.ride(NOW)
    serial.commit(fate)
    serial.audit.add(Entry(action="signal.held"))
    writing = asyncio.ensure_future(serial.audit.written())
    await turn()
    while serial.queue:
        serial.commit()
        await turn()
    await writing
    assert serial.audit.refuse(refusal)


async def test_over_sqlite_the_chain_goes_on_across_moments_that_found_no_room(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "records.db")
    audit = Audit(store, "one", SystemSource())
    store.carry(audit)
    writing = store._writer._connection
    assert writing is not None

    async def signal(reason: str, size: int) -> bool:
        async def operation(view: Store) -> None:
            await view.create(f"pending/{reason}", b"v" * size)
            audit.add(Entry(action="signal.held", reason=reason))

        try:
            await store.at_once(operation)
        except StoreUnavailable:
            return False
        await audit.written(audit.noted)
        assert await store.get(f"pending/{reason}") is not None
        return True

    try:
        for number in range(4):
            audit.add(Entry(action="run.created", reason=f"run-{number}"))
            writing.execute("PRAGMA max_page_count = 30")
            assert await asyncio.gather(*(signal(f"lost-{number}-{n}", 60_000) for n in range(3))) == [False] * 3
            writing.execute("PRAGMA max_page_count = 10000")
            assert await asyncio.gather(*(signal(f"kept-{number}-{n}", 10) for n in range(3))) == [True] * 3
        await audit.end()
        log = [read_event(record) for record in await store.list("audit/")]
        reasons = [event.value.reason for event in log if isinstance(event, Stored)]
        each = [[f"run-{number}", *(f"kept-{number}-{n}" for n in range(3))] for number in range(4)]
        assert reasons == [*(reason for those in each for reason in those), ""]
        found = await verify(store)
        assert (found.flaws, found.events, found.chains) == ((), 17, 1)
    finally:
        await store.close()


fates = st.sampled_from(["stored", "stored", "refused", "landed", "lost"])
deeds = st.one_of(
    st.tuples(st.just("note"), st.just("stored"), st.integers(1, 3)),
    st.tuples(st.just("wait"), st.just("stored"), st.just(0)),
    st.tuples(st.just("moment"), st.just("stored"), st.integers(0, 3)),
    st.tuples(st.just("step"), fates, st.integers(0, 3)),
    st.tuples(st.just("step"), fates, st.integers(0, 3)),
    st.tuples(st.sampled_from(["give up", "break off", "cancel"]), st.just("stored"), st.just(0)),
)


def do(serial: Serial, deed: str, fate: Fate, number: int) -> None:
    first = serial.queue[0].moment if serial.queue else None
    match deed:
        case "note":
            for _ in range(number):
                serial.note()
        case "wait":
            serial.wait()
        case "moment":
            serial.ask_for_a_moment()
            if serial.queue[0].moment is serial.moment and serial.moment is not None and serial.moment.fate is None:
                serial.begin(number)
        case "step":
            serial.step(fate, number)
        case "give up" if first is not None and first.fate is not None and not first.arrived:
            serial.give_up()
        case "break off" if first is not None and first.fate is None:
            serial.break_off()
        case "cancel" if serial.waits:
            serial.waits[-1].cancel()


@settings(max_examples=70, deadline=None)
@given(st.lists(st.tuples(deeds, st.integers(0, 3)), max_size=25))
def test_whatever_becomes_of_commits_the_log_is_what_was_stored_and_nobody_is_told_early(
    story: list[tuple[tuple[str, Fate, int], int]],
) -> None:
    async def tell() -> None:
        serial = Serial()
        for (deed, fate, number), turns in story:
            do(serial, deed, fate, number)
            await turn(turns)
        await serial.drain()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "BATCH", 3)
        asyncio.run(tell())
