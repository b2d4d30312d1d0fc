"""`wayside store copy` between real stores finds what differs afterwards, names it, and does not exit 0."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from threading import Thread

import pytest

from engine.store.base import Loadable, Record, Store
from engine.store.open import open_store
from gateway.cli import store as command
from tests.instances.stores import STORES
from tests.support.command import typed

KEY = "runs/b/000000000002"
Plant = Callable[[Store], Awaitable[None]]


async def another_value(store: Store) -> None:
    found = await store.get(KEY)
    assert found is not None
    assert isinstance(store, Loadable)
    await store.delete([KEY])
    await store.load([Record(KEY, b"sometHing", found.stored_at)])
    assert await store.get(KEY) == Record(KEY, b"sometHing", found.stored_at)


async def another_time(store: Store) -> None:
    found = await store.get(KEY)
    assert found is not None
    await store.delete([KEY])
    # Object stores stamp whole seconds.
    while (await store.create(KEY, found.value)).stored_at == found.stored_at:
        await store.delete([KEY])
        await asyncio.sleep(0.1)


async def one_missing(store: Store) -> None:
    await store.delete([KEY])


async def one_too_many(store: Store) -> None:
    await store.create(f"{KEY}/more", b"")


async def one_behind_them_all(store: Store) -> None:
    await store.create("waits/more", b"")


PLANTED: dict[Plant, str] = {
    another_value: f"the record {KEY} has another value in the copy",
    another_time: f"the record {KEY} has another time in the copy",
    one_missing: f"the copy lacks the record {KEY}",
    one_too_many: f"the copy has a record that the other store has not: {KEY}/more",
    one_behind_them_all: "the copy has a record that the other store has not: waits/more",
}


@pytest.fixture
async def source(tmp_path: Path) -> Path:
    file = tmp_path / "from.db"
    store = open_store(str(file))
    for run in "abc":
        await store.create_all([(f"runs/{run}/{number:012d}", b"something") for number in range(1, 4)])
    await store.close()
    return file


@pytest.mark.parametrize("kind", ["postgres", "nats", "s3"])
async def test_what_somebody_changes_in_the_copy_meanwhile_is_found_and_named(
    kind: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with STORES[kind](tmp_path) as url:
        copied = await typed("store", "copy", str(source), url, "--json")
        assert copied.json["records"] == 9
    for plant, words in PLANTED.items():
        async with STORES[kind](tmp_path) as url:
            told: list[int] = []

            def meanwhile(done: int, plant: Plant = plant, url: str = url, told: list[int] = told) -> None:
                """Change the copy when all of it is there and nothing is compared yet, by a connection of one's own."""
                told.append(done)
                _apart(_change(url, plant))

            monkeypatch.setattr(command, "_progress", meanwhile)
            ran = await typed("store", "copy", str(source), url, status=1)
            assert told == [9]
            assert words in ran.err, (plant.__name__, ran.err)
            assert "empty the copy, and copy again" in ran.err
            assert ran.out == ""


async def _change(url: str, plant: Plant) -> None:
    store = open_store(url)
    try:
        await plant(store)
    finally:
        await store.close()


def _apart(doing: Awaitable[None]) -> None:
    """Do something in a loop of its own, and wait for it."""
    failed: list[BaseException] = []

    async def do() -> None:
        try:
            await doing
        except BaseException as error:  # noqa: BLE001  it is raised again by the test
            failed.append(error)

    thread = Thread(target=asyncio.run, args=[do()])
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
