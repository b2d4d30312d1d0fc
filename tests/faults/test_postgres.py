"""PostgreSQL away, hanging, full, losing answers: what a store says of it, and it goes on.

Stopped and killed under signals: `test_away`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from time import monotonic

import asyncpg
import pytest

from engine.errors import StoreUnavailable
from engine.store.open import open_store
from engine.store.postgres import PostgresStore
from tests.support.postgres import Server, administer, database, server, shared_server
from tests.support.proxy import Mode, Proxy, proxy


@pytest.fixture
def own_server() -> Iterator[Server]:
    with server() as own:
        yield own


@pytest.fixture
async def proxied() -> AsyncIterator[tuple[Proxy, str]]:
    async with database(shared_server()) as url, proxy(shared_server().port) as between:
        yield between, url.replace(f":{shared_server().port}/", f":{between.port}/")


@pytest.fixture
async def store(proxied: tuple[Proxy, str]) -> AsyncIterator[PostgresStore]:
    store = open_store(proxied[1])
    assert isinstance(store, PostgresStore)
    await store.create("first", b"")
    yield store
    proxied[0].set(Mode.PASS)
    await store.close()


async def test_a_server_that_stays_away_is_said_to_be_and_comes_back_by_itself(
    own_server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_store(own_server.url())
    await store.create("before", b"1")
    own_server.stop()
    began = monotonic()
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        await store.create("meanwhile", b"2")
    first = monotonic() - began
    began = monotonic()
    for _ in range(20):
        with pytest.raises(StoreUnavailable):
            await store.get("before")
    later = (monotonic() - began) / 20
    own_server.start()
    record = None
    while record is None:
        with suppress(StoreUnavailable):
            record = await store.get("before")
        await asyncio.sleep(0.05)
    assert (await store.create("after", b"3")).value == b"3"
    await store.close()
    with capsys.disabled():
        print(f"\n  PostgreSQL away: the first fault after {first:.1f} s, the others after {later * 1e3:.0f} ms each")
    assert first < 10
    assert later < 2


async def test_a_create_whose_answer_is_lost_is_done_again_and_recognised(
    store: PostgresStore, proxied: tuple[Proxy, str], capsys: pytest.CaptureFixture[str]
) -> None:
    between, _ = proxied
    won = 0
    for number in range(10):
        before = between.lost_answers
        between.set(Mode.LOSE_ANSWERS)
        creating = asyncio.create_task(store.create(f"a/{number}", b"nonce"))
        while between.lost_answers == before:
            await asyncio.sleep(0)
        between.set(Mode.PASS)
        won += (await creating).value == b"nonce"
        assert len(await store.list(f"a/{number}")) == 1
    with capsys.disabled():
        print(f"\n  PostgreSQL, answers lost: {between.lost_answers}, creates recognised as won: {won} of 10")
    assert won == 10


async def test_a_server_that_hangs_leaves_a_create_uncertain_and_reading_back_settles_it(
    store: PostgresStore, proxied: tuple[Proxy, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.store.batching.STORE_TIMEOUT_SECONDS", 0.5)
    between, _ = proxied
    between.set(Mode.HANG)
    with pytest.raises(StoreUnavailable) as caught:
        await store.create("a", b"mine")
    assert caught.value.uncertain
    monkeypatch.undo()
    between.set(Mode.PASS)
    stored = await store.create("a", b"another's")
    assert stored.value in {b"mine", b"another's"}
    assert await store.get("a") == stored


async def test_a_statement_that_takes_too_long_is_certainly_not_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("engine.store.postgres.connections.POSTGRES_STATEMENT_SECONDS", 0.3)
    async with database(shared_server()) as url:
        store = open_store(url)
        await store.create("a", b"")
        holder = await asyncpg.connect(url)
        async with holder.transaction():
            await holder.execute("LOCK TABLE wayside_records")
            with pytest.raises(StoreUnavailable, match="took too long") as caught:
                await store.create("b", b"")
            assert not caught.value.uncertain
            with pytest.raises(StoreUnavailable, match="took too long"):
                await store.get("a")
        assert await store.get("b") is None
        await store.close()
        await holder.close()


async def test_a_full_disk_is_said_and_the_store_goes_on_when_there_is_room() -> None:
    """The server reports it over the wire; here a trigger does so in the disk's stead."""
    async with database(shared_server()) as url:
        store = open_store(url)
        await store.create("a", b"")
        name = url.rpartition("/")[2]
        await administer(
            shared_server(),
            """CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN RAISE 'could not extend file' USING ERRCODE = 'disk_full'; END $$""",
            "CREATE TRIGGER full_disk BEFORE INSERT ON wayside_records EXECUTE FUNCTION full_disk()",
            database=name,
        )
        with pytest.raises(StoreUnavailable, match="no room is left") as caught:
            await store.create("b", b"")
        assert not caught.value.uncertain
        assert await store.get("a") is not None
        await administer(shared_server(), "DROP TRIGGER full_disk ON wayside_records", database=name)
        assert (await store.create("b", b"mine")).value == b"mine"
        await store.close()


async def test_a_server_that_became_a_standby_is_left_alone(own_server: Server) -> None:
    store = open_store(own_server.url())
    await store.create("a", b"")
    await administer(own_server, "ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
    connection = await asyncpg.connect(own_server.url())
    while await connection.fetchval("SHOW default_transaction_read_only") != "on":
        await asyncio.sleep(0.01)
    await connection.close()
    with pytest.raises(StoreUnavailable, match="standby"):
        await store.create("b", b"")
    await store.close()


async def test_hints_come_again_after_their_connection_was_lost(
    store: PostgresStore, proxied: tuple[Proxy, str]
) -> None:
    between, url = proxied
    other = open_store(url)
    await store.changed()
    await other.create("a", b"")
    await store.changed()
    between.cut()
    async with asyncio.timeout(20):
        await store.changed()
        await other.create("b", b"")
        await store.changed()
    await other.close()


async def test_polling_finds_what_no_hint_told_of(store: PostgresStore, proxied: tuple[Proxy, str]) -> None:
    other = await asyncpg.connect(proxied[1])
    await other.fetch("SELECT * FROM wayside_create($1::text[], $2::bytea[])", ["theirs"], [b"value"])
    record = await store.get("theirs")
    assert record is not None
    assert record.value == b"value"
    await other.close()
