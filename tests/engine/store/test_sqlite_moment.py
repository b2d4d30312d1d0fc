"""A moment is as if nobody else were there: operations see what is committed and their own, and leave all or nothing.

Whoever asked, and the rider, hear which.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import threading
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable, Sequence
from contextvars import ContextVar
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import BadInput, StoreUnavailable
from engine.store.base import AtOnce, Record, Store
from engine.store.memory import MemoryStore
from engine.store.sqlite import SqliteStore, batch, writer
from engine.store.sqlite.requests import Turn
from tests.engine.store.conftest import Open, SetHost, until_asked, until_taken

Items = Sequence[tuple[str, bytes]]


def creating(*keys: str, value: bytes = b"v") -> Callable[[Store], Any]:
    async def operation(view: Store) -> list[Record]:
        return [await view.create(key, value) for key in keys]

    return operation


def count(shell: sqlite3.Connection) -> int:
    found: int = shell.execute("SELECT count(*) FROM records").fetchall()[0][0]
    return found


# What an operation sees, against a model.

KEYS = ("a/1", "a/2", "a/3", "a/b/1", "a/b/2", "b/1", "b/2", "c")
EMPTY = ("i/1", "i/2")
PREFIXES = ("", "a", "a/", "a/b/", "b/", "c", "i/", "z/")
items = st.one_of(
    st.tuples(st.sampled_from(KEYS), st.sampled_from([b"1", b"2"])),
    st.tuples(st.sampled_from(EMPTY), st.just(b"")),
)
deeds = st.one_of(
    st.tuples(st.just("create"), items),
    st.tuples(st.just("create_all"), st.lists(items, max_size=4)),
    st.tuples(st.just("get"), st.sampled_from(KEYS + EMPTY)),
    st.tuples(st.just("last"), st.sampled_from(PREFIXES)),
    st.tuples(
        st.just("list"),
        st.tuples(st.sampled_from(PREFIXES), st.none() | st.sampled_from(KEYS + EMPTY), st.none() | st.integers(0, 4)),
    ),
    st.tuples(st.just("raise"), st.none()),
)
operations = st.lists(deeds, max_size=6)


async def do(store: Store, place: str, deed: str, about: Any) -> object:
    """Do one thing under `place` and give what it came to, without stamps."""
    match deed:
        case "create":
            found: Any = [await store.create(place + about[0], about[1])]
        case "create_all":
            found = await store.create_all([(place + key, value) for key, value in about])
        case "get":
            found = [await store.get(place + about)]
        case "last":
            found = [await store.last(place + about)]
        case "list":
            prefix, after, limit = about
            found = await store.list(place + prefix, after=after and place + after, limit=limit)
        case _:
            raise BadInput("it cannot go on")
    return [record and (record.key, record.value) for record in found]


async def do_all(store: Store, place: str, deeds: list[tuple[str, Any]], seen: list[object]) -> None:
    for deed, about in deeds:
        seen.append(await do(store, place, deed, about))


async def outcome(doing: Any) -> type[Exception] | None:
    try:
        await doing
    except BadInput as raised:
        return type(raised)
    return None


async def compare(store: SqliteStore, place: str, story: list[tuple[bool, list[list[tuple[str, Any]]]]]) -> None:
    model = MemoryStore()
    for at_once, together in story:
        seen: list[list[object]] = [[] for _ in together]
        if at_once:
            asked = [
                store.at_once(lambda view, each=each, to=to: do_all(view, place, each, to))  # type: ignore[misc]
                for each, to in zip(together, seen, strict=True)
            ]
            ends = await asyncio.gather(*map(outcome, asked))
        else:
            ends = [await outcome(do_all(store, place, each, to)) for each, to in zip(together, seen, strict=True)]
        should: list[list[object]] = [[] for _ in together]
        assert ends == [
            await outcome(do_all(model, place, each, to)) for each, to in zip(together, should, strict=True)
        ]
        assert seen == should
    assert await do(store, place, "list", ("", None, None)) == await do(model, place, "list", ("", None, None))


def test_operations_see_and_leave_what_they_would_one_after_the_other(path: Path) -> None:
    with asyncio.Runner() as runner:
        store = runner.run(_opened(path))
        examples = iter(range(1_000_000))

        @settings(max_examples=30, deadline=None)
        @given(st.lists(st.tuples(st.booleans(), st.lists(operations, min_size=1, max_size=3)), max_size=5))
        def check(story: list[tuple[bool, list[list[tuple[str, Any]]]]]) -> None:
            runner.run(compare(store, f"{next(examples)}/", story))

        check()
        runner.run(store.close())


async def _opened(path: Path) -> SqliteStore:
    store = SqliteStore(path)
    assert isinstance(store, AtOnce)
    return store


async def test_nobody_sees_or_commits_anything_before_the_moment_is_over(
    open_sqlite: Open, shell: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_sqlite()
    inserted, go_on = threading.Event(), threading.Event()
    insert = batch.insert

    def slowly(connection: sqlite3.Connection, items: Items, stamp_us: int) -> list[Record]:
        stored = insert(connection, items, stamp_us)
        inserted.set()
        go_on.wait()
        return stored

    async def operation(view: Store) -> list[Record]:
        created = await view.create_all([("a/1", b"1"), ("a/2", b"2")])
        assert await view.list("a/") == created
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            shell.execute("BEGIN IMMEDIATE")
        return created

    monkeypatch.setattr(batch, "insert", slowly)
    doing = asyncio.create_task(store.at_once(operation))
    await asyncio.to_thread(inserted.wait)
    assert (count(shell), await store.get("a/1"), doing.done()) == (0, None, False)
    go_on.set()
    created = await doing
    assert count(shell) == 2
    assert await store.list("a/") == created


async def test_what_another_program_committed_before_the_moment_is_seen_in_it(
    open_sqlite: Open, shell: sqlite3.Connection
) -> None:
    store = open_sqlite()
    shell.execute("BEGIN IMMEDIATE")
    doing = asyncio.create_task(store.at_once(creating("a", value=b"ours")))
    await until_asked(store)
    shell.execute("INSERT INTO records (key, value, stored_at) VALUES ('a', x'01', 1)")
    shell.execute("COMMIT")
    assert [record.value for record in await doing] == [b"\x01"]


async def test_creates_that_come_while_a_moment_waits_are_behind_it(
    open_sqlite: Open, shell: sqlite3.Connection
) -> None:
    store = open_sqlite()
    shell.execute("BEGIN IMMEDIATE")
    first = asyncio.create_task(store.create("first", b""))
    await until_asked(store)
    moment = asyncio.create_task(store.at_once(creating("a", value=b"moment")))
    await until_asked(store, 2)
    plain = asyncio.create_task(store.create("a", b"plain"))
    await until_asked(store, 3)
    shell.execute("ROLLBACK")
    assert (await first).value == b""
    assert [record.value for record in await moment] == [b"moment"]
    assert (await plain).value == b"moment"


async def test_what_an_operation_raises_is_its_own_and_what_it_created_by_then_is_stored(open_sqlite: Open) -> None:
    store = open_sqlite()

    async def raising(view: Store) -> None:
        await view.create("a", b"")
        raise ValueError("its own")

    async def waiting(view: Store) -> None:
        await view.create("b", b"")
        await asyncio.sleep(0)

    async def deleting(view: Store) -> None:
        await view.delete(["a"])

    ends = await asyncio.gather(
        *(store.at_once(each) for each in (raising, waiting, deleting, creating("c"))), return_exceptions=True
    )
    assert [type(end) for end in ends] == [ValueError, AssertionError, NotImplementedError, list]
    assert [record.key for record in await store.list("")] == ["a", "b", "c"]


async def test_what_an_operation_sets_in_its_context_is_its_askers_and_nobody_elses(open_sqlite: Open) -> None:
    store = open_sqlite()
    about: ContextVar[str] = ContextVar("about", default="")

    async def ask(name: str) -> tuple[str, str]:
        about.set(f"asked by {name}")

        async def operation(view: Store) -> str:
            before = about.get()
            about.set(name)
            return before

        return await store.at_once(operation), about.get()

    assert await asyncio.gather(*map(ask, "ab")) == [("asked by a", "a"), ("asked by b", "b")]
    assert about.get() == ""


# Commits that fail.


class Recorder:
    """A rider that says what it was told."""

    def __init__(self, *, raising: bool = False) -> None:
        self.told: list[object] = []
        self.raising = raising

    def embark(self) -> None:
        self.told.append("embark")

    def ride(self, at: datetime) -> Items:
        self.told.append("ride")
        if self.raising:
            raise RuntimeError("the rider fell off")
        return [("rider", b"beside")]

    def arrive(self, fault: Exception | None) -> None:
        self.told.append(fault if fault is None else getattr(fault, "uncertain", None))


async def test_a_moment_for_which_there_is_no_room_leaves_nothing_and_the_next_has_room(open_sqlite: Open) -> None:
    store = open_sqlite()
    rider = Recorder()
    store.carry(rider)
    writing = store._writer._connection
    assert writing is not None
    writing.execute("PRAGMA max_page_count = 20")
    for _ in range(2):
        both = await asyncio.gather(
            store.at_once(creating("small")),
            store.at_once(creating("large", value=b"v" * 200_000)),
            return_exceptions=True,
        )
        for end in both:
            assert isinstance(end, StoreUnavailable)
            assert not end.uncertain
        assert await store.list("") == []
    writing.execute("PRAGMA max_page_count = 100000")
    await store.at_once(creating("small"))
    assert [record.key for record in await store.list("")] == ["rider", "small"]
    assert rider.told == ["embark", "ride", False] * 2 + ["embark", "ride", None]


class Commit:
    """Has the writer's next COMMIT fail, before or behind the real one."""

    def __init__(self, store: SqliteStore, code: int, *, landed: bool) -> None:
        self.plain = store._writer._connection
        self.code, self.landed = code, landed
        store._writer._connection = self  # type: ignore[assignment]

    def execute(self, sql: str, *parameters: Any) -> object:
        assert self.plain is not None
        if sql != "COMMIT":
            return self.plain.execute(sql, *parameters)
        if self.landed:
            self.plain.execute(sql)
        error = sqlite3.OperationalError("made up")
        error.sqlite_errorcode = self.code
        raise error

    def __getattr__(self, name: str) -> object:
        return getattr(self.plain, name)


@pytest.mark.parametrize(
    ("code", "landed"), [(sqlite3.SQLITE_FULL, False), (sqlite3.SQLITE_IOERR, False), (sqlite3.SQLITE_IOERR, True)]
)
async def test_a_commit_that_fails_is_certain_only_where_it_cannot_have_landed(
    open_sqlite: Open, code: int, landed: bool
) -> None:
    store = open_sqlite()
    rider = Recorder()
    store.carry(rider)
    await store.now()
    Commit(store, code, landed=landed)
    with pytest.raises(StoreUnavailable) as caught:
        await store.at_once(creating("a", "b"))
    uncertain = code == sqlite3.SQLITE_IOERR
    assert caught.value.uncertain is uncertain
    assert rider.told == ["embark", "ride", uncertain]
    assert [record.key for record in await store.list("")] == (["a", "b", "rider"] if landed else [])
    store._writer._disconnect()
    assert (await store.create("c", b"")).key == "c"


async def test_a_rider_that_fails_leaves_nothing_and_no_reader_in_the_past(open_sqlite: Open) -> None:
    store, other = open_sqlite(), open_sqlite()
    store.carry(Recorder(raising=True))

    async def reading(view: Store) -> None:
        await view.get("theirs")
        await view.create("a", b"")

    with pytest.raises(StoreUnavailable):
        await store.at_once(reading)
    await other.create("theirs", b"")
    assert [record.key for record in await store.list("")] == ["theirs"]


# Turns that nobody takes.


async def test_a_loop_that_comes_too_late_has_missed_its_turn_and_nothing_is_stored(
    open_sqlite: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_sqlite()
    gone = threading.Event()
    wait = Turn.wait

    def wait_not(turn: Turn, seconds: float) -> Items:
        try:
            return wait(turn, 0.0)
        finally:
            gone.set()

    with monkeypatch.context() as patched:
        patched.setattr(Turn, "wait", wait_not)
        doing = asyncio.create_task(store.at_once(creating("a")))
        await until_asked(store)
        # The loop stands still until the writer has gone on.
        assert gone.wait(5)
        with pytest.raises(StoreUnavailable, match="too busy") as caught:
            await doing
    assert not caught.value.uncertain
    assert await store.list("") == []
    assert len(await store.at_once(creating("a"))) == 1


async def test_a_turn_that_is_given_up_keeps_the_file_from_nobody(
    open_sqlite: Open, shell: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "SQLITE_TURN_SECONDS", 3_600.0)
    store = open_sqlite()
    shell.execute("BEGIN IMMEDIATE")
    doing = asyncio.create_task(store.at_once(creating("a")))
    await until_taken(store)
    task = store._moments._task
    assert task is not None
    task.cancel()
    with pytest.raises(StoreUnavailable):
        await doing
    shell.execute("ROLLBACK")
    async with asyncio.timeout(5):
        await store.create("b", b"")
    assert [record.key for record in await store.list("")] == ["b"]


async def test_a_caller_that_gives_up_takes_nothing_from_the_others_of_its_moment(
    open_sqlite: Open, shell: sqlite3.Connection
) -> None:
    store = open_sqlite()
    shell.execute("BEGIN IMMEDIATE")
    early = asyncio.create_task(store.at_once(creating("early")))
    await until_asked(store)
    gone, stays = (asyncio.create_task(store.at_once(creating(key))) for key in ("gone", "stays"))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    shell.execute("ROLLBACK")
    await asyncio.gather(early, stays)
    assert [record.key for record in await store.list("")] == ["early", "stays"]


async def test_closing_waits_for_the_operations_that_were_asked_for(
    open_sqlite: Open, shell: sqlite3.Connection
) -> None:
    store = open_sqlite()
    shell.execute("BEGIN IMMEDIATE")
    doing = [asyncio.create_task(store.at_once(creating(key))) for key in ("a", "b")]
    await until_asked(store)
    doing.append(asyncio.create_task(store.at_once(creating("c"))))
    await asyncio.sleep(0)
    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0)
    shell.execute("ROLLBACK")
    await asyncio.gather(*doing, closing)
    assert count(shell) == 3
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.at_once(creating("d"))
    assert count(shell) == 3


# The clock.


@pytest.mark.parametrize("boot", ["boot 1", ""], ids=["one anchor", "an anchor for each process"])
async def test_a_moments_stamp_is_not_below_any_answer_of_the_clock_before_it(open_sqlite: Open, boot: str) -> None:
    hosts = [SetHost(boot), SetHost(boot)]
    if not boot:
        hosts[1].step_wall_seconds(10)
    store, other = (open_sqlite(host=host) for host in hosts)

    async def now(view: Store) -> datetime:
        at = await view.now(until=datetime.max.replace(tzinfo=before.tzinfo))
        assert (await view.create(f"at/{at}", b"v")).stored_at == at
        return at

    for _ in range(3):
        before = await other.now()
        at = await store.at_once(now)
        assert before <= at <= await other.now()
        record = await other.last("at/")
        assert record is not None
        assert record.stored_at == at
        for host in hosts:
            host.pass_seconds(0.001)


# Several processes.


@pytest.fixture
async def numbering(path: Path) -> AsyncIterator[Callable[[str], Any]]:
    """Start processes that append; killed at the end whatever a test does."""
    started: list[asyncio.subprocess.Process] = []

    async def start(name: str) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.engine.store.numbering", str(path), name, stdout=PIPE
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def lines(process: asyncio.subprocess.Process, count: int) -> list[bytes]:
    assert process.stdout is not None
    return [await process.stdout.readline() for _ in range(count)]


async def test_two_processes_that_append_miss_no_number_and_lose_nothing_also_when_one_is_killed(
    open_sqlite: Open, numbering: Callable[[str], Any]
) -> None:
    store = open_sqlite()
    stays = await numbering("stays")
    said: list[bytes] = []
    killed = await numbering("killed")
    for _ in range(8):
        said += await lines(killed, 4) + await lines(stays, 4)
    killed.kill()
    output, _ = await killed.communicate()
    # What it said last may have been cut off.
    said += [line for line in output.splitlines(keepends=True) if line.endswith(b"\n")]
    said += await lines(stays, 8)
    stays.kill()
    await stays.wait()
    stored = {int(record.key[2:]): record.value.decode() for record in await store.list("n/")}
    beside = {record.key.partition("/")[2]: int(record.value) for record in await store.list("beside/")}
    assert list(stored) == list(range(1, len(stored) + 1))
    assert len(set(stored.values())) == len(stored)
    told = [line.decode().split() for line in said]
    assert all(stored[int(number)] == value for _, number, value in told)
    assert {how for how, *_ in told} == {"moment", "plain"}
    # All of a moment, or none of it.
    assert beside == {value: number for number, value in stored.items() if "-m" in value}
