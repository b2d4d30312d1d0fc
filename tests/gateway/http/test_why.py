"""Proves that the audit log answers "why did the alarm not go off?", for each of ten causes that are planted here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from devices import operations
from gateway.app import compose
from gateway.audit import Entry
from gateway.config import load
from gateway.http.app import create_app
from gateway.http.front import Front
from gateway.listener.port import Admitted, Denied, Published
from gateway.mqtt_door import MqttDoor
from tests.gateway.http.conftest import Door

ALARM = """\
name: alarm
inputs: {{ type: object, properties: {{ armed: {{ type: boolean }} }} }}
jobs:
  - name: main
    steps:
      - name: armed
        task: {{ type: assert, that: "${{{{ !has(inputs.armed) || inputs.armed }}}}", message: not armed }}
      - name: motion
        dependsOn: [{{ step: armed }}]
        task:
          type: wait_for_signal
          key: motion
          {options}
          schema: {{ type: object, required: [where], properties: {{ where: {{ enum: [hall, yard] }} }} }}
"""
GRANT = "signal:alarm/motion"
SECONDS = 30.0


@pytest.fixture
async def door(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Door]:
    options = getattr(request, "param", "timeout: 600")
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "alarm.yaml").write_text(ALARM.format(options=options))
    settings = load({"data": str(tmp_path), "store": "memory:"}, environment={}).settings

    async def ready() -> list[str]:
        return []

    async with compose(settings) as services:
        yield Door(services, Front(create_app(services), hosts=(), not_ready=ready))


def with_options(options: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("door", [options], indirect=True)


async def why(door: Door, about: str = "alarm/motion") -> dict[str, Any]:
    async with door.admin() as admin:
        answer = await admin.get("/api/v1/audit/why", params={"about": about})
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    times = [line["time"] for line in told["story"]]
    assert times == sorted(times)
    return told


def texts(told: dict[str, Any]) -> str:
    return "\n".join(line["text"] for line in told["story"])


async def send(client: httpx.AsyncClient, payload: str = '{"where": "hall"}', key: str = "motion") -> httpx.Response:
    return await client.post(f"/api/v1/signals/alarm/{key}", content=payload)


async def until(door: Door, action: str) -> None:
    """Return once an event of this kind is written down."""
    async with door.admin() as admin, asyncio.timeout(SECONDS):
        cursor: str | None = None
        while True:
            query = {"action": action, "wait": "5"} | ({"after": cursor} if cursor else {})
            page = (await admin.get("/api/v1/audit", params=query)).json()
            if page["events"]:
                return
            cursor = page["next"]


def mqtt(door: Door) -> MqttDoor:
    parts = door.services
    return MqttDoor(parts.deliver, parts.authority, parts.limits, parts.audit, parts.source)


async def connect(door: Door, token: str) -> Admitted | Denied:
    return await mqtt(door).connect(
        username="camera", password=token.encode(), certificate=None, client_id="c", address="192.0.2.1"
    )


async def test_the_schema_refused_the_signal(door: Door) -> None:
    run = await door.start("alarm")
    async with await door.device(GRANT) as camera:
        assert (await send(camera, '{"where": "cellar"}')).status_code == 422
    told = await why(door)
    assert [cause["cause"] for cause in told["causes"]] == ["refused_by_schema"]
    assert told["conclusion"] == (
        "Device:camera's signal to alarm/motion was refused: the step's schema refuses the payload."
    )
    assert f"step main.motion of run {run} began to wait for alarm/motion" in texts(told)
    assert "cellar" not in str(told)


async def test_the_device_has_no_grant(door: Door) -> None:
    await door.start("alarm")
    async with await door.device("signal:other/motion") as camera:
        assert (await send(camera)).status_code == 404
    told = await why(door)
    assert [cause["cause"] for cause in told["causes"]] == ["no_grant"]
    assert told["causes"][0]["hint"] == "`wayside device grant camera signal:alarm/motion`"


@with_options("timeout: 600\n          acceptEarly: 1")
async def test_the_early_signal_expired_before_a_wait_opened(door: Door) -> None:
    async with await door.device(GRANT) as camera:
        receipt = (await send(camera)).json()["receipt"]
    await until(door, "signal.expired")
    told = await why(door)
    assert "expired" in [cause["cause"] for cause in told["causes"]]
    assert "never_started" not in told["conclusion"]
    assert "was held, but no wait opened before it expired" in told["conclusion"]
    assert [cause["cause"] for cause in (await why(door, receipt))["causes"]] == ["expired"]


async def test_another_run_held_the_key(door: Door) -> None:
    first, second = await door.start("alarm"), await door.start("alarm")
    told = await why(door, second)
    assert told["kind"] == "run"
    held = next(cause for cause in told["causes"] if cause["cause"] == "key_held")
    assert held["text"] == (
        f"step main.motion of run {second} could not wait for alarm/motion: run {first} held the key"
    )


async def test_the_device_was_revoked(door: Door) -> None:
    registry = door.services.registry
    token = (await operations.add(registry, "camera", grants=[GRANT], by="user:test")).token
    await door.start("alarm")
    await operations.revoke(registry, "camera", by="user:mallory")
    assert isinstance(await connect(door, token), Denied)
    told = await why(door)
    assert told["causes"][0]["cause"] == "revoked"
    assert told["conclusion"].startswith("All tokens of device:camera were revoked by user:mallory.")
    assert "device:camera was not let in by MQTT: wrong name or token" in texts(told)
    await operations.rotate(registry, "camera", by="user:test")
    assert "revoked" not in [cause["cause"] for cause in (await why(door))["causes"]]


@with_options("timeout: 1")
async def test_the_wait_timed_out_before_the_signal_came(door: Door) -> None:
    run = await door.start("alarm")
    await until(door, "wait.settled")
    async with await door.device(GRANT) as camera:
        assert (await send(camera)).status_code == 409
    told = await why(door)
    causes = [cause["cause"] for cause in told["causes"]]
    assert causes[0] == "no_open_wait"
    assert "timed_out" in causes
    told = await why(door, run)
    assert "timed_out" in [cause["cause"] for cause in told["causes"]]
    assert f"the wait of step main.motion of run {run} for alarm/motion ended without a signal" in texts(told)


async def test_the_device_published_to_a_wrong_topic(door: Door) -> None:
    token = (await operations.add(door.services.registry, "camera", grants=[GRANT], by="user:test")).token
    await door.start("alarm")
    who = await connect(door, token)
    assert isinstance(who, Admitted)
    await mqtt(door).publish(who, Published("signal/alarm/motion", b"{}", 1), address="192.0.2.1")
    told = await why(door)
    assert told["causes"][0]["cause"] == "wrong_topic"
    assert told["conclusion"] == "Device:camera published to a topic that means nothing here."
    assert told["causes"][0]["hint"] == "the topic is signals/<workflow>/<key>"


async def test_the_device_named_another_key(door: Door) -> None:
    await door.start("alarm")
    async with await door.device(GRANT) as camera:
        assert (await send(camera, key="motoin")).status_code == 404
    told = await why(door)
    assert told["conclusion"] == "Device:camera signalled alarm/motoin, not alarm/motion."


async def test_a_key_that_the_workflow_does_not_have_is_said_to_be_none(door: Door) -> None:
    await door.start("alarm")
    async with door.admin() as admin:
        for about, hint in (
            ("alarm/motoin", "did you mean alarm/motion? its keys are: motion"),
            ("alarm/x", "its keys are: motion"),
        ):
            answer = await admin.get("/api/v1/audit/why", params={"about": about})
            assert answer.status_code == 404
            assert answer.json()["detail"] == f"the workflow alarm has no key {about.partition('/')[2]}"
            assert answer.json()["hint"] == hint


async def test_a_granted_signal_to_a_key_that_is_none_is_told_apart_from_one_without_a_grant(door: Door) -> None:
    async with await door.device("signal:alarm") as camera:
        assert (await send(camera, key="motoin")).status_code == 404
    async with await door.device(GRANT, name="bell") as bell:
        assert (await send(bell, key="motoin")).status_code == 404
    told = await why(door, "alarm/motoin")
    assert told["conclusion"].startswith("The workflow alarm has no key motoin.")
    assert told["causes"][0]["cause"] == "no_such_key"
    assert told["causes"][0]["hint"] == "did you mean alarm/motion? its keys are: motion"
    assert "device:camera's signal to alarm/motoin by HTTP was refused: there is no such key" in texts(told)
    assert "device:bell's signal to alarm/motoin by HTTP was refused: it has no grant for that" in texts(told)


async def test_the_device_was_over_its_rate(door: Door) -> None:
    async with await door.device(GRANT) as camera:
        answers = [(await send(camera, "{}")).status_code for _ in range(25)]
        assert answers[-1] == 429
    told = await why(door)
    assert told["causes"][0]["cause"] == "rate_limited"
    assert "it was over its rate of signals" in told["conclusion"]


async def test_the_run_failed_before_it_waited(door: Door) -> None:
    run = await door.start("alarm", armed=False)
    told = await why(door)
    assert told["causes"][0]["cause"] == "run_failed"
    assert told["conclusion"] == f"Run {run} of alarm failed."
    told = await why(door, run)
    assert "step main.armed failed (assertion_failed)" in texts(told) or "step main.armed failed" in texts(told)
    assert "step_failed" in [cause["cause"] for cause in told["causes"]]


async def test_a_signal_that_came_through_is_told_as_such(door: Door) -> None:
    run = await door.start("alarm")
    async with await door.device(GRANT) as camera:
        receipt = (await send(camera)).json()["receipt"]
    await door.services.engine.settled(run)
    for about in (receipt, run, "alarm/motion", "motion"):
        told = await why(door, about)
        assert told["causes"] == []
        assert told["conclusion"] == f"A signal did come through: step main.motion of run {run} had it."
    assert (await why(door, receipt))["kind"] == "receipt"
    assert "device:camera signalled alarm/motion by HTTP, and it was delivered" in texts(await why(door, run))


async def test_what_nothing_is_known_of_is_not_found(door: Door) -> None:
    async with door.admin() as admin:
        for about, status in (("0" * 26, 404), ("other/key", 404), ("No Key", 422), ("nobody", 422)):
            answer = await admin.get("/api/v1/audit/why", params={"about": about})
            assert answer.status_code == status, about
    assert (await why(door))["causes"][0]["cause"] == "never_started"


async def test_the_log_is_found_as_it_was_written(door: Door) -> None:
    await door.start("alarm")
    async with door.admin() as admin:
        found = (await admin.get("/api/v1/audit/verify")).json()
    assert found["ok"]
    assert found["events"] > 2
    assert found["flaws"] == []


async def test_edits_of_the_definition_are_in_the_story_of_its_keys(door: Door) -> None:
    for result in ("changed", "broken"):
        door.services.audit.add(Entry(action="config.workflow", result=result, workflow="front-door"))
    door.services.audit.add(Entry(action="config.workflow", result="changed", workflow="quick"))
    async with door.admin() as admin:
        told = (await admin.get("/api/v1/audit/why", params={"about": "front-door/verdict"})).json()
    assert [line["text"] for line in told["story"]] == [
        "the definition of front-door was changed",
        "the definition of front-door was edited and has problems; what was in force before stays",
    ]
