"""Tables are made once by numbered files, an older build refuses newer ones, and what is wrong is said clearly."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from engine.errors import BadInput, FormatTooNew, StoreDamaged, StoreUnavailable
from engine.store import open as opening
from engine.store.open import open_store
from engine.store.postgres import schema
from tests.support.mosquitto import free_port
from tests.support.postgres import Server, administer, database, server, shared_server


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with database(shared_server()) as url:
        yield url


def name_of(url: str) -> str:
    return url.rpartition("/")[2]


async def fault_of(url: str) -> StoreUnavailable:
    store = open_store(url)
    try:
        with pytest.raises(StoreUnavailable) as caught:
            await store.get("a")
    finally:
        await store.close()
    assert "secret" not in caught.value.message + caught.value.hint
    assert not caught.value.uncertain
    return caught.value


async def test_twenty_instances_that_start_at_once_make_the_tables_once(url: str) -> None:
    stores = [open_store(url) for _ in range(20)]
    await asyncio.gather(*(store.create(f"a/{at}", b"") for at, store in enumerate(stores)))
    assert len(await stores[0].list("a/")) == 20
    for store in stores:
        await store.close()
    connection = await asyncpg.connect(url)
    versions = await connection.fetch("SELECT version FROM wayside_schema ORDER BY version")
    assert [row[0] for row in versions] == sorted(schema.migrations())
    await connection.close()


async def test_a_newer_schema_is_refused(url: str) -> None:
    store = open_store(url)
    await store.create("a", b"")
    await store.close()
    newer = max(schema.migrations()) + 1
    await administer(shared_server(), f"INSERT INTO wayside_schema (version) VALUES ({newer})", database=name_of(url))
    store = open_store(url)
    with pytest.raises(FormatTooNew, match=f"schema {newer}"):
        await store.get("a")
    await store.close()


async def test_a_later_migration_is_applied_over_the_records_of_an_earlier_one(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(url)
    record = await store.create("a", b"value")
    await store.close()
    files = schema.migrations()
    later = {**files, len(files) + 1: "ALTER TABLE wayside_records ADD COLUMN note text"}
    monkeypatch.setattr(schema, "migrations", lambda: later)
    store = open_store(url)
    assert await store.get("a") == record
    await store.close()
    monkeypatch.undo()
    store = open_store(url)
    with pytest.raises(FormatTooNew):
        await store.get("a")
    await store.close()


async def test_a_migration_that_fails_leaves_nothing_behind(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files = schema.migrations()
    monkeypatch.setattr(schema, "migrations", lambda: {**files, len(files) + 1: "SELECT 1/0"})
    await fault_of(url)
    monkeypatch.undo()
    store = open_store(url)
    await store.create("a", b"")
    await store.close()


async def test_a_wrong_password_is_said_and_not_tried_again(url: str) -> None:
    fault = await fault_of(shared_server().url(name_of(url), password="wrong-secret"))
    assert "refuses the user wayside" in fault.message


async def test_a_database_that_does_not_exist_is_said() -> None:
    fault = await fault_of(shared_server().url("nothing_here"))
    assert "the database nothing_here on 127.0.0.1" in fault.message
    assert "createdb" in fault.hint


async def test_a_user_who_may_make_no_tables_is_told(url: str) -> None:
    role = f"guest_{name_of(url)}"
    await administer(shared_server(), f"CREATE ROLE {role} LOGIN PASSWORD 'secret'")
    try:
        fault = await fault_of(shared_server().url(name_of(url), user=role))
    finally:
        await administer(shared_server(), f"DROP ROLE {role}")
    assert "may not do" in fault.message
    assert "GRANT" in fault.hint


async def test_a_user_who_may_not_write_is_told(url: str) -> None:
    store = open_store(url)
    await store.create("a", b"")
    await store.close()
    role = f"reader_{name_of(url)}"
    await administer(
        shared_server(), f"CREATE ROLE {role} LOGIN PASSWORD 'secret'",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}", database=name_of(url),
    )  # fmt: skip
    store = open_store(shared_server().url(name_of(url), user=role))
    try:
        assert await store.get("a") is not None
        with pytest.raises(StoreUnavailable, match="may not do"):
            await store.create("b", b"")
    finally:
        await store.close()
        await administer(shared_server(), f"DROP OWNED BY {role}", f"DROP ROLE {role}", database=name_of(url))


async def test_a_database_in_another_encoding_is_refused() -> None:
    name = "latin"
    await administer(
        shared_server(), f"CREATE DATABASE {name} ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
    )
    try:
        fault = await fault_of(shared_server().url(name))
    finally:
        await administer(shared_server(), f"DROP DATABASE {name}")
    assert isinstance(fault, StoreDamaged)
    assert "UTF8" in fault.message


async def test_tables_that_were_taken_away_are_said_to_be_missing(url: str) -> None:
    store = open_store(url)
    await store.create("a", b"")
    await administer(shared_server(), "DROP TABLE wayside_records", database=name_of(url))
    with pytest.raises(StoreDamaged, match="are not Wayside's"):
        await store.get("a")
    await store.close()


async def test_a_server_that_is_not_there_is_said_within_the_time_a_store_may_take() -> None:
    fault = await fault_of(f"postgresql://wayside:secret@127.0.0.1:{free_port()}/records")
    assert "cannot be reached" in fault.message


@pytest.fixture
def small_server() -> Iterator[Server]:
    with server("fsync=off", "max_connections=4", "superuser_reserved_connections=1", "autovacuum=off") as small:
        yield small


async def test_too_many_connections_are_said(small_server: Server) -> None:
    await administer(small_server, "CREATE ROLE guest LOGIN PASSWORD 'secret'")
    held = [await asyncpg.connect(small_server.url(user="guest")) for _ in range(3)]
    fault = await fault_of(small_server.url(user="guest"))
    assert "no more connections" in fault.message
    for connection in held:
        await connection.close()


async def test_a_missing_driver_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("asyncpg", "engine.store.postgres"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(BadInput) as caught:
        opening.open_store("postgresql://wayside:secret@127.0.0.1/records")
    assert "wayside[postgres]" in caught.value.hint
    assert "secret" not in caught.value.message


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:", "postgresql://host", "postgres://host/", "postgresql://u:secret@host/db?pool=1",
        "postgresql://u:secret@host/db?pool=many", "postgresql://u:secret@host/db#x",
        "postgresql://u:secret@[host/db",
    ],
)  # fmt: skip
def test_a_url_that_names_no_database_is_refused_without_being_quoted(url: str) -> None:
    with pytest.raises(BadInput) as caught:
        open_store(url)
    assert "secret" not in caught.value.message + caught.value.hint
