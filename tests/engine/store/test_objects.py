"""Names sort as keys do, the last of many numbers is found with few lists, and refusals are said clearly."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Awaitable
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.errors import BadInput, StoreDamaged, StoreUnavailable
from engine.store.objects import ObjectStore
from engine.store.objects.listing import Listing
from engine.store.objects.paths import CHECK, CLOCK, HINT, decode, encode, folder
from engine.store.objects.requests import PAGE, Entry, Requests
from engine.store.open import open_store
from tests.support.bench import bench
from tests.support.mosquitto import free_port
from tests.support.objects import bucket, shared_service
from tests.support.proxy import Mode, proxy

_KEYS = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from("/.~ -0!a\x00\x01\x1f\x7f\x80"), min_size=1, max_size=8
)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@given(_KEYS)
@example("/")
@example("//")
@example("a/")
@example("a/../b")
def test_a_key_comes_back_from_its_name_which_a_bucket_can_hold(key: str) -> None:
    name = encode(key)
    assert decode(name) == key
    assert all(segment not in {"", ".", ".."} for segment in name.split("/"))
    assert not any(ord(character) < 0x20 or character == "\x7f" for character in name)


@given(_KEYS, _KEYS)
@example("a/", "a/-")
@example("a//b", "a/.")
@example("a//", "a/0")
@example("a ", "a!")
def test_names_are_in_the_order_of_keys(one: str, other: str) -> None:
    assert (encode(one).encode() < encode(other).encode()) == (one.encode() < other.encode())


@given(_KEYS, _KEYS)
def test_what_has_a_prefix_lies_in_its_folder(prefix: str, rest: str) -> None:
    within = folder(prefix)
    assert within is None or encode(prefix + rest).startswith(within + "/")


def test_the_stores_own_names_are_no_keys() -> None:
    assert [decode(f"{name}/1") for name in (CLOCK, HINT, CHECK)] == [None] * 3


class Shelf:
    """Lists names as a service does, and counts how often it is asked."""

    def __init__(self, names: list[str]) -> None:
        self.names = sorted(names)
        self.asked = 0

    async def page(self, within: str | None, after: str | None) -> list[Entry]:
        self.asked += 1
        names = [name for name in self.names if within is None or name.startswith(within + "/")]
        start = 0 if after is None else bisect_right(names, after)
        return [Entry(name, 0, NOW) for name in names[start : start + PAGE]]


def listing(shelf: Shelf) -> Listing:
    return Listing(cast("Requests", shelf))


def numbered(numbers: range) -> list[str]:
    return [f"p/{number:012d}" for number in numbers]


@pytest.mark.parametrize(
    ("count", "most"), [(0, 1), (1, 1), (999, 1), (1_000, 2), (1_001, 2), (5_000, 5), (33_000, 11), (100_000, 13)]
)
async def test_the_last_of_many_numbers_is_found_with_few_lists(count: int, most: int) -> None:
    shelf = Shelf(["a/1", *numbered(range(1, count + 1)), "q/1"])
    found = await listing(shelf).last("p/")
    assert (found[0] if found else None) == (f"p/{count:012d}" if count else None)
    assert shelf.asked <= most


@given(gaps=st.lists(st.tuples(st.integers(1, 30_000), st.integers(1, 1_500)), min_size=1, max_size=4))
async def test_the_last_number_is_found_whatever_has_been_deleted(gaps: list[tuple[int, int]]) -> None:
    at, names = 0, []
    for gap, count in gaps:
        names += numbered(range(at + gap, at + gap + count))
        at += gap + count
    found = await listing(Shelf(names)).last("p/")
    assert found is not None
    assert found[0] == names[-1]


async def test_a_second_look_is_one_short_list() -> None:
    shelf = Shelf(numbered(range(1, 20_001)))
    looks = listing(shelf)
    await looks.last("p/")
    shelf.asked = 0
    shelf.names += numbered(range(20_001, 20_004))
    found = await looks.last("p/")
    assert found is not None
    assert found[0] == f"p/{20_003:012d}"
    assert shelf.asked == 1


async def test_a_last_number_that_was_deleted_is_not_believed_in() -> None:
    shelf = Shelf(numbered(range(1, 2_001)))
    looks = listing(shelf)
    await looks.last("p/")
    shelf.names = shelf.names[:10]
    found = await looks.last("p/")
    assert found is not None
    assert found[0] == f"p/{10:012d}"
    shelf.names = []
    assert await looks.last("p/") is None


async def test_the_last_of_many_keys_that_are_no_numbers_is_found_page_by_page() -> None:
    names = [f"p/x{number:05d}" for number in range(3_500)]
    found = await listing(Shelf([*names, "p"])).last("p/")
    assert found is not None
    assert found[0] == names[-1]


async def test_an_operation_costs_few_requests(capsys: pytest.CaptureFixture[str]) -> None:
    service = shared_service("s3")
    async with bucket(service) as name:
        store = open_store(service.url(name))
        assert isinstance(store, ObjectStore)
        await store.create("first", b"")
        costs: dict[str, dict[str, int]] = {}

        async def cost(operation: str, *, of: object) -> None:
            before = store.counts.copy()
            await of  # type: ignore[misc]
            costs[operation] = {
                kind: store.counts[kind] - before[kind] for kind in store.counts if store.counts[kind] > before[kind]
            }

        await cost("create, won", of=store.create("a/1", b"mine"))
        await cost("create, lost", of=store.create("a/1", b"another's"))
        await cost("create_all of 3", of=store.create_all([("d/1", b""), ("d/2", b""), ("d/3", b"x")]))
        await cost("get", of=store.get("a/1"))
        await cost("last", of=store.last("a/"))
        await cost("last, nothing there", of=store.last("b/"))
        await cost("list of 3, one with a value", of=store.list("d/"))
        await cost("delete of 3", of=store.delete(["d/1", "d/2", "d/3"]))
        await cost("now, strictly", of=store.now())
        await cost("now, long before a deadline", of=store.now(datetime(2100, 1, 1, tzinfo=UTC)))
        await store.close()
    with capsys.disabled():
        sys.stdout.write("\n" + "".join(f"  S3, {operation}: {requests}\n" for operation, requests in costs.items()))
    assert costs == {
        "create, won": {"PUT": 1, "HEAD": 1},
        "create, lost": {"PUT": 1, "GET": 1},
        "create_all of 3": {"PUT": 3, "HEAD": 3},
        "get": {"GET": 1},
        "last": {"LIST": 1, "GET": 1},
        "last, nothing there": {"LIST": 1},
        "list of 3, one with a value": {"LIST": 1, "GET": 1},
        "delete of 3": {"DELETE": 1},
        "now, strictly": {"PUT": 1, "HEAD": 1},
        "now, long before a deadline": {},
    }


DOOR = """
name: door-{number}
jobs:
  - name: main
    steps:
      - name: verdict
        task: {{ type: wait_for_signal, key: verdict, acceptEarly: 600, timeout: 3000 }}
"""


async def test_a_sweep_and_a_signal_cost_as_many_requests_however_much_is_stored(tmp_path: Path) -> None:
    service = shared_service("gs")
    texts = [DOOR.format(number=number) for number in range(26)]
    async with bucket(service) as name:
        store = open_store(service.url(name))
        assert isinstance(store, ObjectStore)

        async def asked(of: Awaitable[object]) -> Counter[str]:
            before = store.counts.copy()
            await of
            return store.counts - before

        async with bench(tmp_path, *texts, store=store) as one:
            costs = []
            for number in (0, 1, 24):
                for open_wait in range(0 if number < 2 else 2, number):
                    await one.start(f"door-{open_wait}")
                await one.sweep()
                costs.append((await asked(one.sweep()), await asked(one.signal(f"door-{number + 1}", "verdict", {}))))
        await store.close()
    assert costs[1] == costs[2]
    assert sum(costs[2][0].values()) < 20


async def test_a_prefix_keeps_two_stores_in_one_bucket_apart() -> None:
    service = shared_service("gs")
    async with bucket(service) as name:
        one, other = (open_store(service.url(name, prefix=prefix)) for prefix in ("/one", "/two/deep"))
        await one.create("a/1", b"1")
        await other.create("a/2", b"2")
        assert [record.key for record in await one.list("")] == ["a/1"]
        assert [record.key for record in await other.list("a/", after="a/1")] == ["a/2"]
        last = await other.last("a/")
        assert last is not None
        assert last.value == b"2"
        with pytest.raises(BadInput):
            await other.create("k" * 1_020, b"")
        await one.close()
        await other.close()


async def fault_of(url: str) -> StoreUnavailable:
    store = open_store(url)
    try:
        with pytest.raises(StoreUnavailable) as caught:
            await store.create("a", b"payload")
    finally:
        await store.close()
    assert "payload" not in caught.value.message
    return caught.value


@pytest.mark.parametrize("kind", ["s3", "gs"])
async def test_a_bucket_that_does_not_exist_is_said(kind: str) -> None:
    fault = await fault_of(shared_service(kind).url("nothing-here"))
    assert isinstance(fault, StoreDamaged)
    assert "does not exist" in fault.message


@pytest.mark.parametrize("kind", ["s3", "gs"])
async def test_records_of_a_bucket_that_was_removed_are_not_called_absent(kind: str) -> None:
    service = shared_service(kind)
    async with bucket(service) as name:
        store = open_store(service.url(name))
        await store.create("a", b"")
        await store.delete(["a"])
        service.remove(name)
        with pytest.raises(StoreDamaged):
            await store.get("a")
        with pytest.raises(StoreDamaged):
            await store.list("")
        await store.close()


async def test_a_service_that_ignores_the_condition_is_refused() -> None:
    shared_service("gs").make("careless")
    fault = await fault_of(shared_service("gs").url("careless"))
    assert isinstance(fault, StoreDamaged)
    assert "overwrites" in fault.message


@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden"])
async def test_wrong_credentials_are_said_at_once(status: str) -> None:
    service = shared_service("s3")
    async with bucket(service) as name, proxy(service.port) as between:
        between.set(Mode.ANSWER, f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        fault = await fault_of(service.url(name, port=between.port))
    assert "refuses us" in fault.message
    assert between.canned_answers == 1


async def test_a_service_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.store.objects.requests.STORE_TIMEOUT_SECONDS", 0.5)
    fault = await fault_of(f"gs://records?endpoint=http://127.0.0.1:{free_port()}")
    assert "does not answer" in fault.message


@pytest.mark.parametrize(
    "url",
    [
        "s3:", "s3://", "gs://UPPER", "s3://key:secret@bucket", "s3://bucket?secret=1", "s3://bucket#x",
        "s3://bucket/a%20b", "s3://bucket?endpoint=ftp://x",
    ],
)  # fmt: skip
def test_a_url_that_names_no_bucket_is_refused(url: str) -> None:
    with pytest.raises(BadInput) as caught:
        open_store(url)
    assert "key:secret" not in caught.value.message + caught.value.hint


def test_a_missing_driver_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("obstore", "engine.store.objects"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(BadInput) as caught:
        open_store("s3://records")
    assert "wayside[objects]" in caught.value.hint
