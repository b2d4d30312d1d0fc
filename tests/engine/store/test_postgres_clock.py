"""No record comes to light behind an answer of `now`, not with a transaction open, nor a server's clock set back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import asyncpg
import pytest

from engine.store.open import open_store
from engine.store.postgres import PostgresStore
from engine.store.stamps import to_datetime
from tests.support.postgres import database, shared_server

CREATE = "SELECT key, value, stored_at FROM wayside_create($1::text[], $2::bytea[])"


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with database(shared_server()) as url:
        yield url


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    store = open_store(url)
    assert isinstance(store, PostgresStore)
    await store.now()
    yield store
    await store.close()


async def waiting_for_a_lock(connection: asyncpg.Connection) -> None:
    while not await connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
        await asyncio.sleep(0)


async def test_now_waits_for_a_transaction_that_has_its_stamp_and_is_still_open(store: PostgresStore, url: str) -> None:
    slow, watcher = await asyncpg.connect(url), await asyncpg.connect(url)
    transaction = slow.transaction()
    await transaction.start()
    stamp = to_datetime((await slow.fetch(CREATE, ["slow"], [b"value"]))[0][2])
    asked = asyncio.create_task(store.now())
    await waiting_for_a_lock(watcher)
    assert not asked.done()
    assert await store.get("slow") is None
    await transaction.commit()
    assert await asked >= stamp
    slow_record = await store.get("slow")
    assert slow_record is not None
    assert slow_record.stored_at == stamp
    await slow.close()
    await watcher.close()


async def test_who_stores_while_now_waits_is_stamped_at_or_after_its_answer(store: PostgresStore, url: str) -> None:
    slow, watcher = await asyncpg.connect(url), await asyncpg.connect(url)
    transaction = slow.transaction()
    await transaction.start()
    await slow.fetch(CREATE, ["slow"], [b"value"])
    asked = asyncio.create_task(store.now())
    await waiting_for_a_lock(watcher)
    later = asyncio.create_task(store.create("later", b"value"))
    await transaction.rollback()
    answer = await asked
    assert (await later).stored_at >= answer
    assert await store.get("slow") is None
    await slow.close()
    await watcher.close()


async def test_writers_do_not_wait_for_each_other(store: PostgresStore, url: str) -> None:
    slow = await asyncpg.connect(url)
    async with slow.transaction():
        await slow.fetch(CREATE, ["slow"], [b"value"])
        assert (await store.create("quick", b"value")).value == b"value"
    await slow.close()


async def test_a_naive_clock_would_be_ahead_of_what_comes_to_light_later(url: str, store: PostgresStore) -> None:
    """The trap exists: without the lock, the server's clock passes a stamp whose record nobody can see yet."""
    slow, reader = await asyncpg.connect(url), await asyncpg.connect(url)
    transaction = slow.transaction()
    await transaction.start()
    stamp = to_datetime((await slow.fetch(CREATE, ["slow"], [b"value"]))[0][2])
    naive = await reader.fetchval("SELECT clock_timestamp()")
    seen = await store.get("slow")
    await transaction.commit()
    assert seen is None
    assert naive > stamp
    await slow.close()
    await reader.close()


async def test_stamps_stand_still_while_the_servers_clock_is_behind_them(store: PostgresStore, url: str) -> None:
    """As after a failover to a host whose clock is an hour behind."""
    before = await store.create("a", b"")
    ahead_us = 3_600_000_000
    connection = await asyncpg.connect(url)
    high_us = await connection.fetchval("SELECT setval('wayside_clock', last_value + $1) FROM wayside_clock", ahead_us)
    await connection.close()
    record = await store.create("b", b"")
    assert record.stored_at == to_datetime(high_us)
    assert record.stored_at - before.stored_at >= timedelta(hours=1)
    assert await store.now() == record.stored_at
    assert (await store.create("c", b"")).stored_at == record.stored_at


async def test_an_answer_of_now_binds_stamps_that_come_after_the_clock_was_set_back(
    store: PostgresStore, url: str
) -> None:
    answer = await store.now()
    connection = await asyncpg.connect(url)
    kept = to_datetime(await connection.fetchval("SELECT last_value FROM wayside_clock"))
    await connection.close()
    assert kept >= answer


async def test_a_stamp_of_a_transaction_that_was_rolled_back_is_not_taken_back(store: PostgresStore, url: str) -> None:
    connection = await asyncpg.connect(url)
    transaction = connection.transaction()
    await transaction.start()
    stamp = to_datetime((await connection.fetch(CREATE, ["a"], [b""]))[0][2])
    await transaction.rollback()
    kept = to_datetime(await connection.fetchval("SELECT last_value FROM wayside_clock"))
    assert kept == stamp
    await connection.close()


async def test_a_cancelled_tick_leaves_no_lock_behind(store: PostgresStore, url: str) -> None:
    holder, victim = await asyncpg.connect(url), await asyncpg.connect(url)
    await holder.execute("SELECT pg_advisory_lock(375159804674)")
    await victim.execute("SET statement_timeout = '50ms'")
    with pytest.raises(asyncpg.QueryCanceledError):
        await victim.fetch(CREATE, ["a"], [b""])
    await holder.execute("SELECT pg_advisory_unlock(375159804674)")
    assert await victim.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0
    assert (await store.create("a", b"mine")).value == b"mine"
    await holder.close()
    await victim.close()


async def test_a_moment_ahead_is_answered_without_the_server_and_one_that_was_answered_too(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = await store.now()

    async def fail(*_: object, **__: object) -> None:
        raise AssertionError("the server was asked")

    monkeypatch.setattr(store._connections, "run", fail)
    assert await store.now(answer + timedelta(hours=1)) < answer + timedelta(hours=1)
    assert await store.now(answer) == answer
    assert await store.now(answer - timedelta(days=1)) == answer
