"""Proves the commands' words: options, JSON shapes, exit statuses; the same with a gateway, and without one."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Serving, start, typed, wayside

RECEIPT = re.compile(r"[a-z0-9]{26}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


SLOW = """\
name: slow
jobs:
  - name: main
    steps:
      - name: nap
        task: { type: shell, run: [sleep, "30"] }
"""
SKIPS = """\
name: skips
jobs:
  - name: main
    steps:
      - name: done
        guard: ${{ true }}
        task: { type: shell, run: ["true"] }
      - name: sorry
        dependsOn: [{ step: done, condition: { type: failed } }]
        task: { type: shell, run: ["true"] }
"""


async def run(data: Path, *arguments: str, status: int | None = 0) -> Any:
    return await wayside(*arguments, "--data", str(data), status=status)


async def test_without_a_gateway_a_run_is_driven_by_the_command_until_it_suspends(data: Path) -> None:
    started = (await run(data, "workflow", "run", "front-door", "--json")).json
    assert list(started) == ["run"]
    shown = (await run(data, "run", "show", started["run"], "--json")).json
    assert (shown["run"], shown["workflow"], shown["status"]) == (started["run"], "front-door", "suspended")
    waits = (await run(data, "waits", "--json")).json
    (wait,) = waits["waits"]
    repeated = [await run(data, "signal", "--wait", "a" * 26, "{}", status=1), await run(data, "audit", "--json")]
    (refused,) = [it for it in repeated[1].lines if it["action"] == "signal.refused"]
    assert (refused["door"], refused.get("address", "")) == ("cli", "")
    assert {"wait", "workflow", "key", "run", "step", "deadline"} <= set(wait)
    assert (wait["key"], wait["run"], waits["pending"]) == ("kitchen-verdict", started["run"], [])
    answer = (await run(data, "signal", "front-door", "kitchen-verdict", '{"verdict": "intruder"}', "--json")).json
    assert (answer["ok"], answer["code"], answer["state"]) == (True, 202, "delivered")
    assert (await run(data, "run", "show", started["run"], "--json")).json["status"] == "succeeded"


async def test_without_a_gateway_the_runs_id_is_printed_before_it_is_driven(data: Path) -> None:
    (data / "workflows" / "slow.yaml").write_text(SLOW)
    process = await start("workflow", "run", "slow", "--json", "--data", str(data))
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), 30)
    assert RECEIPT.search(line.decode())
    assert process.returncode is None
    process.kill()
    await process.wait()


async def test_an_early_signal_is_held_and_taken_without_suspending_with_no_gateway_at_all(data: Path) -> None:
    held = (await run(data, "signal", "front-door", "kitchen-verdict", '{"verdict": "known"}', "--json")).json
    assert (held["state"], TIME.fullmatch(held["held_until"]) is not None) == ("held", True)
    pending = (await run(data, "waits", "--json")).json["pending"]
    assert [{name: it[name] for name in ("workflow", "key", "receipt")} for it in pending] == [
        {"workflow": "front-door", "key": "kitchen-verdict", "receipt": held["receipt"]}
    ]
    assert TIME.fullmatch(pending[0]["until"])
    started = (await run(data, "workflow", "run", "front-door", "--json")).json["run"]
    shown = (await run(data, "run", "show", started, "--events", "--json")).json
    assert shown["status"] == "succeeded"
    assert "suspended" not in {event["event"] for event in shown["events"]}
    assert shown["jobs"][0]["steps"][0]["outputs"] == {"payload": {"verdict": "known"}, "receipt": held["receipt"]}


async def test_every_command_has_its_json_shape(gateway: Serving) -> None:
    started = (await gateway.json("workflow", "run", "batch", "--input", 'names=["a","b","c"]'))["run"]
    followed = await gateway.run("run", "follow", started, "--json", status=1)
    assert [event["seq"] for event in followed.lines] == list(range(1, len(followed.lines) + 1))
    shown = await gateway.json("run", "show", started, "--events")
    (job,) = shown["jobs"]
    assert {"name", "status", "steps"} <= set(job)
    assert [step["name"] for step in job["steps"]] == ["greet[0]", "greet[1]", "greet[2]", "judge"]
    assert all({"name", "status", "outputs", "error"} <= set(step) for step in job["steps"])
    assert job["steps"][3]["error"] == {"code": "task_failed", "message": job["steps"][3]["error"]["message"]}
    assert job["steps"][0]["error"] is None
    assert shown["events"] == followed.lines
    listed = await gateway.json("run", "list", "--workflow", "batch", "--status", "failed")
    assert [it["run"] for it in listed["runs"]] == [started]
    workflows = await gateway.json("workflow", "list")
    assert [it["name"] for it in workflows["workflows"]] == ["batch", "front-door"]
    assert (await gateway.json("workflow", "validate"))["ok"] is True
    audit = await gateway.run("audit", "--json", "--workflow", "batch")
    assert {"time", "action", "result", "principal"} <= set(audit.lines[0])
    assert {event["workflow"] for event in audit.lines} == {"batch"}
    doctor = await gateway.json("doctor")
    assert doctor["ok"] is True


async def test_a_device_is_kept_by_its_commands(gateway: Serving) -> None:
    added = await gateway.told("device", "add", "camera", "--grant", "signal:front-door/kitchen-verdict")
    assert added == {"device": "camera", "token": added["token"]}
    assert (await gateway.told("device", "grant", "camera", "read:front-door"))["grants"][-1] == "read:front-door"
    assert len((await gateway.told("device", "ungrant", "camera", "read:front-door"))["grants"]) == 1
    rotated = await gateway.told("device", "rotate", "camera")
    assert rotated["token"] != added["token"]
    assert (await gateway.told("device", "show", "camera"))["tokens"] == 2
    assert (await gateway.told("device", "rotate", "camera", "--finish"))["tokens"] == 1
    assert (await gateway.told("device", "disable", "camera"))["state"] == "disabled"
    assert (await gateway.told("device", "enable", "camera"))["state"] == "active"
    assert (await gateway.told("device", "revoke", "camera"))["tokens"] == 0
    assert (await gateway.told("device", "delete", "camera"))["state"] == "deleted"
    assert await gateway.told("device", "list") == {"devices": []}


async def test_a_grant_that_names_nothing_is_given_and_doubted_aloud(gateway: Serving) -> None:
    grants = (
        "signal:front-dor/verdict",
        "signal:front-door/verdict",
        "signal:front-door/kitchen-verdict",
        "signal:*/*",
    )
    options = [word for grant in grants for word in ("--grant", grant)]
    added = await gateway.typed("device", "add", "camera", *options, "--json")
    assert [line.split()[1] for line in added.err.splitlines()] == [f"{grants[0]}:", f"{grants[1]}:"]
    assert added.json["device"] == "camera"
    given = await gateway.typed("device", "grant", "camera", "run:front-dor")
    assert "there is no workflow front-dor" in given.err


async def test_a_run_is_cancelled_retried_and_removed_by_its_commands(gateway: Serving) -> None:
    started = (await gateway.told("workflow", "run", "front-door"))["run"]
    assert (await gateway.typed("run", "delete", started, status=1)).err.startswith("error:")
    await gateway.typed("run", "resume", started)
    await gateway.typed("run", "cancel", started)
    assert (await gateway.told("run", "show", started))["status"] == "cancelled"
    failed = (await gateway.told("workflow", "run", "batch", "--input", "names=[1,2,3]"))["run"]
    await gateway.typed("run", "follow", failed, status=1)
    await gateway.typed("run", "retry", failed, "--from", "judge")
    await gateway.typed("run", "follow", failed, status=1)
    assert (await gateway.told("run", "show", failed))["jobs"][0]["steps"][3]["attempt"] == 2
    await gateway.typed("run", "delete", failed)
    assert (await gateway.told("run", "gc", "--older-than", "30d")) == {"runs": []}


async def test_a_run_says_why_a_step_was_skipped(data: Path) -> None:
    (data / "workflows" / "skips.yaml").write_text(SKIPS)
    started = (await run(data, "workflow", "run", "skips", "--json")).json["run"]
    shown = (await run(data, "run", "show", started)).out
    assert [line.split("\t")[-1] for line in shown.splitlines()[-2:]] == [
        "its guard is true",
        "what it depends on ended otherwise",
    ]


async def test_a_wait_is_signalled_by_its_id_and_a_repeat_counts_once(gateway: Serving) -> None:
    await gateway.typed("workflow", "run", "front-door")
    async with asyncio.timeout(30):
        while not (waits := (await gateway.told("waits"))["waits"]):
            pass
    arguments = ("signal", "--wait", waits[0]["wait"], '{"verdict": "known"}', "--id", "one")
    first, again = await gateway.told(*arguments), await gateway.told(*arguments)
    assert (first["receipt"], first["duplicate"], again["duplicate"]) == (again["receipt"], False, True)
    piped = await gateway.run("signal", "front-door", "kitchen-verdict", "-", given=b'{"verdict": "known"}')
    assert "held" in piped.out


async def test_a_refusal_exits_one_and_says_why_on_standard_error(gateway: Serving) -> None:
    arguments = ("signal", "front-door", "kitchen-verdict", '{"verdict": "nobody"}')
    in_words = await gateway.run(*arguments, status=1)
    as_json = await gateway.typed(*arguments, "--json", status=1)
    assert (in_words.out, as_json.out) == ("", "")
    assert "/verdict" in in_words.err
    assert '"error": "invalid_payload"' in as_json.err
    assert "unexpected character at byte 1" in (await gateway.typed(*arguments[:3], "{bad", status=1)).err
    for missing in (("run", "show", "a" * 26), ("workflow", "run", "nowhere"), ("device", "show", "nobody")):
        ran = await gateway.typed(*missing, status=1)
        assert ran.err.startswith("error:")


@pytest.mark.parametrize(
    "arguments",
    [
        ("bogus",),
        ("run", "bogus"),
        ("run", "show"),
        ("run", "list", "--nothing"),
        ("run", "list", "--limit", "many"),
        ("run", "gc", "--older-than", "soon"),
        ("workflow", "run", "front-door", "--input", "camera"),
        ("signal", "front-door"),
        ("signal", "front-door", "key", "{}", "{}"),
        ("signal", "--wait", "that one", "{}"),
        ("signal", "front-door", "kitchen-verdict", "{}", "--id", "a b"),
        ("run", "show", "../waits"),
        ("run", "cancel", "latest"),
        ("device", "delete", "../operators/ann"),
        ("operator", "revoke", "Ann"),
        ("workflow", "show", "front door"),
        ("signal", "front-door", "a/b", "{}"),
        ("audit", "--since", "yesterday"),
        ("audit", "--receipt", "that one"),
        ("audit", "--run", "../waits"),
        ("run", "list", "--data"),
        ("run", "list", "--server", "http://127.0.0.1:1"),
    ],
)
async def test_wrong_usage_exits_two_and_says_what_would_do(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    ran = await typed(*arguments, status=2, WAYSIDE_DATA=str(tmp_path))
    assert ran.out == ""
    assert ran.err


async def test_wrong_usage_is_the_processs_own_exit_status() -> None:
    assert (await wayside("bogus", status=2)).err
    assert (await wayside("run", "list", "--data", status=2)).err


async def test_shared_options_may_stand_before_the_command_and_after_it(gateway: Serving) -> None:
    where = str(gateway.data)
    before = await typed("--json", "--data", where, "workflow", "list")
    after = await typed("workflow", "list", "--data", where, "--json")
    by_environment = await typed("workflow", "list", "--json", WAYSIDE_DATA=where)
    assert before.json == after.json == by_environment.json


async def test_a_remote_gateway_is_reached_with_a_token_from_a_file(gateway: Serving, tmp_path: Path) -> None:
    file = str(gateway.data / "admin.token")
    far = await wayside("workflow", "list", "--json", "--server", f"http://{gateway.http}", "--token-file", file)
    assert far.json == await gateway.told("workflow", "list")
    (tmp_path / "wrong").write_text("wsu_wrong")
    refused = await typed("run", "list", "--server", gateway.http, "--token-file", str(tmp_path / "wrong"), status=1)
    assert "token" in refused.err
    away = await typed("run", "list", "--server", "127.0.0.1:1", "--token-file", file, status=3)
    assert "did not answer" in away.err


async def test_a_definition_is_checked_without_a_gateway_and_without_a_directory(tmp_path: Path) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text("name: broken\njobs:\n  - name: main\n    steps:\n      - name: a\n        tsk: { type: shell }\n")
    ran = await wayside("workflow", "validate", str(file), status=1, WAYSIDE_DATA=str(tmp_path / "nothing"))
    assert "broken.yaml:6" in ran.out
    assert "task" in ran.out
    assert not (tmp_path / "nothing").exists()


async def test_looking_makes_no_directory_and_adding_a_device_does(tmp_path: Path) -> None:
    data = tmp_path / "data"
    ran = await run(data, "run", "list", status=1)
    assert "--data" in ran.err
    assert not data.exists()
    await run(data, "device", "add", "camera")
    assert data.is_dir()


async def test_a_rotation_says_which_tokens_work(gateway: Serving) -> None:
    await gateway.typed("device", "add", "camera")
    assert "Both tokens work until" in (await gateway.typed("device", "rotate", "camera")).err
    await gateway.typed("device", "revoke", "camera")
    again = (await gateway.typed("device", "rotate", "camera")).err
    assert "Both tokens" not in again
    assert "camera had no token: this one is its only one" in again


async def test_the_audit_log_is_followed_live(gateway: Serving) -> None:
    follower = await start("audit", "--follow", "--json", "--device", "camera", "--data", str(gateway.data))
    assert follower.stdout is not None
    try:
        await gateway.typed("device", "add", "camera")
        line = await asyncio.wait_for(follower.stdout.readline(), 30)
        assert b'"device.add"' in line
        await gateway.typed("device", "disable", "camera")
        line = await asyncio.wait_for(follower.stdout.readline(), 30)
        assert b'"device.disable"' in line
    finally:
        follower.kill()
        await follower.wait()


async def test_doctor_names_what_is_broken_and_how_to_repair_it(data: Path) -> None:
    await run(data, "device", "add", "camera")
    await asyncio.to_thread(data.chmod, 0o755)
    (data / "wayside.toml").write_text('mqqt = "127.0.0.1:1"\n')
    ran = await run(data, "doctor", status=1)
    assert f"chmod 700 {data}" in ran.out
    assert "did you mean mqtt?" in ran.out
    await asyncio.to_thread(data.chmod, 0o700)
    assert (await run(data, "doctor", "--json")).json["ok"] is True


async def test_doctor_names_a_damaged_store_once(data: Path) -> None:
    await run(data, "device", "add", "camera")
    (data / "wayside.db").write_bytes(b"no database" * 1_000)
    found = (await run(data, "doctor", "--json", status=1)).json["findings"]
    assert ["is not an SQLite database" in it["text"] for it in found if it["result"] == "failed"] == [True]


async def test_the_demonstration_goes_as_it_is_told() -> None:
    ran = await wayside("demo", "--json")
    assert ran.json["ok"] is True
    assert len(ran.json["scenes"]) == 4
    assert all(scene["checks"] for scene in ran.json["scenes"])
