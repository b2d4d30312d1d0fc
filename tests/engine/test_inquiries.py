"""What is shown of runs, waits, held signals and keys is what is stored, page by page, and nothing that is gone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from engine import inquiries, names
from engine.errors import NotFound, UnreadableRecord
from engine.names import Key
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
GATE = TEXT.replace("door", "gate").replace("key: other", "key: other, acceptEarly: 30")
VERDICT = Key("gate", "verdict")


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path, TEXT, FLAT, GATE) as made:
        yield made


async def replace(one: Bench, key: str, change: Callable[[bytes], bytes]) -> None:
    """Do what no part of the engine does: change a record."""
    record = await one.store.get(key)
    assert record is not None
    await one.store.delete([key])
    await one.store.create(key, change(record.value))


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


async def test_a_damaged_run_is_shown_as_such_and_hides_no_other(one: Bench) -> None:
    run, holed, refused = await one.start("door"), await one.start("flat"), await one.start("flat")
    lost = "0" * 26
    await one.store.create(names.event(lost, 1), b"\xff")
    await one.store.delete([names.event(holed, 2)])
    await replace(one, names.event(refused, 1), lambda value: value.replace(b'"publish"', b'"shout"'))
    shown = {each["run"]: (each["workflow"], each["status"], each["by"]) for each in (await one.engine.runs())[0]}
    assert shown == {
        run: ("door", "suspended", "test"),
        holed: ("flat", "damaged", "test"),
        refused: ("flat", "damaged", "test"),
        lost: ("", "damaged", ""),
    }
    assert {each["run"] for each in (await one.engine.runs(status="damaged", workflow="flat"))[0]} == {holed, refused}
    for damaged in (holed, refused, lost):
        with pytest.raises(UnreadableRecord):
            await one.engine.run(damaged)
    ended = await one.start("flat")
    assert await one.engine.gc(0, by="test") == [ended]


async def test_a_run_whose_log_is_removed_as_it_is_read_is_not_damaged(one: Bench) -> None:
    run = await one.start("flat")
    await one.store.delete([names.event(run, 2)])

    async def before(operation: str, key: str) -> None:
        if operation == "get" and key == names.event(run, 1):
            one.store.before_operation = None  # type: ignore[attr-defined]
            await one.store.delete([key])

    one.store.before_operation = before  # type: ignore[attr-defined]
    assert await one.engine.runs() == ([], None)


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


async def test_a_damaged_record_is_named_beside_the_waits_and_held_signals_that_can_be_read(one: Bench) -> None:
    run, other = await one.start("door"), await one.start("gate")
    await one.signal("gate", "other", {})
    lost = (await one.steps(run))["look"]["wait"]
    (held,) = await one.keys("early/")
    for key in (names.registration(lost), VERDICT.claim(1), held.replace("early/", "pending/")):
        await replace(one, key, lambda _: b"\xff")
    await one.store.create("early/rubbish", b"")
    shown = await one.engine.waits()
    assert [(wait["run"], wait["deadline"]) for wait in shown["waits"]] == [(other, "2026-01-01T00:01:00.000Z")]
    assert shown["pending"] == []
    assert shown["damaged"] == [
        {"record": VERDICT.claim(1), "workflow": "gate"},
        {"record": "early/rubbish", "workflow": ""},
        {"record": held.replace("early/", "pending/"), "workflow": "gate"},
        {"record": names.registration(lost), "workflow": ""},
    ]
    only = await one.engine.waits(workflow="door", key="verdict")
    assert [each["record"] for each in only["damaged"]] == ["early/rubbish", names.registration(lost)]


async def test_a_key_that_a_damaged_record_keeps_shut_is_shown_among_the_others(one: Bench) -> None:
    run = await one.start("door")
    await one.start("gate")
    await replace(one, VERDICT.claim(1), lambda _: b"\xff")
    shown = {(key["workflow"], key["key"]): key for key in await one.engine.keys()}
    assert shown["gate", "verdict"]["damaged"] == VERDICT.claim(1)
    assert (shown["door", "verdict"]["holder"]["run"], shown["door", "verdict"]["damaged"]) == (run, None)


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
