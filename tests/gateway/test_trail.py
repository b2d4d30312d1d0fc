"""Proves that the audit log is read in the order of time over all instances, page by page, live, and by filters."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from engine.errors import BadInput
from engine.store.memory import ManualClock, MemoryStore
from gateway import trail
from gateway.audit import Audit, Entry
from gateway.retention import Retention
from gateway.trail import Filter, Page
from tests.support.source import HandSource

RECEIPT = "r" * 26


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime(2026, 1, 1, 23, 0, tzinfo=UTC))


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock)


@pytest.fixture
def one(store: MemoryStore) -> Audit:
    return Audit(store, "one", HandSource(label="one"))


@pytest.fixture
def two(store: MemoryStore) -> Audit:
    return Audit(store, "two", HandSource(label="two"))


async def write(audit: Audit, reason: str, **fields: str) -> None:
    audit.add(Entry(action=fields.pop("action", "signal.held"), reason=reason, **fields))  # type: ignore[arg-type]
    await audit.written()


def reasons(page: Page) -> list[str]:
    return [entry.event.reason if entry.event is not None else "unreadable" for entry in page.entries]


async def test_two_instances_events_come_in_the_order_of_their_times(
    store: MemoryStore, clock: ManualClock, one: Audit, two: Audit
) -> None:
    for n in range(12):
        await write((one, two)[n % 3 == 0], f"n-{n}")
        clock.advance(600)  # over midnight
    page = await trail.read(store, Filter())
    assert reasons(page) == [f"n-{n}" for n in range(12)]
    assert not page.more


@pytest.mark.parametrize("limit", [1, 2, 5, 100])
async def test_pages_lose_nothing_and_repeat_nothing(
    store: MemoryStore, clock: ManualClock, one: Audit, two: Audit, limit: int
) -> None:
    for n in range(20):
        await write((one, two)[n % 3 == 0], f"n-{n}")
        clock.advance(300)
    found: list[str] = []
    page = await trail.read(store, Filter(), limit=limit)
    while page.entries:
        found += reasons(page)
        page = await trail.read(store, Filter(), cursor=page.cursor, limit=limit)
    assert found == [f"n-{n}" for n in range(20)]


async def test_a_follower_hears_of_a_late_event_with_an_early_time_and_of_a_new_day(
    store: MemoryStore, clock: ManualClock, one: Audit, two: Audit
) -> None:
    await write(one, "first")
    pages = trail.follow(store, Filter(), every_seconds=0)

    async def next_of(source: AsyncIterator[Page]) -> list[str]:
        return reasons(await anext(source))

    assert await next_of(pages) == ["first"]
    assert await next_of(pages) == []
    await write(two, "of-another-instance")
    assert await next_of(pages) == ["of-another-instance"]
    clock.advance(7200)
    await write(one, "tomorrow")
    await write(two, "too")
    assert await next_of(pages) == ["tomorrow", "too"]


async def test_the_end_is_where_following_starts(store: MemoryStore, one: Audit) -> None:
    await write(one, "old")
    cursor = await trail.end(store)
    assert reasons(await trail.read(store, Filter(), cursor=cursor)) == []
    await write(one, "new")
    assert reasons(await trail.read(store, Filter(), cursor=cursor)) == ["new"]


@pytest.mark.parametrize("after", range(0, 24, 5))
async def test_since_is_exact_and_finds_its_place_without_reading_all(
    store: MemoryStore, clock: ManualClock, one: Audit, two: Audit, after: int
) -> None:
    start = clock.now()
    for n in range(24):
        await write((one, two)[n % 5 == 0], f"n-{n}")
        clock.advance(600)
    page = await trail.read(store, Filter(since=start + timedelta(seconds=600 * after)))
    assert reasons(page) == [f"n-{n}" for n in range(after, 24)]


async def test_a_recent_hour_of_a_long_day_takes_few_reads(store: MemoryStore, clock: ManualClock, one: Audit) -> None:
    for n in range(3000):
        one.add(Entry(action="signal.held", reason=f"n-{n}"))
    await one.written()
    clock.advance(60)
    await write(one, "recent")
    reads = 0

    async def count(operation: str, key: str) -> None:
        nonlocal reads
        reads += 1

    store.before_operation = count
    page = await trail.read(store, Filter(since=clock.now() - timedelta(seconds=1)))
    assert reasons(page) == ["recent"]
    assert reads < 30


async def test_filters_find_what_they_name(store: MemoryStore, one: Audit) -> None:
    await write(one, "a", principal="device:kitchen", workflow="front-door", key="kitchen-verdict", receipt=RECEIPT)
    await write(one, "b", principal="device:hall", workflow="front-door", key="hall-verdict", result="held")
    await write(one, "c", principal="user:ann", action="device.grant", result="device:kitchen")
    await write(one, "d", action="run.ended", run="u" * 26, wait="w" * 26, result="succeeded")

    async def found(**wanted: str) -> list[str]:
        return reasons(await trail.read(store, Filter(**wanted)))  # type: ignore[arg-type]

    assert await found(device="kitchen") == ["a", "c"]
    assert await found(user="ann") == ["c"]
    assert await found(workflow="front-door") == ["a", "b"]
    assert await found(workflow="front-door", key="hall-verdict") == ["b"]
    assert await found(receipt=RECEIPT) == ["a"]
    assert await found(run="u" * 26) == ["d"]
    assert await found(wait="w" * 26) == ["d"]
    assert await found(action="signal") == ["a", "b"]
    assert await found(action="run.ended") == ["d"]
    assert await found(action="sig") == []
    assert await found(result="held") == ["b"]


async def test_a_view_has_the_time_and_says_nothing_that_is_empty(store: MemoryStore, one: Audit) -> None:
    await write(one, "no_grant", action="signal.refused", result="not_found", principal="device:kitchen")
    (view,) = (await trail.read(store, Filter())).events
    assert view == {
        "time": "2026-01-01T23:00:00.000Z",
        "instance": "one",
        "seq": 1,
        "action": "signal.refused",
        "result": "not_found",
        "principal": "device:kitchen",
        "reason": "no_grant",
    }


async def test_an_event_that_cannot_be_read_is_shown_and_hides_no_other(store: MemoryStore, one: Audit) -> None:
    await write(one, "a")
    await store.create("audit/20260101/one/000000000002", b"{}")
    await store.create("audit/20260101/two/000000000001", b"rubbish")
    page = await trail.read(store, Filter(device="kitchen"))
    assert [view["action"] for view in page.events] == ["audit.unreadable"] * 2
    assert reasons(await trail.read(store, Filter())) == ["a", "unreadable", "unreadable"]


async def test_retention_deletes_whole_days_and_no_others(
    store: MemoryStore, clock: ManualClock, one: Audit, two: Audit
) -> None:
    for day in range(5):
        await write(one, f"one-{day}")
        await write(two, f"two-{day}")
        clock.advance(86_400)
    assert await Retention(store, one, days=2).retain() == 6
    left = [said for said in reasons(await trail.read(store, Filter())) if said[:3] in {"one", "two"}]
    assert left == ["one-3", "two-3", "one-4", "two-4"]


@pytest.mark.parametrize("text", ["x", "[1]", '{"a/b":{}}', '{"20260101":{"a/b":1}}', '{"20260101":{"one":-1}}'])
async def test_a_broken_cursor_is_refused_with_what_to_do(store: MemoryStore, text: str) -> None:
    with pytest.raises(BadInput) as refused:
        await trail.read(store, Filter(), cursor=base64.urlsafe_b64encode(text.encode()).decode())
    assert refused.value.hint


async def test_what_is_no_base64_is_no_cursor(store: MemoryStore) -> None:
    with pytest.raises(BadInput):
        await trail.read(store, Filter(), cursor="é")
