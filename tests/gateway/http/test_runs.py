"""Proves the life of a run over HTTP: start, look, follow, cancel, retry, remove; and paging."""

from __future__ import annotations

import asyncio

from tests.gateway.http.conftest import Door

RUNS = "/api/v1/runs"


async def test_a_run_is_started_shown_and_followed_to_its_end(door: Door) -> None:
    async with door.admin() as admin:
        started = await admin.post("/api/v1/workflows/quick/runs", json={"inputs": {"good": True}})
        run = started.json()["run"]
        await door.services.engine.settled(run)
        shown = (await admin.get(f"{RUNS}/{run}")).json()
        page = (await admin.get(f"{RUNS}/{run}/events")).json()
    assert started.status_code == 201
    assert (shown["run"], shown["workflow"], shown["status"], shown["by"]) == (run, "quick", "succeeded", "user:admin")
    (step,) = shown["jobs"][0]["steps"]
    assert (step["name"], step["status"], step["error"]) == ("check", "succeeded", None)
    assert page["ended"] is True
    assert page["events"][0]["event"] == "created"
    assert page["next"] == page["events"][-1]["seq"]


async def test_inputs_that_the_workflow_refuses_are_a_problem_with_places(door: Door) -> None:
    async with door.admin() as admin:
        answer = await admin.post("/api/v1/workflows/front-door/runs", json={"inputs": {"camera": 7}})
        unknown = await admin.post("/api/v1/workflows/nowhere/runs", json={})
        malformed = await admin.post("/api/v1/workflows/quick/runs", json={"inputs": [1], "other": 2})
    assert (answer.status_code, answer.json()["error"]) == (422, "invalid_payload")
    assert "camera" in str(answer.json()["problems"])
    assert unknown.status_code == 404
    assert [problem["pointer"] for problem in malformed.json()["problems"]] == ["/inputs", "/other"]


async def test_a_repeated_start_under_one_id_is_one_run(door: Door) -> None:
    async with door.admin() as admin:
        answers = [
            await admin.post(
                "/api/v1/workflows/quick/runs", json={"inputs": {"good": True}}, headers={"Idempotency-Key": "start-1"}
            )
            for _ in range(2)
        ]
        other = await admin.post(
            "/api/v1/workflows/quick/runs", json={"inputs": {"good": False}}, headers={"Idempotency-Key": "start-1"}
        )
        listed = (await admin.get(RUNS)).json()["runs"]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert (other.status_code, other.json()["error"]) == (422, "signal_id_reused")
    assert [run["run"] for run in listed] == [answers[0].json()["run"]] == [answers[1].json()["run"]]


async def test_waiting_for_events_ends_as_soon_as_there_is_one(door: Door) -> None:
    run = await door.start()
    async with door.admin() as admin, asyncio.timeout(20):
        last = (await admin.get(f"{RUNS}/{run}/events")).json()["next"]
        waiting = asyncio.create_task(admin.get(f"{RUNS}/{run}/events", params={"after": last, "wait": 60}))
        await asyncio.sleep(0)
        await admin.post(f"{RUNS}/{run}/cancel")
        page = (await waiting).json()
    assert page["events"]
    assert page["events"][0]["seq"] == last + 1


async def test_waiting_for_events_ends_when_the_gateway_stops(door: Door) -> None:
    run = await door.start()
    async with door.admin() as admin, asyncio.timeout(20):
        last = (await admin.get(f"{RUNS}/{run}/events")).json()["next"]
        waiting = asyncio.create_task(admin.get(f"{RUNS}/{run}/events", params={"after": last, "wait": 60}))
        await asyncio.sleep(0)
        door.services.stopping.set()
        assert (await waiting).json() == {"events": [], "next": last, "ended": False}


async def test_runs_are_listed_newest_first_in_pages(door: Door) -> None:
    runs = [await door.start("quick", good=True) for _ in range(5)]
    async with door.admin() as admin:
        first = (await admin.get(RUNS, params={"limit": 3})).json()
        second = (await admin.get(RUNS, params={"limit": 3, "after": first["next"]})).json()
        failed = (await admin.get(RUNS, params={"status": "failed"})).json()
    listed = [run["run"] for run in first["runs"] + second["runs"]]
    assert sorted(listed) == sorted(runs)
    assert listed == sorted(listed)  # an id begins with when it was made, the newest lowest
    assert (second["next"], failed["runs"]) == (None, [])


async def test_a_cancelled_run_closes_its_wait_and_cannot_be_cancelled_again(door: Door) -> None:
    run = await door.start()
    async with door.admin() as admin:
        first = await admin.post(f"{RUNS}/{run}/cancel")
        waits = (await admin.get("/api/v1/waits")).json()["waits"]
        again = await admin.post(f"{RUNS}/{run}/cancel")
        shown = (await admin.get(f"{RUNS}/{run}")).json()
    assert (first.status_code, waits, shown["status"]) == (200, [], "cancelled")
    assert (again.status_code, again.json()["error"]) == (409, "conflict")


async def test_a_failed_run_is_retried_from_a_step(door: Door) -> None:
    run = await door.start("quick", good=False)
    async with door.admin() as admin:
        before = (await admin.get(f"{RUNS}/{run}")).json()
        retried = await admin.post(f"{RUNS}/{run}/retry", json={"step": "check"})
        await door.services.engine.settled(run)
        after = (await admin.get(f"{RUNS}/{run}")).json()
        unknown = await admin.post(f"{RUNS}/{run}/retry", json={"step": "nothing"})
    assert before["jobs"][0]["steps"][0]["error"]["code"] == "task_failed"
    assert retried.status_code == 200
    assert after["jobs"][0]["steps"][0]["attempt"] == 2
    assert unknown.status_code in {404, 409, 422}


async def test_only_an_ended_run_is_removed(door: Door) -> None:
    open_run, ended_run = await door.start(), await door.start("quick", good=True)
    async with door.admin() as admin:
        refused = await admin.delete(f"{RUNS}/{open_run}")
        removed = await admin.delete(f"{RUNS}/{ended_run}")
        swept = await admin.post(f"{RUNS}/gc", json={"older_than_seconds": 3600})
        before_time = await admin.post(f"{RUNS}/gc", json={"older_than_seconds": 1e300})
    assert (before_time.status_code, before_time.json()["error"]) == (422, "bad_input")
    assert (refused.status_code, removed.status_code) == (409, 200)
    assert swept.json() == {"runs": []}


async def test_waits_show_what_is_open_and_what_is_held(door: Door) -> None:
    run = await door.start()
    async with door.admin() as admin:
        (wait,) = (await admin.get("/api/v1/waits", params={"workflow": "front-door"})).json()["waits"]
        assert (wait["workflow"], wait["key"], wait["run"], wait["step"]) == ("front-door", "verdict", run, "identify")
        assert wait["deadline"].endswith("Z")
        await admin.post(f"{RUNS}/{run}/cancel")
        receipt = (await admin.post("/api/v1/signals/front-door/verdict", json={"who": "known"})).json()["receipt"]
        (held,) = (await admin.get("/api/v1/waits")).json()["pending"]
        keys = (await admin.get("/api/v1/keys")).json()["keys"]
    assert (held["workflow"], held["key"], held["receipt"]) == ("front-door", "verdict", receipt)
    assert {key["key"] for key in keys} == {"verdict", "strict"}


async def test_an_edit_is_told_of_as_soon_as_it_is_written(door: Door) -> None:
    file = door.services.engine.catalog.directory / "quick.yaml"
    good = file.read_text()
    async with door.admin() as admin:
        for text, broken in ((good, False), (good.replace("jobs:", "jbos:"), True), (good, False)):
            file.write_text(text)
            listed = (await admin.get("/api/v1/workflows")).json()["workflows"]
            assert [bool(it["problems"]) for it in listed if it["name"] == "quick"] == [broken]
            assert bool((await admin.get("/api/v1/workflows/quick")).json()["problems"]) == broken
        (file.parent / "new.yaml").write_text(good.replace("name: quick", "name: new"))
        assert (await admin.get("/api/v1/workflows/new")).status_code == 200
        events = (await admin.get("/api/v1/audit", params={"action": "config.workflow"})).json()["events"]
    assert [(it["workflow"], it["result"]) for it in events] == [
        ("quick", "broken"),
        ("quick", "mended"),
        ("new", "added"),
    ]


async def test_definitions_are_shown_and_checked(door: Door) -> None:
    async with door.admin() as admin:
        shown = (await admin.get("/api/v1/workflows/front-door")).json()
        good = await admin.post("/api/v1/workflows/validate", content=b"name: x\njobs: []\nnonsense: 1\n")
        large = await admin.post("/api/v1/workflows/validate", content=b"#" * 300_000)
    assert shown["keys"] == ["verdict", "strict"]
    assert [step["type"] for step in shown["jobs"][0]["steps"]] == ["wait_for_signal"] * 2
    assert good.json()["ok"] is False
    assert all(problem["line"] > 0 for problem in good.json()["problems"])
    assert large.status_code == 413
