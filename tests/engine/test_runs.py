"""A run is started once, moved on by one, cancelled, retried and ended, and leaves no index record behind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engine import names, runs
from engine.decisions.fold import RunState
from engine.errors import BadInput, Conflict, LostRace, NotFound, UnreadableRecord
from engine.records import Ready, RunCancelled, encode, event
from engine.results import Taken
from engine.store.memory import MemoryStore
from tests.support.bench import Bench, bench, definition, request
from tests.support.stepping import Steps, finish

TEXT = """
name: door
inputs: { type: object, properties: { n: { type: integer } }, additionalProperties: false }
jobs:
  - name: main
    steps:
      - name: first
        task: { type: wait_for_signal, key: verdict, acceptEarly: 30, timeout: 60 }
      - name: second
        dependsOn: [ { step: first } ]
        task: { type: wait_for_signal, timeout: 60 }
      - name: beside
        task: { type: wait_for_signal, key: other, timeout: 600 }
"""
FLAT = """
name: flat
inputs: { type: object }
jobs: [ { name: main, steps: [ { name: send, task: { type: publish, topic: sent, payload: {} } } ] } ]
"""


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path, TEXT, FLAT) as made:
        yield made


async def state_of(one: Bench, run: str) -> RunState:
    state = await runs.load(one.actor(), run)
    assert state is not None
    return state


# -- starting ------------------------------------------------------------------------------------------------


async def test_a_run_is_there_and_indexed_when_its_start_returns(one: Bench) -> None:
    run = await one.begin("door", n=1)
    assert await one.kinds(run) == ["created"]
    assert await one.keys(f"open/{run}/") == [names.open_since(run, 1)]
    assert len(await one.keys(f"ready/{run}/-/")) == 1


async def test_a_start_with_an_id_that_is_used_is_the_same_run(one: Bench) -> None:
    first = await one.engine.start_run("flat", {}, by="device:a", run="a" * 26)
    await one.quiet()
    assert await one.engine.start_run("flat", {}, by="device:a", run="a" * 26) == first
    await one.quiet()
    assert len(one.sent.commands) == 1
    assert len(one.heard.named("run.created")) == 1
    assert await one.keys("ready/") == []


async def test_a_start_with_an_id_that_is_used_and_other_inputs_is_refused(one: Bench) -> None:
    run = await one.engine.start_run("flat", {"a": 1, "b": 2}, by="device:a", run="a" * 26)
    await one.quiet()
    assert await one.engine.start_run("flat", {"b": 2, "a": 1}, by="device:a", run=run) == run
    with pytest.raises(Conflict):
        await one.engine.start_run("flat", {"a": 1, "b": 3}, by="device:a", run=run)
    await one.quiet()
    assert len(one.heard.named("run.created")) == 1
    assert await one.keys("ready/") == []


async def test_a_start_is_refused_for_an_unknown_workflow_or_bad_inputs(one: Bench) -> None:
    with pytest.raises(NotFound):
        await one.engine.start_run("nothing", {}, by="test")
    with pytest.raises(BadInput) as refused:
        await one.engine.start_run("door", {"n": "secret-marker", "secret-name": 1}, by="test")
    assert len(refused.value.problems) == 2
    assert "secret" not in " ".join([str(refused.value), *refused.value.problems])
    with pytest.raises(BadInput, match="bytes"):
        await one.engine.start_run("flat", {"big": "x" * 300_000}, by="test")
    assert await one.keys("runs/") == []


async def test_a_run_keeps_the_definition_it_started_with(one: Bench, tmp_path: Path) -> None:
    run = await one.start("door")
    (tmp_path / "workflows" / "door.yaml").write_text(FLAT.replace("name: flat", "name: door"))
    one.engine.catalog.reload()
    assert set(await one.statuses(run)) == {"first", "second", "beside"}
    assert set(await one.statuses(await one.start("door"))) == {"send"}


# -- driving -------------------------------------------------------------------------------------------------


async def test_of_two_that_continue_a_run_one_drives(tmp_path: Path) -> None:
    async with bench(tmp_path, FLAT) as one:
        actor, other = one.actor(), one.actor()
        await runs.start(actor, runs.NewRun(run="r" * 26, definition=definition(FLAT), inputs=b"{}", by="test"))
        first = await runs.take(actor, "r" * 26)
        assert first is not None
        assert await runs.take(other, "r" * 26) is None
        assert await one.keys("driving/") == [first.driving]


async def test_it_is_told_by_which_signal_a_run_goes_on_also_where_another_instance_died_over_it(one: Bench) -> None:
    run = await one.start("door", n=1)
    receipts = []
    for key in ("verdict", "other"):
        one.advance(1)
        answer = await one.signal("door", key, {"n": 1})
        assert isinstance(answer, Taken)
        receipts.append(answer.receipt.id)
    told = [event.receipt for event in one.heard.named("run.resumed")]
    assert told == ["", *receipts]  # none moved it at its start
    state = await state_of(one, run)
    assert runs._moved_by(state, {}) == receipts[1]
    state.steps["main", "beside"].ended = None
    assert runs._moved_by(state, {}) == receipts[0]


async def test_a_driver_that_was_overtaken_appends_nothing(tmp_path: Path) -> None:
    async with bench(tmp_path, FLAT) as one:
        actor = one.actor()
        await runs.start(actor, runs.NewRun(run="r" * 26, definition=definition(FLAT), inputs=b"{}", by="test"))
        slow = await runs.take(actor, "r" * 26)
        assert slow is not None
        quick = await runs.take(one.actor(), "r" * 26, dead=frozenset({one.engine.instance}))
        assert quick is not None
        with pytest.raises(LostRace):
            await runs.end(slow, "succeeded")
        assert await one.kinds("r" * 26) == ["created", "resumed", "resumed"]
        assert await one.keys("ready/" + "r" * 26 + "/-/") != []  # of the start alone: the loser's own is gone
        assert len(await one.keys("ready/")) == 1


async def test_a_slow_driver_of_a_removed_run_writes_nothing_into_the_void(tmp_path: Path) -> None:
    async with bench(tmp_path, FLAT) as one:
        actor = one.actor()
        await runs.start(actor, runs.NewRun(run="r" * 26, definition=definition(FLAT), inputs=b"{}", by="test"))
        slow = await runs.take(actor, "r" * 26)
        assert slow is not None
        await one.store.delete(await one.keys("runs/"))
        one.advance(61)
        with pytest.raises(LostRace):
            await runs.end(slow, "succeeded")
        assert await one.keys("runs/") == []


async def test_a_log_that_cannot_be_read_is_never_taken_for_an_absent_one(one: Bench) -> None:
    run = await one.start("door")
    seq = (await one.engine.events(run))[-1]["seq"]
    await one.store.create(f"runs/{run}/{seq + 1:012d}", b"\x00 damaged")
    with pytest.raises(UnreadableRecord):
        await one.engine.run(run)
    await one.signal("door", "verdict", {})
    assert (await one.keys(f"runs/{run}/"))[-1].endswith(f"{seq + 1:012d}")
    assert [each.run for each in one.heard.named("run.damaged")] == [run]


# -- cancelling ----------------------------------------------------------------------------------------------


async def test_a_cancelled_run_frees_its_keys_and_answers_its_waits(one: Bench) -> None:
    run = await one.start("door")
    waits = [step["wait"] for step in (await one.steps(run)).values() if step["wait"]]
    await one.engine.cancel(run, by="user:eve")
    await one.quiet()
    assert set((await one.statuses(run)).values()) == {"cancelled"}
    assert await one.keys("outcomes/") == sorted(f"outcomes/{wait}" for wait in waits)
    assert await one.keys("waits/") + await one.keys("ready/") + await one.keys("open/") == []
    other = await one.start("door")
    assert await one.status(other) == "suspended"
    assert [event.by for event in one.heard.named("run.cancelled")] == ["user:eve"]


async def test_a_run_that_has_ended_cannot_be_cancelled(one: Bench) -> None:
    run = await one.start("flat")
    with pytest.raises(Conflict, match="succeeded"):
        await one.engine.cancel(run, by="test")
    with pytest.raises(NotFound):
        await one.engine.cancel("z" * 26, by="test")


async def test_what_a_canceller_that_died_left_undone_is_done_by_the_sweep(one: Bench) -> None:
    run = await one.start("door")
    seq = (await one.engine.events(run))[-1]["seq"] + 1
    ready = Ready(at=names.ready(run, "-", "died"), nonce="died", event=seq)
    await one.store.create(*encode(ready))
    await one.store.create(*encode(RunCancelled(at=names.event(run, seq), nonce="died", by="test")))
    await one.sweep()
    assert await one.status(run) == "cancelled"
    assert len(await one.keys("outcomes/")) == 2
    await one.sweep()
    assert await one.keys("ready/") + await one.keys("waits/") + await one.keys("open/") == []


# -- retrying ------------------------------------------------------------------------------------------------


async def test_a_retry_runs_the_failed_steps_again_with_new_waits_and_claims(one: Bench) -> None:
    run = await one.start("door")
    first = (await one.steps(run))["first"]["wait"]
    await one.signal("door", "other", {})
    await one.after(61)
    assert await one.statuses(run) == {"first": "failed", "second": "skipped", "beside": "succeeded"}
    assert await one.status(run) == "failed"
    await one.engine.retry(run, by="user:eve")
    await one.quiet()
    steps = await one.steps(run)
    assert {name: (step["status"], step["attempt"]) for name, step in steps.items()} == {
        "first": ("suspended", 2),
        "second": ("pending", 2),
        "beside": ("succeeded", 1),
    }
    assert steps["first"]["wait"] != first
    assert len(await one.keys("claims/door/verdict/")) == 2
    await one.sweep()
    assert await one.keys("ready/") == []
    assert isinstance(await one.signal("door", "verdict", {}), Taken)
    assert (await one.statuses(run))["second"] == "suspended"


async def test_a_retry_from_a_step_closes_the_wait_that_it_holds(one: Bench) -> None:
    run = await one.start("door")
    before = (await one.steps(run))["first"]["wait"]
    await one.engine.retry(run, step="first", by="test")
    await one.quiet()
    after = (await one.steps(run))["first"]
    assert after["wait"] != before
    assert after["status"] == "suspended"
    assert (await one.statuses(run))["beside"] == "suspended"
    assert await one.keys(f"outcomes/{before}") == [f"outcomes/{before}"]
    assert await one.keys(f"waits/{before}") == []
    assert isinstance(await one.signal("door", "verdict", {}), Taken)
    assert isinstance(await one.signal("door", "other", {}), Taken)
    assert (await one.statuses(run))["second"] == "suspended"


async def test_a_run_that_goes_on_in_the_middle_of_its_retry_does_not_find_its_key_held_by_itself(one: Bench) -> None:
    run = await one.start("door")
    retrying = Steps(one, lambda actor: runs.retry(actor, run, "first", "user:eve"))
    while "retried" not in await one.kinds(run):
        retrying.step()
    # The old wait is still open; a signal to the other one moves the run on.
    assert isinstance(await one.signal("door", "other", {}), Taken)
    steps = await one.steps(run)
    assert (steps["first"]["status"], steps["first"]["attempt"]) == ("suspended", 2)
    finish(retrying)
    assert isinstance(answer := await one.signal("door", "verdict", {}), Taken)
    assert answer.state == "delivered"
    assert (await one.steps(run))["first"]["status"] == "succeeded"


async def test_a_retry_is_refused_when_nothing_failed_or_no_step_has_the_name(one: Bench) -> None:
    run = await one.start("flat")
    with pytest.raises(Conflict, match="has failed"):
        await one.engine.retry(run, by="test")
    with pytest.raises(Conflict, match="is called nope"):
        await one.engine.retry(run, step="nope", by="test")
    with pytest.raises(NotFound):
        await one.engine.retry("z" * 26, by="test")


async def test_a_run_that_succeeded_can_be_run_again_from_a_step(one: Bench) -> None:
    run = await one.start("flat")
    await one.engine.retry(run, step="send", by="test")
    await one.quiet()
    assert [topic for topic, _ in one.sent.commands] == ["sent", "sent"]
    assert await one.status(run) == "succeeded"
    assert await one.keys("open/") + await one.keys("ready/") == []


async def test_a_cancelled_run_that_is_retried_from_one_step_ends(one: Bench) -> None:
    run = await one.start("door")
    await one.engine.cancel(run, by="test")
    await one.engine.retry(run, step="first", by="test")
    await one.quiet()
    assert await one.statuses(run) == {"first": "suspended", "second": "pending", "beside": "cancelled"}
    await one.after(61)
    assert await one.status(run) == "failed"
    await one.engine.retry(run, by="test")
    await one.quiet()
    assert await one.statuses(run) == {"first": "suspended", "second": "pending", "beside": "suspended"}


async def test_a_retry_whose_maker_died_is_continued_by_the_sweep(one: Bench) -> None:
    run = await one.start("flat")
    await runs.retry(one.actor(), run, "send", "test")  # and nobody continues it
    assert await one.status(run) == "pending"
    await one.sweep()
    assert await one.status(run) == "succeeded"
    await one.sweep()
    assert await one.keys("ready/") == []


async def test_a_start_whose_maker_died_is_driven_by_the_sweep(one: Bench) -> None:
    await runs.start(one.actor(), runs.NewRun(run="r" * 26, definition=definition(FLAT), inputs=b"{}", by="test"))
    await one.sweep()
    assert await one.status("r" * 26) == "succeeded"


# -- what a run's end leaves -----------------------------------------------------------------------------------


async def test_an_ended_run_leaves_its_log_its_claims_and_its_outcomes_and_nothing_else(one: Bench) -> None:
    run = await one.start("door")
    await one.signal("door", "verdict", {})
    await one.signal("door", "other", {})
    await one.engine.signal_wait((await one.steps(run))["second"]["wait"], request({}))
    await one.quiet()
    assert await one.status(run) == "succeeded"
    await one.sweep()
    kept = {key.split("/", 1)[0] for key in await one.keys()}
    assert kept == {"runs", "claims", "claimed", "outcomes", "meta", "instances"}


async def test_every_record_of_a_run_says_where_it_is_stored(one: Bench) -> None:
    assert isinstance(one.store, MemoryStore)
    run = await one.start("door")
    for record in await one.store.list(f"runs/{run}/"):
        assert event(record).value.at == record.key
    misfiled = b'{"v":1,"type":"ended","at":"runs/other/000000000001","nonce":"n","status":"failed"}'
    record = await one.store.create(names.event("q" * 26, 1), misfiled)
    with pytest.raises(UnreadableRecord, match="another key"):
        event(record)
