"""Reads find records by key and by prefix, in key order, and see every create that returned before they began."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.errors import BadInput
from engine.store.base import Store
from engine.store.keys import range_end
from tests.contract.backends import Backend

_FRESH = count()


async def fill(store: Store, *keys: str) -> None:
    for key in keys:
        await store.create(key, f"at {key}".encode())


async def keys_of(store: Store, prefix: str, *, after: str | None = None, limit: int | None = None) -> list[str]:
    return [record.key for record in await store.list(prefix, after=after, limit=limit)]


async def test_what_nobody_created_is_absent(store: Store) -> None:
    await fill(store, "waits/1")
    assert await store.get("waits/2") is None
    assert await store.get("waits/") is None
    assert await store.last("claims/") is None
    assert await store.list("claims/") == []


async def test_a_read_of_another_process_sees_a_create_that_returned(backend: Backend) -> None:
    other = await backend.another()
    for number in range(backend.times(50)):
        record = await backend.store.create(f"runs/{number:012d}", b"value")
        assert await other.get(record.key) == record
        assert await other.last("runs/") == record
        assert await other.list("runs/", after=f"runs/{number - 1:012d}") == [record]


async def test_records_come_in_key_order_whatever_order_they_were_created_in(store: Store) -> None:
    await fill(store, "c/000000000010", "c/000000000002", "b", "c/000000000001", "d")
    assert await keys_of(store, "c/") == ["c/000000000001", "c/000000000002", "c/000000000010"]
    assert await keys_of(store, "") == ["b", "c/000000000001", "c/000000000002", "c/000000000010", "d"]


async def test_the_last_record_of_a_prefix_is_the_one_with_the_highest_key(store: Store) -> None:
    await fill(store, "claims/w/k/000000000003", "claims/w/k/000000000012", "claims/w/kk/000000000099", "claims/w/l")
    last = await store.last("claims/w/k/")
    assert last is not None
    assert (last.key, last.value) == ("claims/w/k/000000000012", b"at claims/w/k/000000000012")
    end = await store.last("")
    assert end is not None
    assert end.key == "claims/w/l"


async def test_a_prefix_that_begins_another_is_told_from_it(store: Store) -> None:
    await fill(store, "a/1", "a/1/2", "a/10/1", "a/10/2", "a/2", "a0")
    assert await keys_of(store, "a/1/") == ["a/1/2"]
    assert await keys_of(store, "a/10/") == ["a/10/1", "a/10/2"]
    assert await keys_of(store, "a/1") == ["a/1", "a/1/2", "a/10/1", "a/10/2"]
    assert await keys_of(store, "a/") == ["a/1", "a/1/2", "a/10/1", "a/10/2", "a/2"]
    last = await store.last("a/1/")
    assert last is not None
    assert last.key == "a/1/2"


async def test_a_listing_goes_on_after_a_key_and_stops_at_a_limit(store: Store) -> None:
    await fill(store, "p/1", "p/2", "p/3", "p/4", "q/1")
    assert await keys_of(store, "p/", after="p/2") == ["p/3", "p/4"]
    assert await keys_of(store, "p/", limit=2) == ["p/1", "p/2"]
    assert await keys_of(store, "p/", after="p/1", limit=2) == ["p/2", "p/3"]
    assert await keys_of(store, "p/", limit=0) == []
    assert await keys_of(store, "p/", limit=99) == ["p/1", "p/2", "p/3", "p/4"]


async def test_a_listing_goes_on_after_a_key_that_is_not_there_or_not_under_the_prefix(store: Store) -> None:
    await fill(store, "p/1", "p/3", "q/1")
    assert await keys_of(store, "p/", after="p/2") == ["p/3"]
    assert await keys_of(store, "p/", after="a") == ["p/1", "p/3"]
    assert await keys_of(store, "p/", after="p/") == ["p/1", "p/3"]
    assert await keys_of(store, "p/", after="p/3") == []
    assert await keys_of(store, "p/", after="z") == []


async def test_a_listing_may_be_longer_than_a_page(backend: Backend) -> None:
    store = backend.store
    items = [(f"runs/{number:012d}", b"") for number in range(backend.many)]
    await store.create_all(items)
    everything = await keys_of(store, "runs/")
    assert everything == [key for key, _ in items]
    assert await keys_of(store, "runs/", limit=backend.many - 50) == everything[:-50]
    assert await keys_of(store, "runs/", after=everything[9]) == everything[10:]


async def test_a_negative_limit_is_refused(store: Store) -> None:
    with pytest.raises(BadInput):
        await store.list("p/", limit=-1)


async def test_a_prefix_that_is_not_utf8_is_refused(store: Store) -> None:
    for ask in (store.last("\ud800"), store.list("\ud800"), store.list("a", after="\udfff")):
        with pytest.raises(BadInput):
            await ask


ODD_KEYS = [
    "%", "_", "a%b", "a_b", "aXb", "A", "a", "É", "é", "e\u0301", "'", '"', "\\", "*", ">", ".", " ", "\t", "\n",
    "\x01", "\x7f", "\u07ff", "\u0800", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff", "\U0010ffff/1",
]  # fmt: skip


async def test_odd_keys_are_ordered_by_code_point_and_found_as_they_are(store: Store) -> None:
    await fill(store, *ODD_KEYS)
    assert await keys_of(store, "") == sorted(ODD_KEYS)
    for key in ODD_KEYS:
        record = await store.get(key)
        assert record is not None
        assert record.value == f"at {key}".encode()
        assert await keys_of(store, key) == sorted(other for other in ODD_KEYS if other.startswith(key))
        assert await keys_of(store, "", after=key) == sorted(other for other in ODD_KEYS if other > key)


_TEXT = st.text(st.sampled_from("ab/01_%é\ud7ff\ue000\U0010ffff"), max_size=4)


EXAMPLES = 60


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    keys=st.lists(_TEXT.filter(bool), max_size=12),
    removed=st.sets(st.integers(0, 11)),
    question=st.tuples(_TEXT, st.none() | _TEXT, st.none() | st.integers(0, 5)),
)
async def test_a_store_reads_like_a_sorted_dictionary(
    backend: Backend, keys: list[str], removed: set[int], question: tuple[str, str | None, int | None]
) -> None:
    if next(backend.examples) >= backend.times(EXAMPLES):
        return  # a slow one is asked some of them; WAYSIDE_S3=full asks all
    store = backend.store
    prefix, after, limit = question
    base = f"{next(_FRESH):06d}/"
    expected: dict[str, bytes] = {}
    for at, key in enumerate(keys):
        record = await store.create(base + key, str(at).encode())
        assert record.value == expected.setdefault(base + key, str(at).encode())
    gone = {base + key for at, key in enumerate(keys) if at in removed}
    await store.delete(gone)
    left = sorted(key for key in expected.keys() - gone if key.startswith(base + prefix))
    wanted = [key for key in left if after is None or key > base + after][:limit]

    listed = await store.list(base + prefix, after=None if after is None else base + after, limit=limit)
    assert [(record.key, record.value) for record in listed] == [(key, expected[key]) for key in wanted]
    last = await store.last(base + prefix)
    assert (last.key if last else None) == (left[-1] if left else None)
    for key in expected:
        assert (await store.get(key) is None) == (key in gone)


@given(prefix=_TEXT, key=_TEXT)
def test_the_end_of_a_range_parts_the_keys_with_a_prefix_from_those_above(prefix: str, key: str) -> None:
    end = range_end(prefix)
    assert key.startswith(prefix) == (key >= prefix and (end is None or key < end))
    if end is not None:
        assert (key.encode() < end.encode()) == (key < end)
