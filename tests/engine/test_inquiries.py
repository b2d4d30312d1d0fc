"""What is shown of runs, waits, held signals and keys is what is stored, page by page, and nothing that is gone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engine import inquiries
from engine.errors import NotFound
from engine.results import Taken
from tests.support.bench import Bench, bench, request

TEXT = """
name: door
inputs: { type: object }
jobs:
  - name: main
    steps:
      - name: look
        task: { type: wait_for_signal, key: verdict, acceptEarly: 30, timeout: 60 }
      - name: second
        dependsOn: [ { step: look } ]
        task: { type: wait_for_signal, key: other, timeout: 60 }
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


async def test_runs_are_listed_page_by_page_without_a_gap_or_a_repeat(one: Bench) -> None:
    made = {await one.start("flat") for _ in range(25)}
    seen: list[str] = []
    after: str | None = None
    while True:
        page, after = await one.engine.runs(limit=4, after=after)
        seen += [run["run"] for run in page]
        if after is None:
            break
    assert len(seen) == 25
    assert set(seen) == made
    assert seen == sorted(seen)


async def test_runs_are_listed_by_workflow_and_status(one: Bench) -> None:
    flat, door = await one.start("flat"), await one.start("door")
    assert [run["run"] for run in (await one.engine.runs(workflow="flat"))[0]] == [flat]
    assert [run["run"] for run in (await one.engine.runs(status="suspended"))[0]] == [door]
    assert await one.engine.runs(workflow="flat", status="suspended") == ([], None)


async def test_a_page_of_some_runs_is_full_while_more_follow(one: Bench) -> None:
    made = {name: {await one.start(name) for _ in range(5)} for name in ("flat", "door")}
    for filters in ({"workflow": "flat"}, {"readable": {"flat"}.__contains__}):
        first, after = await one.engine.runs(limit=4, **filters)
        assert (len(first), after) == (4, first[-1]["run"])
        second, after = await one.engine.runs(limit=4, after=after, **filters)
        assert (len(second), after) == (1, None)
        assert {run["run"] for run in first + second} == made["flat"]
        whole, after = await one.engine.runs(limit=5, **filters)
        assert (len(whole), after) == (5, None)


async def test_a_listing_looks_at_so_many_runs_and_says_where_to_go_on(
    one: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    door = await one.start("door")
    for _ in range(8):
        await one.start("flat")
    monkeypatch.setattr(inquiries, "_PAGE", 2)
    monkeypatch.setattr(inquiries, "RUNS_LOOKED_AT", 4)
    pages: list[list[str]] = []
    after: str | None = None
    while not pages or after:
        page, after = await one.engine.runs(workflow="door", after=after, limit=1)
        pages.append([run["run"] for run in page])
    assert len(pages) == 3
    assert [run for page in pages for run in page] == [door]


async def test_a_damaged_run_hides_no_other(one: Bench) -> None:
    run = await one.start("flat")
    await one.store.create("runs/" + "0" * 26 + "/000000000001", b"\xff")
    assert [each["run"] for each in (await one.engine.runs())[0]] == [run]


async def test_a_run_is_shown_with_its_jobs_steps_and_times(one: Bench) -> None:
    run = await one.start("door", camera="kitchen")
    view = await one.view(run)
    assert {
        name: view[name] for name in ("run", "workflow", "status", "created", "ended", "by", "inputs", "parent")
    } == {
        "run": run,
        "workflow": "door",
        "status": "suspended",
        "created": "2026-01-01T00:00:00.000Z",
        "ended": None,
        "by": "test",
        "inputs": {"camera": "kitchen"},
        "parent": None,
    }
    (job,) = view["jobs"]
    look, second = job["steps"]
    assert (job["name"], job["status"]) == ("main", "suspended")
    assert (look["name"], look["type"], look["status"], look["attempt"]) == ("look", "wait_for_signal", "suspended", 1)
    assert (look["outputs"], look["error"], look["ended"]) == (None, None, None)
    assert (second["status"], second["wait"], second["started"]) == ("pending", None, None)


async def test_events_are_shown_from_a_number_on_without_definition_or_inputs(one: Bench) -> None:
    run = await one.start("door", secret="x")
    events = await one.engine.events(run)
    assert [event["seq"] for event in events] == [1, 2, 3, 4]
    assert set(events[0]) == {"seq", "at", "event", "workflow", "by", "parent_run", "parent_wait", "depth"}
    assert [event["seq"] for event in await one.engine.events(run, after=2)] == [3, 4]
    assert await one.engine.events(run, after=4) == []
    with pytest.raises(NotFound):
        await one.engine.events("z" * 26)


@pytest.mark.parametrize("run", ["", "short", "../meta", "Z" * 26, "a" * 27])
async def test_what_is_no_runs_id_is_not_found(one: Bench, run: str) -> None:
    with pytest.raises(NotFound):
        await one.engine.run(run)


async def test_waits_show_what_is_open_and_nothing_that_is_settled(one: Bench) -> None:
    run = await one.start("door")
    (shown,) = (await one.engine.waits())["waits"]
    assert shown["deadline"] == "2026-01-01T00:01:00.000Z"
    assert shown["accept_early"] == 30
    await one.signal("door", "verdict", {})
    (shown,) = (await one.engine.waits())["waits"]
    assert (shown["run"], shown["step"], shown["key"]) == (run, "second", "other")
    await one.engine.cancel(run, by="test")
    assert (await one.engine.waits())["waits"] == []


async def test_a_held_signal_is_shown_until_it_expires_or_is_taken(one: Bench) -> None:
    held = await one.signal("door", "verdict", {}, device="porch")
    assert isinstance(held, Taken)
    (shown,) = (await one.engine.waits())["pending"]
    assert shown == {
        "workflow": "door",
        "key": "verdict",
        "receipt": held.receipt.id,
        "received": "2026-01-01T00:00:00.000Z",
        "until": "2026-01-01T00:00:30.000Z",
        "sender": "device:porch",
    }
    one.advance(30.1)
    assert (await one.engine.waits())["pending"] == []
    await one.signal("door", "verdict", {})
    assert len((await one.engine.waits())["pending"]) == 1
    await one.start("door")
    assert (await one.engine.waits())["pending"] == []


async def test_keys_show_their_holder_and_then_how_its_wait_was_settled(one: Bench) -> None:
    run = await one.start("door")
    verdict, other = await one.engine.keys("door")
    assert (verdict["key"], verdict["holder"]["run"], verdict["last"]) == ("verdict", run, None)
    assert (other["key"], other["holder"], other["last"]) == ("other", None, None)
    answer = await one.signal("door", "verdict", {})
    assert isinstance(answer, Taken)
    verdict, other = await one.engine.keys("door")
    assert (verdict["last"]["how"], verdict["last"]["receipt"]) == ("accepted", answer.receipt.id)
    assert other["holder"]["run"] == run
    assert await one.engine.keys("flat") == []


async def test_a_wait_is_known_by_its_id_to_those_who_may_signal_it(one: Bench) -> None:
    run = await one.start("door")
    wait = (await one.steps(run))["look"]["wait"]
    address = await one.engine.address_of(wait)
    assert address is not None
    assert (address.workflow, address.key) == ("door", "verdict")
    assert await one.engine.address_of("z" * 26) is None
    assert await one.engine.address_of("../../meta/format", request({})) is None
