"""Every acceptance criterion of early signals and keyed waits, one test each, over the whole engine.

The names say where a criterion comes from: `hold` (a signal that arrives before its wait opens), `serve` (the same
through a gateway) and `key` (a wait's key is held by one open wait at a time). What only a door can show (replies of a
signal-only caller, audit records, the command line) is shown again by the doors' own tests.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from engine import runs
from engine.actor import Actor
from engine.executor import Around, drive
from engine.names import Key
from engine.records import Pending, Sender, encode, raw
from engine.results import EarlySignalHeld, InvalidPayload, NoOpenWait, NotDeclared, Taken
from engine.signals import signal_by_key
from engine.steps import Deed, Effect
from engine.store.memory import ManualClock, MemoryStore
from engine.workflows.definition import Definition
from engine.workflows.validation import load_text
from tests.support.bench import Bench, bench, request
from tests.support.stepping import Steps, every_order, finish

# The steps of the issues as they are written there; `limit` adds the line by which the second differs from the first.
STEP = """
- name: identify
  allowFailure: true
  task:
    type: wait_for_signal
    key: kitchen-verdict{limit}
    timeout: 30
    schema:
      type: object
      required: [verdict]
      properties:
        verdict: {{ type: string, enum: [known, intruder] }}
"""
KEYED = STEP.format(limit="")
EARLY = STEP.format(limit="\n    acceptEarly: 10 # seconds a signal may arrive before the wait opens")

KNOWN, INTRUDER = {"verdict": "known"}, {"verdict": "intruder"}


def workflow(name: str, step: str) -> str:
    """Put a step of the issues into a workflow, before it one that takes as long as nobody approves it."""
    indented = "".join(f"      {line}\n" for line in step.strip("\n").split("\n"))
    return f"""
name: {name}
inputs: {{ type: object }}
jobs:
  - name: main
    steps:
{indented}
      - name: intruder
        dependsOn: [ {{ step: identify, condition: {{ type: failed }} }} ]
        task: {{ type: publish, topic: told/failed, payload: {{ error: "${{{{ steps.identify.error.code }}}}" }} }}
      - name: done
        dependsOn: [ {{ step: identify }} ]
        task: {{ type: publish, topic: told/done, payload: {{ verdict: "${{{{ steps.identify.payload.verdict }}}}" }} }}
"""


def slow(text: str) -> str:
    """Let the wait come after a step that somebody has to approve."""
    before = """      - name: prepare
        task: { type: wait_for_signal, timeout: 3600 }
      - name: identify
        dependsOn: [ { step: prepare } ]
"""
    return text.replace("      - name: identify\n", before, 1)


ON_TIME, HOLDS = workflow("on-time", KEYED), workflow("holds", EARLY)
SLOW = slow(workflow("slow", EARLY))
SLOW_KEYED = slow(workflow("slow-keyed", KEYED))


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path, ON_TIME, HOLDS, SLOW, SLOW_KEYED) as made:
        yield made


BARE = "name: bare\ninputs: { type: object }\njobs:\n  - name: main\n    steps:\n" + "".join(
    f"      {line}\n" for line in EARLY.strip("\n").split("\n")
)


@pytest.fixture
async def bare(tmp_path: Path) -> AsyncIterator[Bench]:
    """Offer a workflow of the wait alone, for operations that are stepped by hand."""
    async with bench(tmp_path, BARE) as made:
        yield made


async def send(one: Bench, name: str, value: object = KNOWN, *, key: str = "kitchen-verdict", **more: Any) -> Any:
    return await one.signal(name, key, value, **more)


async def approve(one: Bench, run: str) -> None:
    """Let a slow run go on to its wait."""
    await one.engine.signal_wait((await one.steps(run))["prepare"]["wait"], request({}))
    await one.quiet()


async def identify(one: Bench, run: str) -> dict[str, Any]:
    return (await one.steps(run))["identify"]


# == holding a signal that arrives before its wait opens =======================================================


async def test_hold_1_a_signal_before_the_wait_is_the_steps_output_without_suspending(one: Bench) -> None:
    """Sent within the limit: the output as soon as the step opens its wait; never suspended; the usual shape."""
    run = await one.start("slow")
    answer = await send(one, "slow")
    assert isinstance(answer, Taken)
    assert answer.state == "held"
    assert answer.held_until is not None
    one.advance(9)
    suspended_before = (await one.kinds(run)).count("suspended")
    await approve(one, run)
    step = await identify(one, run)
    assert step["status"] == "succeeded"
    assert step["outputs"] == {"payload": KNOWN, "receipt": answer.receipt.id}
    assert (await one.kinds(run)).count("suspended") == suspended_before
    suspensions = [event["waits"] for event in await one.engine.events(run) if event["event"] == "suspended"]
    assert not any(step["wait"] in waits for waits in suspensions)
    in_time = await one.start("on-time")
    await send(one, "on-time")
    other = await identify(one, in_time)
    assert {name: type(value) for name, value in other["outputs"].items()} == {
        name: type(value) for name, value in step["outputs"].items()
    }
    assert (await one.status(run), await one.status(in_time)) == ("succeeded", "succeeded")


async def test_hold_2_a_pending_signal_older_than_the_limit_is_ignored(one: Bench) -> None:
    """The wait opens and takes a later signal."""
    run = await one.start("slow")
    await send(one, "slow", INTRUDER)
    one.advance(10.001)  # and no sweep has looked
    await approve(one, run)
    assert (await identify(one, run))["status"] == "suspended"
    later = await send(one, "slow", KNOWN)
    assert later.state == "delivered"
    assert (await identify(one, run))["outputs"] == {"payload": KNOWN, "receipt": later.receipt.id}


async def test_hold_2b_a_pending_signal_of_exactly_the_limit_is_taken(one: Bench) -> None:
    """No more than acceptEarly seconds ago, judged by the store's two stamps."""
    run = await one.start("slow")
    await send(one, "slow")
    one.advance(10)
    await approve(one, run)
    assert (await identify(one, run))["status"] == "succeeded"


async def test_hold_3_an_early_payload_the_schema_refuses_is_refused_and_nothing_is_stored(one: Bench) -> None:
    """Refused on arrival, by the definition's schema; nothing is stored."""
    before = await one.keys()
    for value in ({"verdict": "maybe"}, {}, {"verdict": 1}):
        for signal_id in (None, "id-1"):
            assert isinstance(await send(one, "holds", value, signal_id=signal_id), InvalidPayload)
    assert await one.keys() == before


async def test_hold_4_without_accept_early_an_early_signal_is_refused(one: Bench) -> None:
    """Refused exactly as without the feature: no open wait, nothing stored."""
    run = await one.start("slow-keyed")
    before = await one.keys()
    answers = [await send(one, "slow-keyed"), await send(one, "slow-keyed", signal_id="id-1")]
    assert answers == [NoOpenWait(None), NoOpenWait(None)]
    assert await one.keys() == before
    await approve(one, run)
    assert (await identify(one, run))["status"] == "suspended"


async def test_hold_5_a_signal_and_a_wait_arriving_together(bare: Bench) -> None:
    """Applied and never lost, in whichever order the writes land."""
    orders = 0
    async for _, answer in every_order(bare, lambda: (opener(bare), sender(bare))):
        assert isinstance(answer, Taken)
        taken = await settled_step(bare)
        assert taken["status"] == "succeeded"
        assert taken["outputs"] == {"payload": KNOWN, "receipt": answer.receipt.id}
        assert len(await bare.keys("outcomes/")) == 1
        orders += 1
    assert orders > 100


async def test_hold_6_a_wait_at_its_deadline_with_a_pending_signal_succeeds(one: Bench) -> None:
    """Received before the deadline, and nobody has looked until after it."""
    run = await one.start("holds")
    one.advance(29.9)
    assert await one.store.get(Key("holds", "kitchen-verdict").pending(0, 1)) is None
    await store_pending(one, "holds")
    one.advance(500)
    await one.sweep()
    step = await identify(one, run)
    assert step["status"] == "succeeded"
    assert step["outputs"]["receipt"] == "r" * 26


async def test_hold_7_pending_records_are_removed_with_the_run(one: Bench) -> None:
    """Taken or not, what its claim took from goes with the run."""
    await send(one, "holds", signal_id="a")
    run = await one.start("holds")
    assert len(await one.keys("pending/")) == 1
    await one.engine.delete(run, by="test")
    await one.after(500)
    assert await one.keys("pending/") == []
    assert await one.keys("early/") == []


async def test_hold_8_early_signals_at_once_leave_exactly_one_stored(bare: Bench) -> None:
    """Two early signals at once: one is stored, the other is refused with its receipt."""
    async for answers in every_order(bare, lambda: (sender(bare), sender(bare, INTRUDER))):
        kept = [answer for answer in answers if isinstance(answer, Taken)]
        refused = [answer for answer in answers if isinstance(answer, EarlySignalHeld)]
        assert (len(kept), len(refused)) == (1, 1)
        assert refused[0].receipt == kept[0].receipt
        assert len(await bare.keys("pending/")) == 1


async def test_hold_9_of_two_steps_with_one_pending_signal_only_the_claim_winner_takes_it(bare: Bench) -> None:
    """Two steps opening at once with one pending signal."""
    held = finish(sender(bare))
    async for _ in every_order(bare, lambda: (opener(bare, "first"), opener(bare, "second"))):
        await bare.sweep()
        await bare.sweep()
        steps = [await identify(bare, run["run"]) for run in (await bare.engine.runs())[0]]
        took = [each for each in steps if each["outputs"] and each["outputs"]["receipt"] == held.receipt.id]
        assert len(took) == 1
        (other,) = [each for each in steps if each is not took[0]]
        assert other["status"] == "suspended" or other["error"]["code"] == "wait_key_held"


async def test_hold_10_an_expired_signal_is_told_of_once_and_cleared(one: Bench) -> None:
    """One that no wait took is removed once it is past its limit and a grace period, and that is audited."""
    answer = await send(one, "holds")
    await one.after(10.1)
    await one.after(0)
    assert [event.receipt for event in one.heard.named("signal.expired")] == [answer.receipt.id]
    await one.after(500)
    assert await one.keys("early/") == []
    pending = [record.value for record in await one.store.list("pending/")]
    assert not any(b"known" in value for value in pending)


# == the same through a gateway ==================================================================================


async def test_serve_1_a_credential_granted_only_signal_gets_a_receipt_and_the_run_goes_on(one: Bench) -> None:
    """The engine's part: one kind of answer, with a receipt, whether the signal was held or taken."""
    run = await one.start("slow")
    held = await send(one, "slow", device="only-signal")
    await approve(one, run)
    assert await one.status(run) == "succeeded"
    run = await one.start("holds")
    delivered = await send(one, "holds", device="only-signal")
    assert await one.status(run) == "succeeded"
    assert isinstance(held, Taken)
    assert isinstance(delivered, Taken)
    assert len(held.receipt.id) == len(delivered.receipt.id) == 26


async def test_serve_2_a_signal_stored_as_a_wait_opens_elsewhere_continues_within_a_sweep(tmp_path: Path) -> None:
    """Two instances over one store: no client acts, and the next pass of either continues the run."""
    for sweeper in ("here", "there"):
        clock = ManualClock()
        store = MemoryStore(clock)
        async with (
            bench(tmp_path / sweeper / "a", HOLDS, store=store, clock=clock, label="a") as here,
            bench(tmp_path / sweeper / "b", HOLDS, store=store.peer(), clock=clock, label="b") as there,
        ):
            run = await there.start("holds")
            await store_pending(here, "holds")  # `here` read no claim, and died after it had stored the signal
            assert await there.status(run) == "suspended"
            await (here if sweeper == "here" else there).sweep()
            assert await there.status(run) == "succeeded"


async def test_serve_3_a_second_early_signal_is_refused(one: Bench) -> None:
    """While one is pending; an early known followed by an early intruder keeps known."""
    first = await send(one, "holds", KNOWN, device="a")
    second = await send(one, "holds", INTRUDER, device="b")
    assert isinstance(second, EarlySignalHeld)
    assert second.receipt == first.receipt
    run = await one.start("holds")
    assert (await identify(one, run))["outputs"]["payload"] == KNOWN


async def test_serve_4_without_accept_early_the_answer_is_as_before(one: Bench) -> None:
    """No open wait, unknown key, delivered: what a gateway answered before there were early signals."""
    assert await send(one, "on-time") == NoOpenWait(None)
    assert await send(one, "on-time", key="nothing") == NotDeclared()
    assert await send(one, "nothing") == NotDeclared()
    run = await one.start("on-time")
    assert (await send(one, "on-time")).state == "delivered"
    assert await one.status(run) == "succeeded"
    again = await send(one, "on-time")
    assert isinstance(again, NoOpenWait)
    assert again.last is not None
    assert again.last.how == "accepted"


async def test_serve_5_what_is_told_of_a_signal_names_receipt_and_key_and_no_payload(one: Bench) -> None:
    """Events for a wait that takes a pending signal, with the receipt's id and the key; never the payload."""
    answer = await send(one, "holds")
    await one.start("holds")
    (taken,) = one.heard.named("signal.taken")
    assert (taken.receipt, taken.key, taken.workflow) == (answer.receipt.id, "kitchen-verdict", "holds")
    told = json.dumps([dataclasses.asdict(event) for event in one.heard.events])
    assert "known" not in told.replace("unknown", "")


# == a wait's key ================================================================================================


def problems(text: str) -> list[str]:
    loaded = load_text(text, "test.yaml")
    assert not isinstance(loaded, Definition)
    return [problem.message for problem in loaded]


def test_key_1_a_key_validates_and_a_shared_one_is_refused_naming_the_steps() -> None:
    """A duplicate key in one workflow, or a key under forEach, fails validation with a message naming the steps."""
    for text in (ON_TIME, HOLDS, SLOW):
        loaded = load_text(text, "test.yaml")
        assert isinstance(loaded, Definition)
        assert loaded.keys() == ("kitchen-verdict",)
    twice = ON_TIME.replace("      - name: done", EARLY_AGAIN + "      - name: done")
    (message,) = problems(twice)
    assert "identify" in message
    assert "identify-again" in message
    assert "kitchen-verdict" in message
    (message,) = problems(ON_TIME.replace("allowFailure: true", "forEach: { item: n, in: [1, 2] }", 1))
    assert "identify" in message
    assert "forEach" in message


EARLY_AGAIN = """      - name: identify-again
        task: { type: wait_for_signal, key: kitchen-verdict, timeout: 30 }
"""


async def test_key_2_of_two_runs_the_first_holds_the_key(one: Bench) -> None:
    """The second's step fails with the held-key error, its failed dependent runs, and the first is unaffected."""
    first, second = await one.start("on-time"), await one.start("on-time")
    step = await identify(one, second)
    assert (step["status"], step["error"]["code"]) == ("failed", "wait_key_held")
    assert one.sent.commands == [("told/failed", {"error": "wait_key_held"})]
    assert await one.status(second) == "succeeded"
    assert (await identify(one, first))["status"] == "suspended"
    assert len((await one.engine.waits())["waits"]) == 1
    await send(one, "on-time")
    assert (await identify(one, first))["outputs"]["payload"] == KNOWN


@pytest.mark.parametrize("how", ["signalled", "timed out", "cancelled", "overdue"])
async def test_key_3_once_the_holder_is_settled_the_next_wait_claims_the_key(one: Bench, how: str) -> None:
    """Whether signalled, timed out or cancelled; a claimant settles an overdue holder itself."""
    first = await one.start("on-time")
    match how:
        case "signalled":
            await send(one, "on-time")
        case "timed out":
            await one.after(30)
        case "cancelled":
            await one.engine.cancel(first, by="test")
        case _:
            one.advance(30)  # and no sweep has looked
    second = await one.start("on-time")
    assert (await identify(one, second))["status"] == "suspended"
    assert (await identify(one, first))["status"] in {"succeeded", "failed", "cancelled"}
    assert (await send(one, "on-time")).where.run == second


async def test_key_4_two_steps_that_claim_a_free_key_at_once(bare: Bench) -> None:
    """Exactly one opens a wait."""
    async for _ in every_order(bare, lambda: (opener(bare, "first"), opener(bare, "second"))):
        await bare.sweep()
        await bare.sweep()
        found = [await identify(bare, run["run"]) for run in (await bare.engine.runs())[0]]
        assert sorted(each["status"] for each in found) == ["failed", "suspended"]
        (lost,) = [each for each in found if each["status"] == "failed"]
        assert lost["error"]["code"] == "wait_key_held"
        assert len(await bare.keys("claims/")) == 1


async def test_key_5_deleting_a_run_removes_its_claim_records(one: Bench) -> None:
    """What stays of a key is one record, a release, so that no number comes back."""
    for _ in range(3):
        run = await one.start("on-time")
        await one.engine.cancel(run, by="test")
        await one.engine.delete(run, by="test")
        await one.after(500)
        assert b'"type":"claim"' not in b"".join(record.value for record in await one.store.list("claims/"))
        assert len(await one.keys("claims/")) == 1
        assert await one.keys(f"claimed/{run}") == []


async def test_key_6_the_listing_of_waits_shows_the_key(one: Bench) -> None:
    """`workflow waits --json`: the engine's part."""
    run = await one.start("on-time")
    (shown,) = (await one.engine.waits())["waits"]
    assert (shown["workflow"], shown["key"], shown["run"], shown["step"]) == (
        "on-time",
        "kitchen-verdict",
        run,
        "identify",
    )
    assert await one.engine.waits(key="other") == {"waits": [], "pending": [], "damaged": []}
    assert len((await one.engine.waits(workflow="on-time", key="kitchen-verdict"))["waits"]) == 1
    held = await send(one, "holds")
    (pending,) = (await one.engine.waits())["pending"]
    assert (pending["workflow"], pending["key"], pending["receipt"]) == ("holds", "kitchen-verdict", held.receipt.id)
    assert pending["until"] == "2026-01-01T00:00:10.000Z"


async def test_key_7_a_wait_without_a_key_behaves_as_ever(one: Bench) -> None:
    """Any number at once, each signalled by its id, each with its own deadline; no claim is made."""
    started = [await one.start("slow") for _ in range(3)]
    assert await one.keys("claims/") == []
    shown = (await one.engine.waits())["waits"]
    assert {each["run"] for each in shown} == set(started)
    assert {each["key"] for each in shown} == {None}
    await approve(one, started[1])
    statuses = [(await one.statuses(run))["prepare"] for run in started]
    assert statuses == ["suspended", "succeeded", "suspended"]
    await one.after(3_600)
    assert [(await one.steps(run))["prepare"]["status"] for run in started] == ["failed", "succeeded", "failed"]


# == the examples run as written =================================================================================


@pytest.mark.parametrize(("step", "name"), [(KEYED, "as-keyed"), (EARLY, "as-early")])
async def test_the_examples_of_the_issues_run_as_they_stand(tmp_path: Path, step: str, name: str) -> None:
    """The two YAML examples, in a workflow around them, take a signal, time out, and refuse what they should."""
    async with bench(tmp_path, workflow(name, step)) as one:
        run = await one.start(name)
        assert isinstance(await send(one, name, {"verdict": "perhaps"}), InvalidPayload)
        assert (await send(one, name, INTRUDER)).state == "delivered"
        assert one.sent.commands == [("told/done", {"verdict": "intruder"})]
        run = await one.start(name)
        await one.after(30)
        assert (await identify(one, run))["error"]["code"] == "wait_timeout"
        assert await one.status(run) == "succeeded"


# == stepping two operations by hand =============================================================================


def sender(one: Bench, value: object = KNOWN) -> Steps:
    """A device's signal, as the engine sends it."""
    loaded = one.engine.catalog.get("bare")
    assert loaded is not None
    keyed = loaded.keyed("kitchen-verdict")
    assert keyed is not None
    key = Key("bare", "kitchen-verdict")
    return Steps(one, lambda actor: signal_by_key(actor, key, request(value), keyed.task))


class _NoEffects:
    """For runs that do nothing but wait."""

    running = False

    def start(self, job: str, step: str, deed: Deed) -> None:
        raise AssertionError("the workflow has no such step")

    async def collect(self) -> list[tuple[str, str, Effect]]:
        return []

    async def stop(self) -> None:
        return None


def _nothing(_: object) -> None:
    """Leave it: nobody hears."""


def opener(one: Bench, label: str = "only") -> Steps:
    """A run on its way to its wait, as its driver drives it; it is where it opens the wait."""
    run = (label + "0" * 26)[:26]

    async def work(actor: Actor) -> None:
        driver = await runs.take(actor, run)
        assert driver is not None
        around = Around(_NoEffects(), one.sent, one.engine.catalog.get, _nothing, _nothing)
        await drive(driver, around)

    loaded = one.engine.catalog.get("bare")
    assert loaded is not None
    finish(Steps(one, lambda actor: runs.start(actor, runs.NewRun(run=run, definition=loaded, inputs=b"{}", by="x"))))
    steps = Steps(one, work)
    while f"runs/{run}/000000000003" not in stored(one):
        steps.step()
    return steps


def stored(one: Bench) -> set[str]:
    assert isinstance(one.store, MemoryStore)
    return {record.key for record in one.store.items()}


async def settled_step(one: Bench) -> dict[str, Any]:
    """Let two passes do what is left to do, and show the only run's step."""
    await one.sweep()
    await one.sweep()
    (run,) = (await one.engine.runs())[0]
    return await identify(one, run["run"])


async def store_pending(one: Bench, name: str) -> None:
    """Store a signal in slot 0, as a sender does that read the key before its wait was claimed."""
    key = Key(name, "kitchen-verdict")
    value = Pending(
        at=key.pending(0, 1),
        nonce="n",
        receipt="r" * 26,
        sender=Sender(kind="device", id="camera"),
        signal_id=None,
        payload=raw(b'{"verdict":"known"}'),
        limit=10,
    )
    await one.store.create_all([(key.early(0, 1), b""), encode(value)])
