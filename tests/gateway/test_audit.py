"""Proves that audit events are durable when waited for, chained, bounded, and that no payload fits into one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from devices.registry import Revised
from engine.errors import StoreUnavailable
from engine.events import EngineEvent
from engine.records import Stored, Unreadable
from engine.store.base import Record
from engine.store.memory import ManualClock, MemoryStore
from gateway.audit import BATCH, FLOOD_SECONDS, MAX_WAITING, Audit, AuditEvent, Entry, digest, read_event
from tests.support.source import HandSource

WAIT = "w" * 26


@pytest.fixture
def source() -> HandSource:
    return HandSource()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(ManualClock())


@pytest.fixture
def audit(store: MemoryStore, source: HandSource) -> Audit:
    return Audit(store, "one", source)


async def events(store: MemoryStore) -> list[AuditEvent]:
    found = [read_event(record) for record in await store.list("audit/")]
    return [event.value for event in found if isinstance(event, Stored)]


async def test_what_was_noted_is_stored_when_it_is_waited_for(audit: Audit, store: MemoryStore) -> None:
    audit.add(Entry(action="signal.delivered", result="delivered", principal="device:kitchen", bytes=21))
    assert await store.list("audit/") == []
    await audit.written()
    (record,) = await store.list("audit/")
    assert record.key == "audit/20260101/one/000000000001"
    (event,) = await events(store)
    assert (event.action, event.principal, event.bytes, event.count) == ("signal.delivered", "device:kitchen", 21, 1)


async def test_each_event_names_the_one_before_it_and_the_head_names_the_last(audit: Audit, store: MemoryStore) -> None:
    for n in range(3):
        audit.add(Entry(action="run.created", reason=f"n-{n}"))
        await audit.written()
    records = await store.list("audit/")
    chain = [event.prev for event in await events(store)]
    assert chain == ["", digest(records[0].value), digest(records[1].value)]
    assert audit.head == f"3:{digest(records[2].value)}"


async def test_everybody_who_waits_at_once_shares_one_commit(audit: Audit, store: MemoryStore) -> None:
    commits: list[int] = []
    create_all = store.create_all

    async def counted(items: list[tuple[str, bytes]]) -> list[Record]:
        commits.append(len(items))
        await asyncio.sleep(0)
        return await create_all(items)

    store.create_all = counted  # type: ignore[method-assign, assignment]

    async def one(n: int) -> None:
        audit.add(Entry(action="signal.held", reason=f"n-{n}"))
        await audit.written()

    await asyncio.gather(*(one(n) for n in range(100)))
    assert sum(commits) == 100
    assert len(commits) <= 2
    assert BATCH >= 100


async def test_a_write_that_failed_or_was_cut_off_is_made_again_with_the_same_bytes(
    audit: Audit, store: MemoryStore
) -> None:
    failing = True

    async def fail_after_one(operation: str, key: str) -> None:
        if failing and operation == "create" and key.endswith("2"):
            raise StoreUnavailable("away", uncertain=True)

    store.before_operation = fail_after_one
    audit.add(Entry(action="signal.held", reason="first"))
    audit.add(Entry(action="signal.held", reason="second"))
    with pytest.raises(StoreUnavailable):
        await audit.written()
    assert audit.head == ""
    failing = False
    audit.add(Entry(action="signal.held", reason="third"))
    await audit.written()
    found = await events(store)
    assert [event.reason for event in found] == ["first", "second", "third"]
    records = await store.list("audit/")
    assert [event.prev for event in found[1:]] == [digest(record.value) for record in records[:2]]


async def test_a_waiter_that_is_cancelled_loses_nothing(audit: Audit, store: MemoryStore) -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def hold(operation: str, key: str) -> None:
        if operation == "create" and not go_on.is_set():
            reached.set()
            await go_on.wait()

    store.before_operation = hold
    audit.add(Entry(action="signal.held"))
    waiting = asyncio.ensure_future(audit.written())
    await reached.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    go_on.set()
    await audit.written()
    assert len(await events(store)) == 1


async def test_a_flood_of_one_refusal_is_one_event_and_a_count(
    audit: Audit, store: MemoryStore, source: HandSource
) -> None:
    refusal = Entry(action="signal.refused", result="not_found", principal="device:kitchen", workflow="w", key="k")
    assert audit.refuse(refusal)
    for _ in range(99):
        source.advance(0.05)
        assert not audit.refuse(refusal)
    source.advance(FLOOD_SECONDS)
    assert audit.refuse(refusal)
    await audit.close()
    found = await events(store)
    assert [event.count for event in found] == [1, 99, 1]
    assert found[1].seconds == pytest.approx(99 * 0.05 + FLOOD_SECONDS)


async def test_refusals_that_differ_are_told_apart(audit: Audit, store: MemoryStore) -> None:
    for key in ("a", "b"):
        for device in ("device:kitchen", "device:hall"):
            assert audit.refuse(Entry(action="signal.refused", result="not_found", principal=device, key=key))
    await audit.close()
    assert len(await events(store)) == 4


async def test_over_rate_refusals_are_one_flood_whatever_they_were_about(audit: Audit, store: MemoryStore) -> None:
    for n in range(50):
        audit.refuse(Entry(action="signal.refused", result="rate_limited", principal="device:kitchen", key=f"k{n}"))
    await audit.close()
    assert [event.count for event in await events(store)] == [1, 49]


async def test_refused_logins_of_one_address_are_one_flood_whatever_name_they_gave(
    audit: Audit, store: MemoryStore
) -> None:
    for n in range(50):
        audit.refuse(Entry(action="login.refused", principal=f"device:d{n}", address="192.0.2.1", door="mqtt"))
    await audit.close()
    assert [event.count for event in await events(store)] == [1, 49]


async def test_floods_without_end_take_bounded_memory_and_lose_no_count(audit: Audit, store: MemoryStore) -> None:
    for n in range(3000):
        for _ in range(2):
            audit.refuse(Entry(action="signal.refused", principal=f"device:d{n}"))
    await audit.close()
    assert sum(event.count for event in await events(store)) == 6000


async def test_while_the_store_is_away_events_wait_and_those_beyond_the_bound_are_counted(
    audit: Audit, store: MemoryStore
) -> None:
    for _ in range(MAX_WAITING + 7):
        audit.add(Entry(action="run.created"))
    await audit.written()
    audit.add(Entry(action="run.ended"))
    await audit.written()
    found = await events(store)
    assert [event.count for event in found if event.action == "audit.lost"] == [7]
    assert len(found) == MAX_WAITING + 2


async def test_what_the_engine_and_the_registry_tell_is_written_and_single_steps_are_not(
    audit: Audit, store: MemoryStore
) -> None:
    audit.note(EngineEvent(action="wait.opened", workflow="front-door", key="kitchen-verdict", wait=WAIT, step="a[0]"))
    audit.note(EngineEvent(action="step.started", step="identify"))
    audit.revised(Revised(kind="device", name="kitchen", did="grant", by="user:ann", detail="signal:front-door/k"))
    await audit.close()
    opened, granted = await events(store)
    assert (opened.action, opened.workflow, opened.wait, opened.step) == ("wait.opened", "front-door", WAIT, "a[0]")
    assert (granted.action, granted.principal, granted.result) == ("device.grant", "user:ann", "device:kitchen")
    assert granted.reason == "signal:front-door/k"


async def test_those_who_listen_hear_of_each_event_once_it_is_stored(store: MemoryStore, source: HandSource) -> None:
    heard: list[str] = []
    audit = Audit(store, "one", source, heard=lambda record: heard.append(record.key))
    audit.add(Entry(action="run.created"))
    assert heard == []
    await audit.written()
    assert heard == ["audit/20260101/one/000000000001"]


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8) | st.integers(), min_size=1))
def test_no_text_field_takes_a_payload(payload: dict[str, object]) -> None:
    text = json.dumps(payload)
    entry = Entry(
        action=text, result=text, principal=text, workflow=text, key=text, wait=text, run=text, job=text, step=text,
        receipt=text, reason=text, address=text,
    )  # fmt: skip
    for name in entry.__struct_fields__:
        assert getattr(entry, name) in ("", "?", 0, 1, 0.0)


async def test_an_event_that_holds_more_than_its_fields_take_cannot_be_made_or_read(
    audit: Audit, store: MemoryStore
) -> None:
    audit.add(Entry(action="signal.refused", reason="not_found"))
    await audit.written()
    (event,) = await events(store)
    with pytest.raises(ValueError, match="reason"):
        msgspec.structs.replace(event, reason='{"verdict":"known"}')
    (record,) = await store.list("audit/")
    forged = Record(record.key, record.value.replace(b'"not_found"', b'"x y"'), record.stored_at)
    assert isinstance(read_event(forged), Unreadable)


class Gated(MemoryStore):
    """Stores when it is let, or fails when it is told to; counts the commits."""

    def __init__(self) -> None:
        super().__init__(ManualClock())
        self.gate = asyncio.Event()
        self.began = asyncio.Event()
        self.away = False
        self.commits = 0

    async def create_all(self, items: Sequence[tuple[str, bytes]]) -> list[Record]:
        self.began.set()
        await self.gate.wait()
        if self.away:
            raise StoreUnavailable("away")
        self.commits += 1
        return await super().create_all(items)


async def waiting(audit: Audit, store: Gated, count: int) -> list[asyncio.Task[None]]:
    """Have one write and the others wait for it, each behind an event of its own."""

    async def one(n: int) -> None:
        audit.add(Entry(action="run.created", reason=f"n-{n}"))
        await audit.written()

    tasks = [asyncio.create_task(one(n)) for n in range(count)]
    await store.began.wait()
    await asyncio.sleep(0)
    return tasks


async def test_all_who_wait_behind_a_write_share_the_next_one(source: HandSource) -> None:
    store = Gated()
    audit = Audit(store, "one", source)
    tasks = await waiting(audit, store, 50)
    store.gate.set()
    async with asyncio.timeout(5):
        await asyncio.gather(*tasks)
    assert store.commits == 2
    assert [event.reason for event in await events(store)] == [f"n-{n}" for n in range(50)]


async def test_all_who_wait_for_a_write_that_fails_are_told_and_nothing_is_lost(source: HandSource) -> None:
    store = Gated()
    audit = Audit(store, "one", source)
    tasks = await waiting(audit, store, 5)
    store.away = True
    store.gate.set()
    told = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(fault, StoreUnavailable) for fault in told)
    assert len(set(map(id, told))) == 5
    store.away = False
    await audit.written()
    assert [event.reason for event in await events(store)] == [f"n-{n}" for n in range(5)]


async def test_who_stops_waiting_while_it_writes_leaves_the_rest_to_the_next(source: HandSource) -> None:
    store = Gated()
    audit = Audit(store, "one", source)
    tasks = await waiting(audit, store, 3)
    tasks[0].cancel()
    store.gate.set()
    async with asyncio.timeout(5):
        await asyncio.gather(*tasks[1:])
    assert [event.reason for event in await events(store)] == ["n-0", "n-1", "n-2"]
