"""One thread commits what concurrent callers ask for together, and leaves nobody without an answer."""

# ruff: noqa: ASYNC240 - files are looked at, nothing else runs meanwhile

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from engine.errors import StoreUnavailable
from engine.limits import SQLITE_WAL_PAGES
from engine.store.sqlite import SqliteStore, batch, writer
from tests.engine.store.conftest import Open, until_taken


@pytest.fixture
def transactions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records each transaction was asked to create."""
    seen: list[int] = []
    insert = batch.insert

    def noted(connection: sqlite3.Connection, items: Sequence[tuple[str, bytes]], stamp_us: int) -> object:
        if items:
            seen.append(len(items))
        return insert(connection, items, stamp_us)

    monkeypatch.setattr(batch, "insert", noted)
    return seen


async def test_creates_of_concurrent_callers_share_a_transaction(
    open_sqlite: Open, shell: sqlite3.Connection, transactions: list[int]
) -> None:
    store = open_sqlite()
    shell.execute("BEGIN IMMEDIATE")
    tasks = [asyncio.create_task(store.create(f"a/{number}", b"")) for number in range(300)]
    await asyncio.sleep(0)
    shell.execute("ROLLBACK")
    records = await asyncio.gather(*tasks)
    assert [record.key for record in records] == [f"a/{number}" for number in range(300)]
    # The first may have had a transaction for itself, before the others came.
    assert len(transactions) <= 2
    assert sum(transactions) == 300


async def test_a_transaction_is_bounded_by_records_and_by_bytes(
    open_sqlite: Open, transactions: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_sqlite()
    await store.create_all([(f"a/{number}", b"") for number in range(2_001)])
    assert transactions == [1_000, 1_000, 1]
    transactions.clear()
    monkeypatch.setattr("engine.store.sqlite.store.SQLITE_BATCH_BYTES", 100)
    await store.create_all([(f"b/{number}", b"v" * 40) for number in range(5)])
    assert transactions == [2, 2, 1]


async def test_a_list_that_fails_half_way_is_uncertain(open_sqlite: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_sqlite()
    insert = batch.insert

    def failing(connection: sqlite3.Connection, items: Sequence[tuple[str, bytes]], stamp_us: int) -> object:
        if items and items[0][0] == "a/1000":
            error = sqlite3.OperationalError("made up")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        return insert(connection, items, stamp_us)

    monkeypatch.setattr(batch, "insert", failing)
    with pytest.raises(StoreUnavailable) as caught:
        await store.create_all([(f"a/{number:04d}", b"") for number in range(1_500)])
    assert caught.value.uncertain
    assert len(await store.list("a/")) == 1_000


async def test_winners_and_losers_of_one_transaction_are_told_apart(
    open_sqlite: Open, shell: sqlite3.Connection
) -> None:
    store = open_sqlite()
    await store.create("a/3", b"first")
    shell.execute("BEGIN IMMEDIATE")
    tasks = [asyncio.create_task(store.create(f"a/{number % 5}", f"by {number}".encode())) for number in range(20)]
    await asyncio.sleep(0)
    shell.execute("ROLLBACK")
    values = [record.value for record in await asyncio.gather(*tasks)]
    assert values == [b"by 0", b"by 1", b"by 2", b"first", b"by 4"] * 4


async def test_requests_of_one_transaction_are_done_in_the_order_in_which_they_came(
    open_sqlite: Open, shell: sqlite3.Connection
) -> None:
    store = open_sqlite()
    shell.execute("BEGIN IMMEDIATE")
    tasks = [
        asyncio.create_task(store.create("a", b"1")),
        asyncio.create_task(store.delete(["a"])),
        asyncio.create_task(store.create("a", b"2")),
    ]
    await asyncio.sleep(0)
    shell.execute("ROLLBACK")
    await asyncio.gather(*tasks)
    record = await store.get("a")
    assert record is not None
    assert record.value == b"2"


async def test_a_caller_that_gave_up_before_its_transaction_began_has_stored_nothing(
    open_sqlite: Open, shell: sqlite3.Connection
) -> None:
    store = open_sqlite()
    shell.execute("BEGIN IMMEDIATE")
    first = asyncio.create_task(store.create("first", b""))
    await until_taken(store)
    gone, stays = asyncio.create_task(store.create("gone", b"")), asyncio.create_task(store.create("stays", b""))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    shell.execute("ROLLBACK")
    await asyncio.gather(first, stays)
    assert [record.key for record in await store.list("")] == ["first", "stays"]


async def test_closing_finishes_what_is_in_flight(open_sqlite: Open) -> None:
    store = open_sqlite()
    tasks = [asyncio.create_task(store.create(f"a/{number}", b"")) for number in range(20)]
    watching = asyncio.create_task(store.changed())
    await asyncio.sleep(0)
    await asyncio.gather(store.close(), store.close())
    assert [record.key for record in await asyncio.gather(*tasks)] == [f"a/{number}" for number in range(20)]
    with pytest.raises(StoreUnavailable, match="closed"):
        await watching
    assert not store._writer._thread.is_alive()


async def test_callers_in_several_event_loops_are_answered_each_in_their_own(open_sqlite: Open) -> None:
    store = open_sqlite()
    threads = [threading.Thread(target=lambda at=at: asyncio.run(create_some(store, f"loop{at}"))) for at in range(3)]
    for thread in threads:
        thread.start()
    await create_some(store, "loop3")
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert len(await store.list("loop")) == 4 * 50


async def create_some(store: SqliteStore, name: str) -> None:
    await asyncio.gather(*(store.create(f"{name}/{number:02d}", b"") for number in range(50)))
    assert len(await store.list(f"{name}/")) == 50


async def test_a_loop_that_ended_with_requests_open_harms_nobody(open_sqlite: Open, shell: sqlite3.Connection) -> None:
    store = open_sqlite()
    shell.execute("BEGIN IMMEDIATE")

    async def ask_and_leave() -> None:
        create = asyncio.ensure_future(store.create("left", b""))
        await asyncio.sleep(0)
        create.cancel()

    await asyncio.to_thread(asyncio.run, ask_and_leave())
    creating = asyncio.create_task(store.create("stays", b""))
    await asyncio.sleep(0)
    shell.execute("ROLLBACK")
    assert (await creating).key == "stays"


async def test_what_this_store_writes_is_no_change_and_what_another_writes_is(
    open_sqlite: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "SQLITE_POLL_SECONDS", 0.001)
    polls = 0
    version = writer._version

    def counted(connection: sqlite3.Connection) -> int:
        nonlocal polls
        polls += 1
        return version(connection)

    monkeypatch.setattr(writer, "_version", counted)
    store, other = open_sqlite(), open_sqlite()
    watching = asyncio.create_task(store.changed())
    await asyncio.sleep(0)
    await store.create("own", b"")
    seen = polls
    while polls < seen + 3:
        assert not watching.done()
        await asyncio.sleep(0.001)
    await other.create("theirs", b"")
    await watching


async def test_nobody_polls_when_nobody_watches(open_sqlite: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "SQLITE_POLL_SECONDS", 0.001)
    store, other = open_sqlite(), open_sqlite()
    watching = asyncio.create_task(store.changed())
    await other.create("theirs", b"")
    await watching
    given_up = asyncio.create_task(store.changed())
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    await store.create("own", b"")
    await store.create("own too", b"")
    assert store._writer._watches == []


async def test_the_wal_stays_short_under_load(open_sqlite: Open, path: Path) -> None:
    store = open_sqlite()
    highest = 0
    for number in range(60):
        await store.create_all([(f"a/{number:03d}/{at:03d}", b"v" * 4_000) for at in range(200)])
        assert await store.last("a/") is not None
        highest = max(highest, path.with_name("records.db-wal").stat().st_size)
    assert path.stat().st_size > 40_000_000
    assert highest < 1.5 * SQLITE_WAL_PAGES * 4_096


async def test_the_wal_shrinks_again_after_a_reader_held_it(
    open_sqlite: Open, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.store.sqlite.file.SQLITE_WAL_BYTES", 1_000_000)
    store = open_sqlite()
    wal = path.with_name("records.db-wal")
    await store.create("first", b"")
    with closing(sqlite3.connect(path, isolation_level=None)) as backup:
        backup.execute("BEGIN")
        backup.execute("SELECT count(*) FROM records").fetchall()
        for number in range(20):
            await store.create_all([(f"a/{number:03d}/{at:03d}", b"v" * 4_000) for at in range(200)])
        assert wal.stat().st_size > 16_000_000
        backup.execute("ROLLBACK")
    for number in range(3):
        await store.create(f"b/{number}", b"")
    assert wal.stat().st_size <= 1_000_000
