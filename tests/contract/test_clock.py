"""The store has one clock: stamps grow in the order of commits, and `now` is never ahead of what comes later."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from engine.store.base import Store
from tests.contract.backends import Backend


async def test_stamps_never_go_back_whoever_writes(backend: Backend) -> None:
    handles = [backend.store, await backend.another()]
    records = [await handles[number % 2].create(f"a/{number}", b"") for number in range(backend.times(50))]
    assert all(earlier.stored_at <= later.stored_at for earlier, later in pairwise(records))


async def test_stamps_and_now_are_aware_and_in_utc(store: Store) -> None:
    record = await store.create("a", b"")
    assert record.stored_at.tzinfo is UTC
    assert (await store.now()).tzinfo is UTC


async def test_now_is_at_or_after_every_stamp_that_was_answered_before(backend: Backend) -> None:
    other = await backend.another()
    for number in range(backend.times(20)):
        record = await backend.store.create(f"a/{number}", b"")
        assert await other.now() >= record.stored_at
        assert await backend.store.now() >= record.stored_at


async def test_what_becomes_visible_after_now_was_answered_bears_no_earlier_stamp(backend: Backend) -> None:
    """While two others create and delete, ask for the time, then look: what is not seen yet must be stamped later."""
    writers = [backend.store, await backend.another()]
    reader = await backend.another()
    running = True

    async def write(store: Store, name: str) -> None:
        number = 0
        while running:
            number += 1
            await store.create_all([(f"a/{name}/{number:06d}", b""), (f"b/{name}/{number:06d}", b"")])
            await store.delete([f"b/{name}/{number:06d}"])
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(write(store, str(at))) for at, store in enumerate(writers)]
    answers: list[tuple[datetime, set[str]]] = []
    for _ in range(backend.times(60)):
        now = await reader.now()
        answers.append((now, {record.key for record in await reader.list("a/")}))
        await asyncio.sleep(0)
    running = False
    await asyncio.gather(*tasks)

    assert all(earlier <= later for (earlier, _), (later, _) in pairwise(answers))
    records = await reader.list("a/")
    for now, seen in answers:
        assert all(record.stored_at >= now for record in records if record.key not in seen)
    assert any(record.key not in seen for _, seen in answers for record in records), "nothing was created meanwhile"


async def test_a_moment_that_lies_ahead_has_not_passed(store: Store) -> None:
    until = await store.now() + timedelta(hours=1)
    assert await store.now(until) < until


async def test_a_moment_that_lies_behind_has_passed(store: Store) -> None:
    record = await store.create("a", b"")
    assert await store.now(record.stored_at) >= record.stored_at
    assert await store.now(record.stored_at - timedelta(days=1)) >= record.stored_at
