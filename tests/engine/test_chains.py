"""An identified signal is applied at most once, whatever is repeated, and a final answer does not change."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from engine import names, signals
from engine.clock import derived_id
from engine.errors import StoreUnavailable
from engine.names import Key
from engine.records import Attempt, encode
from engine.results import NoOpenWait, SignalIdReused, Taken
from engine.store.memory import ManualClock, MemoryStore
from tests.support.bench import Bench, bench, payload, request
from tests.support.stepping import Steps, every_order

TEXT = """
name: door
inputs: { type: object }
jobs:
  - name: main
    steps:
      - name: look
        allowFailure: true
        task: { type: wait_for_signal, key: verdict, acceptEarly: 30, timeout: 60 }
"""
ON_TIME = TEXT.replace("name: door", "name: on-time").replace("acceptEarly: 30, ", "")
KEY = Key("door", "verdict")
CHAIN = names.chain("device", "camera", "door/verdict", "s1")


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path, TEXT, ON_TIME) as made:
        yield made


async def send(one: Bench, value: object = None, *, name: str = "door", signal_id: str = "s1", **more: Any) -> Any:
    return await one.signal(name, "verdict", value or {"n": 1}, signal_id=signal_id, **more)


async def taken_by(one: Bench, receipt: str) -> list[str]:
    """Name the waits whose outcome carries a receipt."""
    return [record.key for record in await one.store.list("outcomes/") if receipt.encode() in record.value]


async def test_the_repeat_of_a_delivered_signal_is_not_held_for_the_next_run(one: Bench) -> None:
    await one.start("door")
    first = await send(one)
    for _ in range(3):
        again = await send(one)
        assert (again.state, again.duplicate, again.receipt) == ("delivered", True, first.receipt)
    following = await one.start("door")
    assert await one.status(following) == "suspended"
    assert await taken_by(one, first.receipt.id) == [f"outcomes/{first.where.wait}"]


async def test_the_repeat_of_a_held_signal_is_held_with_the_same_receipt_until_the_same_time(one: Bench) -> None:
    first = await send(one)
    one.advance(10)
    again = await send(one)
    assert (again.state, again.duplicate, again.receipt, again.held_until) == (
        "held",
        True,
        first.receipt,
        first.held_until,
    )
    assert await one.keys(KEY.slots) == [KEY.pending(0, 1)]
    run = await one.start("door")
    delivered = await send(one)
    assert (delivered.state, delivered.duplicate) == ("delivered", True)
    assert (await one.steps(run))["look"]["outputs"]["receipt"] == first.receipt.id


async def test_an_unidentified_signal_that_is_sent_again_is_another_signal(one: Bench) -> None:
    await one.start("door")
    first = await one.signal("door", "verdict", {})
    second = await one.signal("door", "verdict", {})
    assert isinstance(first, Taken)
    assert isinstance(second, Taken)
    assert (first.state, second.state) == ("delivered", "held")
    assert first.receipt.id != second.receipt.id


async def test_another_payload_under_a_used_id_is_refused(one: Bench) -> None:
    await send(one, {"a": 1, "b": 2})
    assert await send(one, {"a": 1, "b": 3}) == SignalIdReused()
    again = await send(one, {"b": 2, "a": 1})  # the same object, written otherwise
    assert again.duplicate


async def test_an_id_is_one_senders_for_one_key(one: Bench) -> None:
    mine = await send(one, device="camera")
    await one.start("door")
    theirs = await send(one, device="porch")
    assert mine.receipt.id != theirs.receipt.id
    assert not theirs.duplicate


async def test_a_refused_signal_may_be_sent_again_under_its_id_and_be_taken_then(one: Bench) -> None:
    assert await send(one, name="on-time") == NoOpenWait(None)
    run = await one.start("on-time")
    answer = await send(one, name="on-time")
    assert (answer.state, answer.duplicate) == ("delivered", False)
    assert await one.status(run) == "succeeded"


async def test_the_repeat_of_a_signal_that_expired_says_so_for_good(one: Bench) -> None:
    first = await send(one)
    one.advance(31)  # nobody has swept yet
    again = await send(one)
    assert (again.state, again.duplicate, again.receipt) == ("expired", True, first.receipt)
    run = await one.start("door")
    assert await one.status(run) == "suspended"
    late = await send(one)
    assert (late.state, late.duplicate) == ("expired", True)
    assert await one.status(run) == "suspended"


async def test_a_signal_too_old_for_the_wait_that_opened_is_expired(one: Bench) -> None:
    await send(one)
    one.advance(31)
    await one.start("door")
    again = await send(one)
    assert (again.state, again.duplicate) == ("expired", True)


async def test_a_signal_whose_wait_was_settled_by_another_is_tried_again(one: Bench) -> None:
    """Its first attempt was fixed, and its sender died; another signal was faster; the repeat goes to the next wait."""
    run = await one.start("door")
    wait = (await one.steps(run))["look"]["wait"]
    await fix(one, names.outcome(wait), wait=wait)
    other = await one.signal("door", "verdict", {"n": 2})
    assert isinstance(other, Taken)
    following = await one.start("door")
    answer = await send(one)
    assert (answer.state, answer.duplicate, answer.where.run) == ("delivered", False, following)
    assert len(await one.keys(CHAIN)) == 2


async def fix(one: Bench, makes: str, *, wait: str | None = None) -> None:
    """Fix attempt 1 as a sender does that dies next."""
    sent = request({"n": 1}, signal_id="s1")
    receipt = chain_receipt()
    value = Attempt(
        at=names.attempt(CHAIN, 1),
        nonce="died",
        makes=makes,
        wait=wait,
        workflow="door",
        key="verdict",
        receipt=receipt,
        digest=sent.payload.digest,
        limit=None if wait else 30,
    )
    await one.store.create(*encode(value))


def chain_receipt() -> str:
    return derived_id("receipt", "device", "camera", "door/verdict", "s1")


async def test_an_attempt_whose_sender_died_is_completed_by_the_repeat(one: Bench) -> None:
    run = await one.start("door")
    wait = (await one.steps(run))["look"]["wait"]
    await fix(one, names.outcome(wait), wait=wait)
    answer = await send(one)
    assert (answer.state, answer.duplicate) == ("delivered", True)
    assert await one.status(run) == "succeeded"


async def test_a_held_attempt_whose_sender_died_is_completed_by_the_repeat(one: Bench) -> None:
    await fix(one, KEY.pending(0, 1))
    answer = await send(one)
    assert (answer.state, answer.duplicate) == ("held", True)
    assert await one.keys("early/") == [KEY.early(0, 1)]
    run = await one.start("door")
    assert await one.status(run) == "succeeded"


async def test_an_attempt_that_can_no_longer_take_effect_is_made_void_and_another_tried(one: Bench) -> None:
    await fix(one, KEY.pending(0, 1))
    run = await one.start("door")  # slot 0 is behind now
    answer = await send(one)
    assert (answer.state, answer.where.run) == ("delivered", run)
    record = await one.store.get(KEY.pending(0, 1))
    assert record is not None
    assert b'"type":"void"' in record.value  # so that a slow first sender cannot create it later


async def test_an_attempt_for_a_wait_that_is_gone_is_made_void(one: Bench) -> None:
    await fix(one, names.outcome("g" * 26), wait="g" * 26)
    run = await one.start("door")
    answer = await send(one)
    assert answer.state == "delivered"
    record = await one.store.get(names.outcome("g" * 26))
    assert record is not None
    assert b'"why":"void"' in record.value
    await one.engine.delete(run, by="test")
    for _ in range(3):
        await one.after(100_000)
    assert await one.store.get(names.outcome("g" * 26)) is None  # swept with the chain that caused it


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("at", range(22))
async def test_a_sender_that_dies_anywhere_and_repeats_is_applied_once(tmp_path: Path, at: int, early: bool) -> None:
    clock = ManualClock()
    left = -1

    async def before(operation: str, key: str) -> None:
        nonlocal left
        if left == 0:
            left = -1
            raise StoreUnavailable("the process dies here")
        left -= left > 0

    store = MemoryStore(clock, before_operation=before)
    async with bench(tmp_path, TEXT, store=store, clock=clock) as one:
        if not early:
            await one.start("door")
        left = at
        with contextlib.suppress(StoreUnavailable):
            await one.engine.signal_key("door", "verdict", request({"n": 1}, signal_id="s1"))
        await one.quiet()
        left = -1
        answer = await send(one)
        assert isinstance(answer, Taken)
        assert answer.state == ("held" if early else "delivered")
        for _ in range(3):
            await one.start("door")
            await one.sweep()
        assert len(await taken_by(one, answer.receipt.id)) == 1
        last = await send(one)
        assert (last.state, last.duplicate, last.receipt) == ("delivered", True, answer.receipt)


async def test_a_thousand_repeats_at_once_are_one_signal(one: Bench) -> None:
    run = await one.start("door")
    assert isinstance(one.store, MemoryStore)

    async def turn(operation: str, key: str) -> None:
        await asyncio.sleep(0)

    one.store.before_operation = turn
    sent = request({"n": 1}, signal_id="s1")
    answers = await asyncio.gather(*(one.engine.signal_key("door", "verdict", sent) for _ in range(200)))
    one.store.before_operation = None
    await one.quiet()
    taken = [answer for answer in answers if isinstance(answer, Taken)]
    assert len(taken) == 200
    assert {(answer.state, answer.receipt.id) for answer in taken} == {("delivered", taken[0].receipt.id)}
    assert len(await taken_by(one, taken[0].receipt.id)) == 1
    assert await one.status(run) == "succeeded"


async def test_a_chain_is_kept_for_a_day_after_it_is_final(one: Bench) -> None:
    await send(one)
    await one.after(31)
    assert len(await one.keys(CHAIN)) == 2
    await one.after(86_300)
    again = await send(one)
    assert (again.state, again.duplicate) == ("expired", True)
    await one.after(400)
    await one.after(100)
    assert await one.keys("sent/") == []


def test_a_receipt_is_derived_from_who_sent_what_where() -> None:
    assert names.RECORD_ID.fullmatch(chain_receipt())
    assert payload({"a": 1, "b": 2}).digest == payload({"b": 2, "a": 1}).digest


def sending(one: Bench, name: str) -> Steps:
    """One of two instances that are sent one signal at once."""
    keyed = one.engine.catalog.get(name)
    assert keyed is not None
    found = keyed.keyed("verdict")
    assert found is not None
    return Steps(
        one,
        lambda actor: signals.signal_by_key(actor, Key(name, "verdict"), request({"n": 1}, signal_id="s1"), found.task),
    )


@pytest.mark.parametrize("waits", [False, True])
async def test_in_every_order_two_instances_say_the_same_of_one_signal(one: Bench, *, waits: bool) -> None:
    name = "on-time" if waits else "door"
    if waits:
        await one.start(name)
    count = 0
    async for answers in every_order(one, lambda: (sending(one, name), sending(one, name))):
        count += 1
        assert all(isinstance(answer, Taken) for answer in answers), answers
        assert len({answer.receipt for answer in answers}) == 1
        assert len({answer.state for answer in answers}) == 1
    assert count > 20
