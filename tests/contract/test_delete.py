"""Deleted records are gone for everybody; what was not there is no error."""

from __future__ import annotations

import asyncio

from engine.store.base import Store
from tests.contract.backends import Backend


async def test_a_deleted_record_is_gone_for_everybody(backend: Backend) -> None:
    other = await backend.another()
    await backend.store.create_all([("a/1", b""), ("a/2", b""), ("a/3", b"")])
    await backend.store.delete(["a/3", "a/1"])
    assert await other.get("a/1") is None
    last = await other.last("a/")
    assert last is not None
    assert last.key == "a/2"
    assert [record.key for record in await other.list("")] == ["a/2"]


async def test_deleting_what_is_not_there_is_no_error(store: Store) -> None:
    await store.create("a", b"")
    await store.delete(["b", "a", "a", "c"])
    await store.delete(["a"])
    await store.delete([])
    assert await store.list("") == []


async def test_any_iterable_of_keys_is_taken(backend: Backend) -> None:
    store = backend.store
    await store.create_all([(f"a/{number:05d}", b"") for number in range(backend.many)])
    await store.delete(f"a/{number:05d}" for number in range(1, backend.many))
    assert [record.key for record in await store.list("a/")] == ["a/00000"]


async def test_a_deleted_key_may_be_created_again_at_a_later_time(store: Store) -> None:
    first = await store.create("driving/a", b"1")
    await store.delete(["driving/a"])
    second = await store.create("driving/a", b"2")
    assert second.value == b"2"
    assert second.stored_at >= first.stored_at


async def test_deletes_of_many_callers_do_not_disturb_each_other(backend: Backend) -> None:
    handles = [backend.store, await backend.another()]
    await backend.store.create_all([(f"a/{number:03d}", b"") for number in range(100)])
    await asyncio.gather(
        *(handles[number % 2].delete([f"a/{number:03d}", "a/050"]) for number in range(100) if number % 10),
        *(handles[number % 2].create(f"b/{number:03d}", b"") for number in range(50)),
    )
    left = [record.key for record in await backend.store.list("a/")]
    assert left == [f"a/{number:03d}" for number in range(0, 100, 10) if number != 50]
    assert len(await backend.store.list("b/")) == 50
