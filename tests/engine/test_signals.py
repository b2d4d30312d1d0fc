"""A signal is delivered, held or refused; what is answered is what is stored; a refused one leaves nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from engine import names
from engine.errors import UnreadableRecord
from engine.limits import MAX_SLOT_RECORDS
from engine.names import Key
from engine.records import Pending, Sender, encode, raw
from engine.results import (
    AlreadySettled,
    EarlySignalHeld,
    InvalidPayload,
    NoOpenWait,
    NotDeclared,
    SlotFull,
    Taken,
    WaitClosed,
)
from tests.support.bench import Bench, bench, request

STEP = """
name: {name}
inputs: {{ type: object }}
jobs:
  - name: main
    steps:
      - name: look
        allowFailure: true
        task:
          type: wait_for_signal
          key: verdict
          timeout: 60
          schema: {{ type: object, required: [n], properties: {{ n: {{ type: integer }} }} }}
{more}
"""
EARLY = STEP.format(name="early", more="          acceptEarly: 30")
LATEST = STEP.format(name="latest", more="          acceptEarly: 30\n          earlyPolicy: latest")
ON_TIME = STEP.format(name="on-time", more="")
PLAIN = """
name: plain
inputs: { type: object }
jobs: [ { name: main, steps: [ { name: ask, task: { type: wait_for_signal, timeout: 60 } } ] } ]
"""


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path, EARLY, LATEST, ON_TIME, PLAIN) as made:
        yield made


async def send(one: Bench, name: str, n: Any = 1, **more: Any) -> Any:
    return await one.signal(name, "verdict", {"n": n}, **more)


async def wait_of(one: Bench, run: str, step: str = "look") -> str:
    return str((await one.steps(run))[step]["wait"])


# -- by key ----------------------------------------------------------------------------------------------------------


async def test_an_open_wait_takes_a_signal_and_the_answer_says_where(one: Bench) -> None:
    run = await one.start("on-time")
    answer = await send(one, "on-time")
    assert answer.state == "delivered"
    assert (answer.where.run, answer.where.step) == (run, "look")
    assert (await one.steps(run))["look"]["outputs"]["receipt"] == answer.receipt.id
    assert answer.receipt.at == one.clock.now()


async def test_the_payload_is_stored_and_given_on_exactly_as_it_was_sent(one: Bench) -> None:
    run = await one.start("on-time")
    value = {"n": 3, "deep": {"list": [1, 2.5, None, True, "é\u0001"], "z": {}, "a": ""}}
    await one.signal("on-time", "verdict", value)
    assert (await one.steps(run))["look"]["outputs"]["payload"] == value


async def test_a_payload_that_the_captured_schema_refuses_leaves_the_wait_open_and_nothing_stored(one: Bench) -> None:
    run = await one.start("on-time")
    before = await one.keys()
    answer = await send(one, "on-time", "text")
    assert isinstance(answer, InvalidPayload)
    assert [problem.pointer for problem in answer.problems] == ["/n"]
    assert await one.keys() == before
    assert (await send(one, "on-time")).state == "delivered"
    assert await one.status(run) == "succeeded"


async def test_an_open_wait_judges_by_what_it_captured_not_by_the_definition_now(one: Bench, tmp_path: Path) -> None:
    run = await one.start("on-time")
    (tmp_path / "workflows" / "on-time.yaml").write_text(ON_TIME.replace("integer", "string"))
    one.engine.catalog.reload()
    assert isinstance(await send(one, "on-time", "text"), InvalidPayload)
    assert (await send(one, "on-time", 1)).state == "delivered"
    assert await one.status(run) == "succeeded"


async def test_a_wait_whose_workflow_is_gone_still_takes_its_signal(one: Bench, tmp_path: Path) -> None:
    run = await one.start("on-time")
    (tmp_path / "workflows" / "on-time.yaml").unlink()
    one.engine.catalog.reload()
    assert (await send(one, "on-time")).state == "delivered"
    assert await one.status(run) == "succeeded"
    assert await send(one, "on-time") == NotDeclared()


async def test_a_holder_past_its_deadline_takes_no_more_signals(one: Bench) -> None:
    run = await one.start("on-time")
    one.advance(60)
    answer = await send(one, "on-time")
    assert isinstance(answer, NoOpenWait)
    assert answer.last is not None
    assert answer.last.how == "timed_out"
    assert (await one.steps(run))["look"]["error"]["code"] == "wait_timeout"
    run = await one.start("early")
    one.advance(60)
    held = await send(one, "early")
    assert held.state == "held"  # for the wait that opens next
    assert (await one.steps(run))["look"]["error"]["code"] == "wait_timeout"
    following = await one.start("early")
    assert (await one.steps(following))["look"]["outputs"]["receipt"] == held.receipt.id


async def test_a_signal_in_the_last_moment_is_in_time(one: Bench) -> None:
    await one.start("on-time")
    one.advance(59.999999)
    assert (await send(one, "on-time")).state == "delivered"


async def test_a_key_whose_highest_claim_is_damaged_stays_shut(one: Bench) -> None:
    await one.store.create(Key("early", "verdict").claim(1), b"{broken")
    with pytest.raises(UnreadableRecord):
        await send(one, "early")
    assert await one.keys("pending/") == []


# -- held ------------------------------------------------------------------------------------------------------------


async def test_a_held_signal_says_until_when_and_a_second_gets_the_firsts_receipt(one: Bench) -> None:
    first = await send(one, "early", device="a")
    assert (first.state, (first.held_until - one.clock.now()).total_seconds()) == ("held", 30)
    one.advance(30)
    second = await send(one, "early", device="b")
    assert isinstance(second, EarlySignalHeld)
    assert (second.receipt, second.sender.id, second.until) == (first.receipt, "a", first.held_until)
    one.advance(0.000001)
    third = await send(one, "early", device="b")
    assert third.state == "held"
    run = await one.start("early")
    assert (await one.steps(run))["look"]["outputs"]["receipt"] == third.receipt.id


async def test_under_latest_the_newest_is_taken(one: Bench) -> None:
    answers = [await send(one, "latest", n) for n in (1, 2, 3)]
    assert {answer.state for answer in answers} == {"held"}
    run = await one.start("latest")
    assert (await one.steps(run))["look"]["outputs"] == {"payload": {"n": 3}, "receipt": answers[2].receipt.id}


async def test_under_latest_superseded_signals_are_expired_and_cleared_like_any_other(one: Bench) -> None:
    for n in (1, 2, 3):
        await send(one, "latest", n, signal_id=f"s{n}")
    await one.after(31)
    await one.after(0)
    assert len(one.heard.named("signal.expired")) == 3
    assert await one.keys("early/") == []
    await one.after(700)
    await one.after(700)
    assert len(await one.keys("pending/")) == 1
    again = await send(one, "latest", 1, signal_id="s1")
    assert (again.state, again.duplicate) == ("expired", True)


async def test_a_slot_takes_so_many_signals_and_then_no_more_until_they_are_cleared(one: Bench) -> None:
    key = Key("latest", "verdict")
    items = []
    for m in range(1, MAX_SLOT_RECORDS + 1):
        value = Pending(
            at=key.pending(0, m),
            nonce=str(m),
            receipt=f"{m:026d}",
            sender=Sender(kind="device", id="camera"),
            signal_id=None,
            payload=raw(b'{"n":1}'),
            limit=30,
        )
        target = f"latest/verdict/{names.number(0)}/{names.number(m)}"
        due = names.due(one.clock.now(), "signal", target)
        items += [(key.early(0, m), b""), (due, b""), encode(value)]
    await one.store.create_all(items)
    assert await send(one, "latest") == SlotFull()
    await one.after(31)
    await one.after(900)
    assert (await send(one, "latest")).state == "held"
    assert len(await one.keys(key.slots)) == 2


async def test_a_damaged_pending_record_blocks_nobody(one: Bench) -> None:
    await one.store.create(Key("early", "verdict").pending(0, 1), b"{broken")
    held = await send(one, "early")
    assert held.state == "held"
    run = await one.start("early")
    assert (await one.steps(run))["look"]["outputs"]["receipt"] == held.receipt.id


# -- refused ---------------------------------------------------------------------------------------------------------


async def test_a_refused_signal_leaves_nothing_in_the_store(one: Bench) -> None:
    await one.start("plain")
    before = await one.keys()
    for signal_id in (None, "an-id"):
        assert await send(one, "on-time", signal_id=signal_id) == NoOpenWait(None)
        assert isinstance(await send(one, "early", "text", signal_id=signal_id), InvalidPayload)
        assert await send(one, "nothing", signal_id=signal_id) == NotDeclared()
        assert await one.signal("early", "nothing", {}, signal_id=signal_id) == NotDeclared()
        assert await one.engine.signal_wait("z" * 26, request({}, signal_id=signal_id)) == NotDeclared()
    assert await one.keys() == before


# -- by wait id ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["plain", "on-time", "early"])
async def test_a_signal_by_wait_id_is_delivered_once(one: Bench, name: str) -> None:
    run = await one.start(name)
    step = "ask" if name == "plain" else "look"
    wait = await wait_of(one, run, step)
    answer = await one.engine.signal_wait(wait, request({"n": 1}))
    await one.quiet()
    assert isinstance(answer, Taken)
    assert await one.status(run) == "succeeded"
    again = await one.engine.signal_wait(wait, request({"n": 1}))
    assert again == NotDeclared()  # the run has ended, and its registrations with it


async def test_a_wait_that_is_settled_and_not_yet_applied_says_so(one: Bench) -> None:
    run = await one.start("plain")
    wait = await wait_of(one, run, "ask")
    first = await one.engine.signal_wait(wait, request({"n": 1}))
    second = await one.engine.signal_wait(wait, request({"n": 2}))
    assert isinstance(first, Taken)
    assert isinstance(second, AlreadySettled)
    assert (second.last.how, second.last.receipt) == ("accepted", first.receipt)
    await one.quiet()


async def test_a_wait_past_its_deadline_is_closed(one: Bench) -> None:
    run = await one.start("plain")
    wait = await wait_of(one, run, "ask")
    one.advance(60)
    assert await one.engine.signal_wait(wait, request({})) == WaitClosed()
    await one.quiet()
    assert (await one.steps(run))["ask"]["error"]["code"] == "wait_timeout"


async def test_a_signal_by_wait_id_is_checked_by_the_captured_schema(one: Bench) -> None:
    run = await one.start("on-time")
    wait = await wait_of(one, run)
    assert isinstance(await one.engine.signal_wait(wait, request({"n": "x"})), InvalidPayload)
    assert await one.status(run) == "suspended"
