"""A driver runs every kind of step in order, applies how waits end, and takes up what an earlier driver left."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engine import runs
from engine.errors import BadInput, Conflict
from engine.events import Whose
from engine.limits import MAX_CAPTURED_SCHEMA_BYTES, MAX_FOR_EACH
from engine.records import Opening, encode
from engine.results import InvalidPayload, Taken
from tests.support.bench import Bench, bench, request

SH = "task: { type: shell, run: [/bin/sh, -c, '%s'] }"

CONDITIONS = """
name: conditions
inputs: { type: object }
jobs:
  - name: main
    steps:
      - name: good
        task: { type: assert, that: "${{ true }}", message: no }
      - name: bad
        allowFailure: true
        task: { type: assert, that: "${{ false }}", message: it is false }
      - name: skipped
        dependsOn: [ { step: good, condition: { type: failed } } ]
        task: { type: publish, topic: ran/skipped, payload: {} }
      - name: after-good
        dependsOn: [ { step: good } ]
        task: { type: publish, topic: ran/after-good, payload: {} }
      - name: after-bad
        dependsOn: [ { step: bad, condition: { type: failed } } ]
        task: { type: publish, topic: ran/after-bad, payload: {} }
      - name: after-both
        dependsOn: [ { step: good, condition: { type: completed } }, { step: bad, condition: { type: completed } } ]
        task: { type: publish, topic: ran/after-both, payload: {} }
      - name: after-skip
        dependsOn: [ { step: skipped, condition: { type: skipped } } ]
        task: { type: publish, topic: ran/after-skip, payload: {} }
      - name: whatever
        dependsOn: [ { step: skipped, condition: { type: always } } ]
        task: { type: publish, topic: ran/whatever, payload: {} }
      - name: never
        dependsOn: [ { step: skipped } ]
        task: { type: publish, topic: ran/never, payload: {} }
  - name: later
    dependsOn: [ { job: main } ]
    steps:
      - name: last
        task: { type: publish, topic: ran/last, payload: {} }
  - name: not-run
    dependsOn: [ { job: main, condition: { type: failed } } ]
    steps:
      - name: alarm
        task: { type: publish, topic: ran/alarm, payload: {} }
"""

EACH = """
name: each
inputs: { type: object }
jobs:
  - name: main
    steps:
      - name: send
        forEach: { item: room, in: "${{ inputs.rooms }}" }
        guard: ${{ self.room == "done" }}
        task: { type: publish, topic: "rooms/${{ self.room }}", payload: { room: "${{ self.room }}" } }
      - name: count
        dependsOn: [ { step: send, condition: { type: always } } ]
        task:
          type: publish
          topic: count
          payload: { n: "${{ size(steps.send.outputs) }}", s: "${{ steps.send.status }}" }
"""

CHECKS = """
name: checks
inputs: { type: object }
jobs:
  - name: main
    steps:
      - name: check
        forEach: { item: n, in: "${{ inputs.numbers }}" }
        task: { type: assert, that: "${{ self.n < 10 }}", message: "${{ self.n }} is too much" }
      - name: after
        dependsOn: [ { step: check } ]
        task: { type: publish, topic: after, payload: {} }
"""

LISTED = """
name: listed
inputs: { type: object }
jobs:
  - name: before
    steps:
      - name: gate
        task: { type: wait_for_signal, key: gate, timeout: 30 }
  - name: work
    dependsOn: [ { job: before, condition: { type: completed } } ]
    steps:
      - name: fetch
        task: { type: wait_for_signal, key: rooms, timeout: 60 }
      - name: send
        dependsOn: [ { step: fetch } ]
        forEach: { item: room, in: "${{ steps.fetch.payload.rooms }}" }
        task: { type: assert, that: "${{ self.room != 'bad' }}", message: a bad room }
"""

WAITS = """
name: waits
inputs: { type: object }
jobs:
  - name: main
    steps:
      - name: ask
        forEach: { item: who, in: [anna, ben] }
        task: { type: wait_for_signal, timeout: 60 }
      - name: done
        dependsOn: [ { step: ask } ]
        task: { type: publish, topic: done, payload: { answers: "${{ steps.ask.outputs }}" } }
"""

PARENT = """
name: parent
inputs: { type: object }
jobs:
  - name: main
    steps:
      - name: child
        allowFailure: true
        task: { type: workflow, workflow: child, inputs: { n: "${{ inputs.n }}" } }
      - name: tell
        dependsOn: [ { step: child, condition: { type: completed } } ]
        task: { type: publish, topic: told, payload: { status: "${{ steps.child.status }}" } }
"""

FILLED = """
name: filled
inputs: { type: object }
jobs:
  - name: main
    steps:
      - name: ask
        %s
        task:
          type: wait_for_signal
          key: answer
          timeout: 60
          schema: { type: object, properties: { a: { const: "${{ inputs.t + inputs.t + inputs.t + inputs.t }}" } } }
      - name: after
        dependsOn: [ { step: ask, condition: { type: failed } } ]
        task: { type: publish, topic: after, payload: {} }
"""

CHILD = """
name: child
inputs: { type: object, properties: { n: { type: integer, maximum: 100 } } }
jobs:
  - name: main
    steps:
      - name: answer
        task: { type: wait_for_signal, key: answer, timeout: 60 }
      - name: check
        dependsOn: [ { step: answer } ]
        task: { type: assert, that: "${{ inputs.n < 10 }}", message: too much }
"""


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path, CONDITIONS, EACH, CHECKS, WAITS, PARENT, CHILD) as made:
        yield made


# -- order and conditions ------------------------------------------------------------------------------------


async def test_every_condition_decides_for_its_step_and_its_job(one: Bench) -> None:
    run = await one.start("conditions")
    assert await one.statuses(run) == {
        "good": "succeeded",
        "bad": "failed",
        "skipped": "skipped",
        "after-good": "succeeded",
        "after-bad": "succeeded",
        "after-both": "succeeded",
        "after-skip": "succeeded",
        "whatever": "succeeded",
        "never": "skipped",
        "last": "succeeded",
        "alarm": "skipped",
    }
    assert await one.status(run) == "succeeded"
    assert {job["name"]: job["status"] for job in (await one.view(run))["jobs"]} == {
        "main": "succeeded",
        "later": "succeeded",
        "not-run": "skipped",
    }
    assert (await one.steps(run))["bad"]["error"] == {"code": "task_failed", "message": "it is false"}


async def test_a_steps_start_is_in_the_log_before_its_effect(one: Bench) -> None:
    seen: list[list[str]] = []
    real = one.sent.publish

    async def publish(topic: str, payload: bytes, whose: Whose) -> int:
        seen.append([record.key for record in await one.store.list("runs/")])
        return await real(topic, payload, whose)

    one.sent.publish = publish  # type: ignore[method-assign]
    run = await one.start("each", rooms=["a"])
    kinds = await one.kinds(run)
    assert kinds[len(seen[0]) - 1] == "step_started"


# -- forEach -------------------------------------------------------------------------------------------------


async def test_a_step_for_each_element_runs_once_an_element_with_its_own_value(one: Bench) -> None:
    run = await one.start("each", rooms=["hall", "done", "attic"])
    assert sorted(topic for topic, _ in one.sent.commands) == ["count", "rooms/attic", "rooms/hall"]
    assert await one.statuses(run) == {
        "send[0]": "succeeded",
        "send[1]": "skipped",
        "send[2]": "succeeded",
        "count": "succeeded",
    }
    assert one.sent.commands[-1] == ("count", {"n": 3, "s": "succeeded"})


async def test_no_element_at_all_is_a_success(one: Bench) -> None:
    run = await one.start("each", rooms=[])
    assert await one.status(run) == "succeeded"
    assert one.sent.commands == [("count", {"n": 0, "s": "succeeded"})]


async def test_all_elements_guarded_is_skipped_as_done(one: Bench) -> None:
    await one.start("each", rooms=["done", "done"])
    assert one.sent.commands == [("count", {"n": 2, "s": "skipped"})]


@pytest.mark.parametrize("rooms", ["text", 5, {"a": 1}, list(range(MAX_FOR_EACH + 1)), ["x" * 60_000] * 10])
async def test_what_is_no_list_that_can_be_kept_fails_the_step_as_a_whole(one: Bench, rooms: object) -> None:
    try:
        run = await one.start("each", rooms=rooms)
    except BadInput:
        assert isinstance(rooms, list)
        assert len(str(rooms)) > 262_144
        return
    view = (await one.steps(run))["send"]
    assert view["status"] == "failed"
    assert view["error"]["code"] == "expression_failed"
    assert await one.status(run) == "failed"


@pytest.mark.parametrize(("allowed", "status"), [("allowFailure: true", "succeeded"), ("", "failed")])
async def test_a_schema_that_is_filled_in_beyond_what_a_record_holds_fails_its_step(
    tmp_path: Path, allowed: str, status: str
) -> None:
    text = "y" * 250_000
    async with bench(tmp_path, FILLED % allowed) as one:
        run = await one.start("filled", t=text)
        assert (await one.steps(run))["ask"]["error"] == {
            "code": "expression_failed",
            "message": f"the schema has more than {MAX_CAPTURED_SCHEMA_BYTES} bytes once filled in",
        }
        assert (await one.statuses(run))["after"] == "succeeded"
        assert await one.status(run) == status
        assert await one.keys("claims/") == await one.keys("waits/") == await one.keys("driving/") == []
        await one.start("filled", t=text[:100_000])
        assert isinstance(await one.signal("filled", "answer", {}), Taken)


async def test_a_wait_that_an_earlier_driver_could_not_open_fails_and_frees_its_run(tmp_path: Path) -> None:
    async with bench(tmp_path, FILLED % "") as one:
        run = await one.begin("filled", t="y" * 250_000)
        driver = await runs.take(one.actor(), run)
        assert driver is not None
        nonce = one.source.nonce()
        await driver.append(Opening(at=driver.at(), nonce=nonce, job="main", step="ask", attempt=1, wait="w" * 26))
        await one.sweep()
        assert (await one.steps(run))["ask"]["error"]["code"] == "expression_failed"
        assert await one.status(run) == "failed"


async def test_one_failed_element_fails_the_group_and_only_it_is_retried(one: Bench) -> None:
    run = await one.start("checks", numbers=[1, 20, 3])
    assert await one.statuses(run) == {
        "check[0]": "succeeded",
        "check[1]": "failed",
        "check[2]": "succeeded",
        "after": "skipped",
    }
    await one.engine.retry(run, by="test")
    await one.quiet()
    steps = await one.steps(run)
    assert {name: step["attempt"] for name, step in steps.items()} == {
        "check[0]": 1,
        "check[1]": 2,
        "check[2]": 1,
        "after": 2,
    }
    assert await one.status(run) == "failed"


async def test_a_whole_group_is_retried_by_its_name_and_expanded_anew(one: Bench) -> None:
    run = await one.start("checks", numbers=[1, 2])
    await one.engine.retry(run, step="check", by="test")
    await one.quiet()
    kinds = await one.kinds(run)
    assert kinds.count("expanded") == 2
    assert await one.statuses(run) == {"check[0]": "succeeded", "check[1]": "succeeded", "after": "succeeded"}


async def test_a_group_is_expanded_anew_where_a_retry_runs_again_what_its_list_is_read_from(tmp_path: Path) -> None:
    async with bench(tmp_path, LISTED) as one:
        run = await one.start("listed")
        await one.after(31)
        await one.signal("listed", "rooms", {"rooms": ["kitchen", "bad"]})
        assert await one.statuses(run) == {
            "gate": "failed",
            "fetch": "succeeded",
            "send[0]": "succeeded",
            "send[1]": "failed",
        }
        await one.engine.retry(run, by="test")
        await one.quiet()
        await one.signal("listed", "gate", {})
        await one.signal("listed", "rooms", {"rooms": ["hall"]})
        assert await one.statuses(run) == {"gate": "succeeded", "fetch": "succeeded", "send[0]": "succeeded"}
        assert await one.status(run) == "succeeded"


async def test_each_element_has_a_wait_of_its_own(one: Bench) -> None:
    run = await one.start("waits")
    assert await one.status(run) == "suspended"
    assert (await one.view(run))["jobs"][0]["status"] == "suspended"
    for name, text in (("ask[1]", "second"), ("ask[0]", "first")):
        wait = (await one.steps(run))[name]["wait"]
        assert isinstance(await one.engine.signal_wait(wait, request({"said": text})), Taken)
        await one.quiet()
    assert await one.status(run) == "succeeded"
    _, said = one.sent.commands[-1]
    assert [each["payload"]["said"] for each in said["answers"]] == ["first", "second"]


# -- deeds beside waits --------------------------------------------------------------------------------------

BESIDE = f"""
name: beside
inputs: {{ type: object }}
jobs:
  - name: main
    steps:
      - name: work
        task: {{ type: shell, run: ["{sys.executable}", -c, "${{{{ inputs.script }}}}"] }}
      - name: answer
        task: {{ type: wait_for_signal, key: answer, timeout: 60 }}
      - name: told
        dependsOn: [ {{ step: answer }} ]
        task: {{ type: publish, topic: told, payload: {{}} }}
"""
UNTIL_FILE = "import os,time\nwhile not os.path.exists({path!r}): time.sleep(0.01)"


async def test_a_signal_is_applied_while_another_step_still_works(tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    async with bench(tmp_path, BESIDE) as one:
        told = asyncio.Event()
        real = one.sent.publish

        async def publish(topic: str, payload: bytes, whose: Whose) -> int:
            told.set()
            return await real(topic, payload, whose)

        one.sent.publish = publish  # type: ignore[method-assign]
        run = await one.begin("beside", script=UNTIL_FILE.format(path=str(stop)))
        await until(one, run, "answer", "running")
        assert isinstance(await one.engine.signal_key("beside", "answer", request({})), Taken)
        await asyncio.wait_for(told.wait(), 10)
        assert (await one.statuses(run))["work"] == "running"
        assert "suspended" not in await one.kinds(run)
        stop.touch()
        await one.quiet()
        assert await one.status(run) == "succeeded"


async def test_cancelling_a_run_stops_what_it_runs(tmp_path: Path) -> None:
    async with bench(tmp_path, BESIDE) as one:
        run = await one.begin("beside", script=UNTIL_FILE.format(path=str(tmp_path / "never")))
        await until(one, run, "work", "running")
        await until(one, run, "answer", "running")
        await one.engine.cancel(run, by="test")
        await one.quiet()
        assert await one.status(run) == "cancelled"
        assert set((await one.statuses(run)).values()) == {"cancelled"}
        assert await one.keys("driving/") == []
        assert await one.keys("ready/") == []
        assert await one.keys("waits/") == []
        await one.after(120)
        assert await one.keys("due/") == []


async def test_a_run_whose_steps_work_cannot_be_retried_under_them(tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    async with bench(tmp_path, BESIDE) as one:
        run = await one.begin("beside", script=UNTIL_FILE.format(path=str(stop)))
        await until(one, run, "work", "running")
        with pytest.raises(Conflict, match="under way"):
            await one.engine.retry(run, step="answer", by="test")
        stop.touch()
        await one.engine.signal_key("beside", "answer", request({}))
        await one.quiet()
        assert await one.status(run) in {"succeeded", "suspended"}


async def until(one: Bench, run: str, step: str, status: str) -> None:
    """Follow the run's log until a step stands so."""
    async with asyncio.timeout(20):
        while (await one.statuses(run)).get(step) != status:
            events = await one.engine.events(run)
            await one.engine.wait_change(run, events[-1]["seq"], 0.2)


# -- child runs ----------------------------------------------------------------------------------------------


async def child_of(one: Bench, parent: str) -> str:
    runs, _ = await one.engine.runs(workflow="child")
    (child,) = [run["run"] for run in runs if (await one.view(run["run"]))["parent"] == parent]
    return str(child)


async def test_a_workflow_step_waits_for_its_child_and_takes_its_end(one: Bench) -> None:
    parent = await one.start("parent", n=5)
    child = await child_of(one, parent)
    assert (await one.status(parent), await one.status(child)) == ("suspended", "suspended")
    await one.signal("child", "answer", {})
    assert (await one.status(child), await one.status(parent)) == ("succeeded", "succeeded")
    assert (await one.steps(parent))["child"]["outputs"] == {"run": child, "status": "succeeded"}
    await one.sweep()
    assert await one.keys("ready/") == []


async def test_a_failed_child_fails_the_step(one: Bench) -> None:
    parent = await one.start("parent", n=50)
    await one.signal("child", "answer", {})
    step = (await one.steps(parent))["child"]
    assert step["status"] == "failed"
    assert step["error"]["code"] == "task_failed"
    assert one.sent.commands == [("told", {"status": "failed"})]


async def test_a_cancelled_child_fails_the_step(one: Bench) -> None:
    parent = await one.start("parent", n=5)
    await one.engine.cancel(await child_of(one, parent), by="test")
    await one.quiet()
    assert (await one.statuses(parent))["child"] == "failed"
    assert await one.status(parent) == "succeeded"


async def test_cancelling_a_parent_cancels_its_child(one: Bench) -> None:
    parent = await one.start("parent", n=5)
    child = await child_of(one, parent)
    await one.engine.cancel(parent, by="test")
    await one.quiet()
    assert (await one.status(parent), await one.status(child)) == ("cancelled", "cancelled")
    await one.sweep()
    assert await one.keys("ready/") == []
    assert await one.keys("waits/") == []


async def test_retrying_a_step_cancels_the_child_that_it_waited_for_and_starts_another(one: Bench) -> None:
    parent = await one.start("parent", n=5)
    first = await child_of(one, parent)
    await one.engine.retry(parent, step="child", by="test")
    await one.quiet()
    runs, _ = await one.engine.runs(workflow="child")
    assert {run["run"]: run["status"] for run in runs} == {
        first: "cancelled",
        next(run["run"] for run in runs if run["run"] != first): "suspended",
    }
    await one.signal("child", "answer", {})
    assert await one.status(parent) == "succeeded"


async def test_inputs_that_the_child_refuses_fail_the_step_and_start_nothing(one: Bench) -> None:
    parent = await one.start("parent", n=500)
    step = (await one.steps(parent))["child"]
    assert step["error"] == {"code": "task_failed", "message": "the inputs of child are not valid: inputs/n: maximum"}
    assert await one.engine.runs(workflow="child") == ([], None)


@pytest.mark.parametrize("order", [["a"], "text", None, 5])
async def test_inputs_that_come_out_as_no_object_fail_the_step_and_start_nothing(tmp_path: Path, order: object) -> None:
    parent = PARENT.replace('{ n: "${{ inputs.n }}" }', '"${{ inputs.order }}"')
    async with bench(tmp_path, parent, CHILD) as one:
        run = await one.start("parent", order=order)
        step = (await one.steps(run))["child"]
        assert step["error"] == {"code": "task_failed", "message": "the inputs of child are not an object"}
        assert await one.status(run) == "succeeded"
        assert await one.engine.runs(workflow="child") == ([], None)
        assert await one.keys("waits/") == []


async def test_a_signal_cannot_stand_in_for_a_childs_end(one: Bench) -> None:
    parent = await one.start("parent", n=5)
    wait = (await one.steps(parent))["child"]["wait"]
    answer = await one.engine.signal_wait(wait, request({"run": "x", "status": "succeeded"}))
    assert isinstance(answer, InvalidPayload)
    assert await one.status(parent) == "suspended"


async def test_a_child_of_a_workflow_that_is_gone_fails_the_step(tmp_path: Path) -> None:
    async with bench(tmp_path, PARENT) as one:
        parent = await one.start("parent", n=5)
        assert (await one.steps(parent))["child"]["error"]["message"] == "there is no workflow child"


async def test_runs_that_start_themselves_end_at_a_depth(tmp_path: Path) -> None:
    text = PARENT.replace("name: parent", "name: child").replace("allowFailure: true", "allowFailure: false")
    async with bench(tmp_path, text) as one:
        await one.start("child", n=1)
        runs, _ = await one.engine.runs(limit=100)
        assert {run["status"] for run in runs} == {"failed"}
        assert len(runs) == 17


# -- taking up what an earlier driver left ---------------------------------------------------------------------

LEFT = """
name: left
inputs: { type: object }
jobs:
  - name: main
    steps:
      - name: once
        allowFailure: true
        task: { type: publish, topic: once, payload: {} }
      - name: again
        idempotent: true
        task: { type: publish, topic: again, payload: {} }
      - name: check
        task: { type: assert, that: "${{ inputs.ok }}", message: no }
      - name: keyed
        task: { type: wait_for_signal, key: answer, acceptEarly: 10, timeout: 60 }
      - name: keyless
        task: { type: wait_for_signal, timeout: 60 }
      - name: child
        task: { type: workflow, workflow: leaf, inputs: {} }
"""
LEAF = """
name: leaf
inputs: { type: object }
jobs: [ { name: main, steps: [ { name: leaf, task: { type: publish, topic: leaf, payload: {} } } ] } ]
"""


async def test_a_taken_over_run_enters_each_kind_of_step_again_as_it_may(tmp_path: Path) -> None:
    async with bench(tmp_path, LEFT, LEAF) as whole:
        done = await whole.start("left", ok=True)
        records = await whole.store.list(f"runs/{done}/")
        kinds = [(await whole.engine.events(done))[at]["event"] for at in range(len(records))]
    started = [at for at, kind in enumerate(kinds) if kind in {"created", "resumed", "step_started", "opening"}]
    async with bench(tmp_path / "second", LEFT, LEAF, label="second") as one:
        for number, at in enumerate(started[: kinds.index("suspended")], start=1):
            event = records[at]
            value = event.value.replace(event.key.encode(), f"runs/{done}/{number:012d}".encode())
            await one.store.create(f"runs/{done}/{number:012d}", value)
        before = await one.statuses(done)
        assert set(before.values()) == {"running"}
        await one.store.create(f"driving/dead/{done}/nonce", b"")
        instance = (await one.engine.events(done))[1]["instance"]
        one.engine._dead[instance] = True
        one.engine.drivers.take_over(done, frozenset({instance}))
        await one.quiet()
        after = await one.steps(done)
        assert {name: step["status"] for name, step in after.items()} == {
            "once": "failed",
            "again": "succeeded",
            "check": "succeeded",
            "keyed": "suspended",
            "keyless": "suspended",
            "child": "succeeded",
        }
        assert after["once"]["error"]["code"] == "step_interrupted"
        assert sorted(topic for topic, _ in one.sent.commands) == ["again", "leaf"]
        assert await one.kinds(done) != kinds
        await one.signal("left", "answer", {})
        await one.engine.signal_wait(after["keyless"]["wait"], request({}))
        await one.quiet()
        assert await one.status(done) == "succeeded"


async def test_a_child_that_ended_and_was_removed_is_not_run_again_by_a_later_driver(tmp_path: Path) -> None:
    async with bench(tmp_path, LEFT, LEAF) as one:
        run = await one.start("left", ok=True)
        runs, _ = await one.engine.runs(workflow="leaf")
        await one.engine.delete(runs[0]["run"], by="test")
        await one.after(600)
        assert await one.keys(f"runs/{runs[0]['run']}/") == []
        # The log is cut back to where the child had been opened: its end is stored, but not applied.
        events = await one.engine.events(run)
        cut = next(each["seq"] for each in events if each["event"] == "opening" and each["step"] == "child")
        await one.store.delete([f"runs/{run}/{each['seq']:012d}" for each in events if each["seq"] > cut])
        one.sent.commands.clear()
        one.engine.drivers.take_over(run, frozenset({one.engine.instance}))
        await one.quiet()
        assert (await one.statuses(run))["child"] == "succeeded"
        assert ("leaf", {}) not in one.sent.commands


async def test_a_child_whose_parent_was_cancelled_before_it_began_never_begins(one: Bench) -> None:
    parent = await one.start("parent", n=5)
    child = await child_of(one, parent)
    await one.engine.cancel(parent, by="test")
    await one.quiet()
    # As if the canceller had looked before the child was created: its log begins again, with nothing done yet.
    events = await one.store.list(f"runs/{child}/")
    await one.store.delete([record.key for record in events[1:]])
    one.engine.drivers.go_on(child)
    await one.quiet()
    assert await one.kinds(child) == ["created", "resumed", "run_cancelled"]


async def test_a_driver_that_finds_anothers_event_stops(tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    async with bench(tmp_path, BESIDE) as one:
        run = await one.begin("beside", script=UNTIL_FILE.format(path=str(stop)))
        await until(one, run, "work", "running")
        await until(one, run, "answer", "running")
        from engine.records import Resumed

        seq = (await one.engine.events(run))[-1]["seq"] + 1
        await one.store.create(*encode(Resumed(at=f"runs/{run}/{seq:012d}", nonce="other", instance="other")))
        one.engine.drivers.poke(run)
        await one.quiet()
        assert (await one.kinds(run))[-1] == "resumed"
        assert await one.keys(f"driving/{one.engine.instance}/") == []
