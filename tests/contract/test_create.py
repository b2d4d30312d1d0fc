"""Whoever creates a record first decides what it holds, and everybody learns so from what is answered."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from engine.errors import BadInput
from engine.limits import MAX_KEY_BYTES, MAX_RECORD_BYTES
from engine.store.base import Store
from tests.contract.backends import Backend


async def test_a_create_answers_with_what_is_stored(store: Store) -> None:
    before = await store.now()
    record = await store.create("waits/1", b"mine")
    assert (record.key, record.value) == ("waits/1", b"mine")
    assert before <= record.stored_at <= await store.now()
    assert await store.get("waits/1") == record


async def test_a_later_create_changes_nothing_and_answers_with_the_first(store: Store) -> None:
    first = await store.create("waits/1", b"mine")
    assert await store.create("waits/1", b"theirs") == first
    assert await store.get("waits/1") == first


async def test_a_create_whose_answer_was_lost_is_recognised_as_won_when_it_is_retried(backend: Backend) -> None:
    await backend.store.create("waits/1", b"nonce of one writer")  # The answer gets lost.
    await (await backend.another()).create("waits/1", b"nonce of another")
    retried = await backend.store.create("waits/1", b"nonce of one writer")
    assert retried.value == b"nonce of one writer"


async def test_of_twenty_creators_exactly_one_wins_each_record(backend: Backend) -> None:
    handles = [backend.store, await backend.another(), await backend.another(), await backend.another()]
    for number in range(backend.times(25)):
        key = f"outcomes/{number}"
        values = [f"{number} by {creator}".encode() for creator in range(20)]
        records = await asyncio.gather(
            *(handles[creator % 4].create(key, value) for creator, value in enumerate(values))
        )
        assert len(set(records)) == 1
        assert records[0].value in values
        assert {await handle.get(key) for handle in handles} == {records[0]}


async def test_creates_from_many_callers_are_all_stored(backend: Backend) -> None:
    handles = [backend.store, await backend.another()]
    keys = [f"runs/{caller:03d}/{number:012d}" for caller in range(backend.times(50)) for number in range(4)]
    await asyncio.gather(*(handles[at % 2].create(key, key.encode()) for at, key in enumerate(keys)))
    assert [(record.key, record.value) for record in await backend.store.list("runs/")] == [
        (key, key.encode()) for key in keys
    ]


@pytest.mark.parametrize(
    "value",
    [b"", b"\x00", b"\x00\xff\xfe after", bytes(range(256)), "⚙ ütf".encode(), b"v" * MAX_RECORD_BYTES],
    ids=["empty", "nul", "not-utf8", "every-byte", "utf8", "largest"],
)
async def test_a_value_comes_back_byte_for_byte(backend: Backend, value: bytes) -> None:
    assert (await backend.store.create("key", value)).value == value
    stored = await (await backend.another()).get("key")
    assert stored is not None
    assert stored.value == value


async def test_an_empty_value_is_a_record_and_keeps_out_another(store: Store) -> None:
    await store.create("early/1", b"")
    assert (await store.create("early/1", b"something")).value == b""


async def test_a_record_that_is_too_large_is_refused_and_not_stored(store: Store) -> None:
    with pytest.raises(BadInput, match=f"at most {MAX_RECORD_BYTES}"):
        await store.create("key", b"v" * (MAX_RECORD_BYTES + 1))
    assert await store.get("key") is None


@pytest.mark.parametrize(
    "key",
    ["", "a\x00b", "k" * (MAX_KEY_BYTES + 1), "é" * (MAX_KEY_BYTES // 2 + 1), "lone \ud800 surrogate"],
    ids=["empty", "nul", "too-long", "too-long-in-bytes", "surrogate"],
)
async def test_a_key_that_a_store_may_not_hold_is_refused(store: Store, key: str) -> None:
    with pytest.raises(BadInput):
        await store.create(key, b"value")
    with pytest.raises(BadInput):
        await store.create_all([("fine", b"value"), (key, b"value")])
    with pytest.raises(BadInput):
        await store.get(key)
    with pytest.raises(BadInput):
        await store.delete([key])
    assert await store.list("") == []


async def test_the_longest_key_is_taken(store: Store) -> None:
    key = "é" * (MAX_KEY_BYTES // 2)
    await store.create(key, b"value")
    assert await store.get(key) is not None
    assert [record.key for record in await store.list("é" * 100)] == [key]


async def test_several_records_are_created_in_order(store: Store) -> None:
    items = [("due/9", b"1"), ("waits/5", b"2"), ("due/1", b"3")]
    records = await store.create_all(items)
    assert [(record.key, record.value) for record in records] == items
    assert all(earlier.stored_at <= later.stored_at for earlier, later in pairwise(records))
    assert [record.key for record in await store.list("")] == ["due/1", "due/9", "waits/5"]


async def test_several_creates_answer_each_with_what_is_stored(store: Store) -> None:
    theirs = await store.create("b", b"theirs")
    records = await store.create_all([("a", b"mine"), ("b", b"mine"), ("c", b"mine")])
    assert [record.value for record in records] == [b"mine", b"theirs", b"mine"]
    assert records[1] == theirs


async def test_a_key_that_occurs_twice_in_one_list_is_decided_by_the_first(store: Store) -> None:
    records = await store.create_all([("a", b"1"), ("b", b"2"), ("a", b"3"), ("a", b"1")])
    assert [record.value for record in records] == [b"1", b"2", b"1", b"1"]
    assert records[2] == records[0]


async def test_no_records_are_created_from_an_empty_list(store: Store) -> None:
    assert await store.create_all([]) == []
    assert await store.list("") == []


async def test_a_list_longer_than_a_transaction_is_stored_whole(backend: Backend) -> None:
    items = [(f"audit/{number:012d}", str(number).encode()) for number in range(backend.many)]
    records = await backend.store.create_all(items)
    assert [(record.key, record.value) for record in records] == items
    assert await backend.store.list("audit/") == records


async def test_an_index_record_exists_whenever_what_it_points_to_does(backend: Backend) -> None:
    """The first of a list is there for everybody who sees the second, while many lists are being stored."""
    other = await backend.another()
    done = asyncio.Event()

    async def write() -> None:
        for number in range(backend.times(100)):
            await backend.store.create_all([(f"due/{number:03d}", b""), (f"waits/{number:03d}", b"")])
            await asyncio.sleep(0)
        done.set()

    async def watch() -> int:
        looks = 0
        while not done.is_set():
            pointed_to = await other.last("waits/")
            if pointed_to is not None:
                assert await other.get("due/" + pointed_to.key.partition("/")[2]) is not None
                looks += 1
            await asyncio.sleep(0)
        return looks

    looks, _ = await asyncio.gather(watch(), write())
    assert looks > 0
