"""A pass of the sweep finds what is due and lost, does it once, survives damage, and costs what is due."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from engine import names, signals
from engine.errors import StoreUnavailable
from engine.names import Key, PendingAt
from engine.records import Pending, Ready, Sender, encode, raw
from engine.results import EarlySignalHeld, Taken
from engine.store.memory import ManualClock, MemoryStore
from tests.support.bench import Bench, bench, request

TEXT = """
name: door
inputs: { type: object }
jobs:
  - name: main
    steps:
      - name: look
        allowFailure: true
        task: { type: wait_for_signal, key: verdict, acceptEarly: 30, timeout: 60 }
      - name: tell
        dependsOn: [ { step: look, condition: { type: completed } } ]
        task: { type: publish, topic: told, payload: { status: "${{ steps.look.status }}" } }
"""
PLAIN = """
name: plain
inputs: { type: object }
jobs: [ { name: main, steps: [ { name: ask, task: { type: wait_for_signal, timeout: 45 } } ] } ]
"""
KEY = Key("door", "verdict")


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path, TEXT, PLAIN) as made:
        yield made


# -- deadlines -----------------------------------------------------------------------------------------------


async def test_a_wait_times_out_at_its_deadline_and_not_before(one: Bench) -> None:
    run = await one.start("door")
    await one.after(59.999)
    assert await one.status(run) == "suspended"
    await one.after(0.001)
    assert (await one.steps(run))["look"]["error"]["code"] == "wait_timeout"
    assert one.sent.commands == [("told", {"status": "failed"})]


async def test_a_wait_without_a_key_times_out_by_its_registration(one: Bench) -> None:
    run = await one.start("plain")
    await one.after(44.999)
    assert await one.status(run) == "suspended"
    await one.after(0.001)
    assert (await one.steps(run))["ask"]["error"]["code"] == "wait_timeout"


async def test_two_passes_at_once_time_a_wait_out_once(one: Bench) -> None:
    await one.start("door")
    one.advance(60)
    await one.engine.sweep()
    await one.engine.sweep()
    await one.quiet()
    assert [event.result for event in one.heard.named("wait.settled")] == ["timed_out"]
    assert len(one.sent.commands) == 1


async def test_a_pass_tells_the_next_deadline(one: Bench) -> None:
    await one.start("plain")
    await one.start("door")
    swept = await one.engine.sweep()
    opened = one.clock.now()
    assert sorted(swept.deadlines.values()) == [opened + timedelta(seconds=45), opened + timedelta(seconds=60)]


# -- what was lost ---------------------------------------------------------------------------------------------


async def test_a_signal_whose_sender_died_before_continuing_the_run_is_continued(one: Bench) -> None:
    run = await one.start("door")
    await signals.signal_by_key(one.actor(), KEY, request({}), None)  # and nobody goes on with what it owes
    assert await one.status(run) == "suspended"
    await one.sweep()
    assert await one.status(run) == "succeeded"
    await one.sweep()
    assert await one.keys("ready/") == []


async def hold(one: Bench) -> None:
    """Store a signal in slot 0 as its sender would that read no claim (race 1), and died after storing it."""
    value = Pending(
        at=KEY.pending(0, 1),
        nonce="n",
        receipt="r" * 26,
        sender=Sender(kind="device", id="camera"),
        signal_id=None,
        payload=raw(b"{}"),
        limit=30,
    )
    await one.store.create_all([(KEY.early(0, 1), b""), encode(value)])


async def test_a_signal_stored_as_the_wait_opened_is_found_by_its_index(one: Bench) -> None:
    run = await one.start("door")
    one.advance(2)
    await hold(one)
    await one.sweep()
    assert await one.status(run) == "succeeded"
    assert (await one.steps(run))["look"]["outputs"]["receipt"] == "r" * 26
    await one.sweep()
    assert await one.keys("early/") == []


async def test_a_signal_stored_before_a_deadline_wins_over_a_sweep_that_comes_late(one: Bench) -> None:
    run = await one.start("door")
    one.advance(59)
    await hold(one)
    await one.after(600)
    assert (await one.steps(run))["look"]["status"] == "succeeded"


async def test_a_superfluous_ready_record_goes_after_the_grace(one: Bench) -> None:
    await one.store.create(names.ready("x" * 26, "w" * 26, "n"), b"")
    await one.after(299)
    assert len(await one.keys("ready/")) == 1
    await one.after(2)
    assert await one.keys("ready/") == []


async def test_a_ready_record_of_an_event_that_never_came_goes_after_the_grace(one: Bench) -> None:
    run = await one.start("door")
    await one.store.create(*encode(Ready(at=names.ready(run, "-", "n"), nonce="n", event=99)))
    await one.after(200)
    assert len(await one.keys(f"ready/{run}/-/")) == 1
    await one.after(101)
    assert await one.keys(f"ready/{run}/-/") == []


# -- early signals ---------------------------------------------------------------------------------------------


async def test_a_held_signal_expires_once_and_is_cleared_after_the_grace(one: Bench) -> None:
    answer = await one.signal("door", "verdict", {"n": 1}, signal_id="s1")
    assert isinstance(answer, Taken)
    await one.after(30)
    assert one.heard.named("signal.expired") == []
    await one.after(0.000001)
    await one.sweep()
    assert [event.receipt for event in one.heard.named("signal.expired")] == [answer.receipt.id]
    assert await one.keys("early/") == []
    assert await one.keys(KEY.slots) == [KEY.pending(0, 1), KEY.pending(0, 2)]
    again = await one.signal("door", "verdict", {"n": 1}, signal_id="s1")
    assert isinstance(again, Taken)
    assert (again.state, again.duplicate) == ("expired", True)
    await one.after(600)
    assert await one.keys(KEY.slots) == [KEY.pending(0, 2)]
    assert isinstance(await one.signal("door", "verdict", {"n": 2}), Taken)
    assert await one.keys(KEY.slots) == [KEY.pending(0, 2), KEY.pending(0, 3)]


async def test_an_index_of_a_signal_that_is_about_to_be_stored_is_left_alone(one: Bench) -> None:
    at = PendingAt(KEY, 0, 1)
    target = f"door/verdict/{names.number(0)}/{names.number(1)}"
    due = names.due(one.clock.now() + timedelta(seconds=5), "signal", target)
    await one.store.create(at.key.early(0, 1), b"")
    await one.store.create(due, b"")
    await one.after(20)  # its sender is slow, and is between the two creates
    assert await one.keys("due/") == [due]
    assert await one.keys("early/") == [KEY.early(0, 1)]
    await hold(one)
    await one.after(30.1)
    assert [event.receipt for event in one.heard.named("signal.expired")] == ["r" * 26]
    await one.after(600)
    await one.after(600)
    assert await one.keys("due/") + await one.keys("early/") == []


async def test_an_index_whose_signal_never_came_goes_after_the_grace(one: Bench) -> None:
    due = names.due(one.clock.now(), "signal", f"door/verdict/{names.number(0)}/{names.number(1)}")
    await one.store.create_all([(KEY.early(0, 1), b""), (due, b"")])
    await one.after(301)
    assert await one.keys("due/") + await one.keys("early/") == []


async def test_a_held_signal_refuses_a_second_until_it_expires(one: Bench) -> None:
    first = await one.signal("door", "verdict", {})
    assert isinstance(first, Taken)
    second = await one.signal("door", "verdict", {})
    assert isinstance(second, EarlySignalHeld)
    assert second.receipt == first.receipt
    one.advance(30.1)
    third = await one.signal("door", "verdict", {})
    assert isinstance(third, Taken)
    assert third.state == "held"


async def test_a_deadline_that_is_known_is_not_looked_at_again_until_it_passes(one: Bench) -> None:
    assert isinstance(one.store, MemoryStore)
    run = await one.start("door")
    await one.sweep()
    read: list[str] = []

    async def before(operation: str, key: str) -> None:
        read.append(key)

    one.store.before_operation = before
    await one.engine.sweep()
    assert [key for key in read if key.startswith(("waits/", "claims/", "outcomes/"))] == []
    one.store.before_operation = None
    await one.after(60)
    assert (await one.steps(run))["look"]["error"]["code"] == "wait_timeout"


# -- damage ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("due/rubbish", b""),
        ("due/000000000001/deadline", b""),
        ("due/000000000001/signal/one/two", b""),
        ("due/000000000001/removal/" + "q" * 26, b""),
        ("early/rubbish", b""),
        ("early/a/b/c/d", b""),
        ("ready/rubbish", b""),
        ("ready/" + "q" * 26 + "/-/n", b"not a ready record"),
        ("driving/rubbish", b""),
        ("driving/damaged/" + "q" * 26 + "/n", b""),
    ],
)
async def test_a_damaged_record_never_stops_a_pass(one: Bench, key: str, value: bytes) -> None:
    await one.store.create("instances/damaged/000000000001", b"\xff damaged beat")
    await one.store.create("runs/" + "q" * 26 + "/000000000001", b"\xff damaged event")
    await one.store.create(key, value)
    run = await one.start("door")
    one.advance(60)
    await one.sweep()
    assert await one.status(run) == "succeeded"
    assert (await one.steps(run))["look"]["error"]["code"] == "wait_timeout"
    assert await one.store.get("runs/" + "q" * 26 + "/000000000001") is not None


async def test_a_run_with_an_unreadable_outcome_goes_on(one: Bench) -> None:
    run = await one.start("door")
    wait = (await one.steps(run))["look"]["wait"]
    await one.store.create(f"ready/{run}/{wait}/n", b"")
    await one.store.create(f"outcomes/{wait}", b"{broken")
    await one.sweep()
    assert (await one.steps(run))["look"]["error"]["code"] == "wait_unreadable"
    other = await one.start("door")
    assert await one.status(other) == "suspended"


async def test_a_damaged_claim_keeps_its_key_shut_and_stops_nothing_else(one: Bench) -> None:
    await one.store.create(KEY.claim(1), b"{broken")
    run = await one.start("door")
    plain = await one.start("plain")
    await one.after(45)
    assert await one.status(plain) == "failed"
    assert await one.keys(KEY.claims) == [KEY.claim(1)]
    assert await one.status(run) == "running"


async def test_a_store_that_is_away_ends_the_pass_and_the_next_one_does_it_all(tmp_path: Path) -> None:
    clock = ManualClock()
    away = False

    async def before(operation: str, key: str) -> None:
        if away:
            raise StoreUnavailable("away")

    store = MemoryStore(clock, before_operation=before)
    async with bench(tmp_path, TEXT, store=store, clock=clock) as one:
        run = await one.start("door")
        one.advance(60)
        away = True
        with pytest.raises(StoreUnavailable):
            await one.engine.sweep()
        away = False
        await one.sweep()
        assert await one.status(run) == "succeeded"


@pytest.mark.parametrize("at", range(60))
async def test_a_pass_that_dies_anywhere_is_finished_by_the_next(tmp_path: Path, at: int) -> None:
    clock = ManualClock()
    left = -1

    async def before(operation: str, key: str) -> None:
        nonlocal left
        if left == 0:
            left = -1
            raise StoreUnavailable("the process dies here")
        left -= left > 0

    store = MemoryStore(clock, before_operation=before)
    async with bench(tmp_path, TEXT, PLAIN, store=store, clock=clock) as one:
        run, plain = await one.start("door"), await one.start("plain")
        await one.signal("door", "verdict", {})
        held = await one.signal("door", "verdict", {}, signal_id="x")
        assert isinstance(held, Taken)
        one.advance(61)
        left = at
        with contextlib.suppress(StoreUnavailable):
            await one.sweep()
        left = -1
        for _ in range(3):
            await one.sweep()
        assert (await one.status(run), await one.status(plain)) == ("succeeded", "failed")
        assert len(one.sent.commands) == 1
        await one.after(600)
        await one.after(600)
        await one.after(90_000)
        await one.after(0)
        left_over = {key.split("/")[0] for key in await one.keys()}
        assert left_over <= {"runs", "claims", "claimed", "outcomes", "meta", "instances", "pending"}
        assert len(await one.keys("pending/")) == 1


# -- cost --------------------------------------------------------------------------------------------------------


async def test_a_pass_costs_what_is_due_not_what_is_open(tmp_path: Path) -> None:
    far = PLAIN.replace("timeout: 45", "timeout: 86400")
    looked = []
    for open_waits in (10, 100):
        async with bench(tmp_path / str(open_waits), far, TEXT) as one:
            for _ in range(open_waits):
                await one.start("plain")
            operations = 0

            async def before(operation: str, key: str) -> None:
                nonlocal operations
                operations += 1

            assert isinstance(one.store, MemoryStore)
            await one.start("door")
            one.advance(60)
            one.store.before_operation = before
            await one.engine.sweep()
            looked.append(operations)
            one.store.before_operation = None
            await one.quiet()
    assert looked[0] == looked[1]
