"""What a payload says stands in the records that hold the payload, and in no event, error, log line or key."""

from __future__ import annotations

import dataclasses
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from engine.errors import WaysideError
from engine.payload import PayloadProblem, parse_payload
from engine.results import InvalidPayload, Taken
from engine.store.memory import MemoryStore
from tests.support.bench import Bench, bench, request

MARKER = "zq7-marker"
NAME = "zq7-member"
# Where a payload may stand: a held signal, a wait's outcome, and the step's end that a run's log keeps of it.
HOLDERS = ("pending/", "outcomes/", "runs/")

TEXT = """
name: door
inputs: { type: object }
jobs:
  - name: main
    steps:
      - name: look
        allowFailure: true
        task:
          type: wait_for_signal
          key: verdict
          acceptEarly: 30
          timeout: 60
          schema:
            type: object
            required: [n]
            properties: { n: { type: integer, maximum: 9 }, word: { type: string } }
            additionalProperties: false
      - name: check
        allowFailure: true
        dependsOn: [ { step: look } ]
        task: { type: assert, that: "${{ steps.look.payload.word.size() > 1000 }}", message: the word is short }
      - name: broken
        allowFailure: true
        dependsOn: [ { step: look } ]
        task: { type: publish, topic: "${{ steps.look.payload.nothing }}", payload: {} }
      - name: bad-topic
        allowFailure: true
        dependsOn: [ { step: look } ]
        task: { type: publish, topic: "${{ steps.look.payload.word + '/#' }}", payload: {} }
      - name: bad-program
        allowFailure: true
        dependsOn: [ { step: look } ]
        task: { type: shell, run: ["false", "${{ steps.look.payload.word }}"] }
      - name: bad-request
        allowFailure: true
        dependsOn: [ { step: look } ]
        task: { type: http, url: "http://127.0.0.1:1/${{ steps.look.payload.word }}", timeout: 5 }
"""
TAKEN = {"n": 1, "word": MARKER}


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG)
    return caplog


def holds(text: str) -> bool:
    return MARKER in text or NAME in text


def check(one: Bench, answers: list[Any], logged: pytest.LogCaptureFixture) -> None:
    """Look everywhere."""
    assert isinstance(one.store, MemoryStore)
    holding = [record for record in one.store.items() if holds(record.value.decode())]
    assert holding
    for record in holding:
        assert record.key.startswith(HOLDERS), record.key
    assert not any(holds(record.key) for record in one.store.items())
    for record in holding:
        if record.key.startswith("runs/"):
            event = json.loads(record.value)
            assert event["type"] == "step_ended"
            assert not holds(json.dumps({**event, "outputs": None}))
    assert not holds(json.dumps([dataclasses.asdict(event) for event in one.heard.events]))
    assert not any(holds(repr(answer)) for answer in answers)
    for entry in logged.records:
        if entry.name.split(".")[0] not in {"httpcore", "httpx", "asyncio"}:  # a gateway keeps libraries at warnings
            assert not holds(entry.getMessage()), entry
            assert not holds(str(entry.exc_info))


async def test_accepted_early_refused_and_repeated_signals_leave_no_trace_of_what_they_say(
    tmp_path: Path, logged: pytest.LogCaptureFixture
) -> None:
    async with bench(tmp_path, TEXT) as one:
        answers: list[Any] = []
        for value in ({"n": MARKER}, {"n": 99, "word": MARKER}, {"n": 1, NAME: 1}, {"n": 1, "word": [MARKER]}):
            answers += [await one.signal("door", "verdict", value, signal_id=each) for each in (None, "refused")]
        assert all(isinstance(answer, InvalidPayload) for answer in answers)
        answers.append(await one.signal("door", "verdict", TAKEN, signal_id="early"))
        answers.append(await one.signal("door", "verdict", TAKEN, signal_id="early"))
        answers.append(await one.signal("door", "verdict", TAKEN, signal_id="second"))
        answers.append(await one.signal("door", "verdict", {**TAKEN, "n": 2}, signal_id="early"))
        early = await one.start("door")
        assert (await one.steps(early))["look"]["outputs"]["payload"] == TAKEN
        in_time = await one.start("door")
        for value in ({"n": MARKER}, {NAME: 1}):
            answers.append(await one.signal("door", "verdict", value))
        answers.append(await one.signal("door", "verdict", TAKEN, signal_id="in-time"))
        answers.append(await one.signal("door", "verdict", TAKEN, signal_id="in-time"))
        assert sum(isinstance(answer, Taken) for answer in answers) == 4
        statuses = await one.statuses(in_time)
        assert statuses["look"] == "succeeded"
        assert {statuses[name] for name in ("check", "broken", "bad-topic", "bad-program", "bad-request")} == {"failed"}
        await one.signal("door", "verdict", TAKEN, signal_id="nobody")
        await one.after(31)
        await one.after(1)
        assert len(one.heard.named("signal.expired")) == 1
        check(one, answers, logged)


async def test_damaged_records_are_told_of_without_what_they_hold(
    tmp_path: Path, logged: pytest.LogCaptureFixture
) -> None:
    async with bench(tmp_path, TEXT) as one:
        assert isinstance(one.store, MemoryStore)
        run = await one.start("door")
        await one.signal("door", "verdict", TAKEN)
        seq = (await one.engine.events(run))[-1]["seq"]
        for at, value in enumerate((b'{"v":1,"payload":"%s"' % MARKER.encode(), b'"%s"' % MARKER.encode())):
            await one.store.create(f"runs/{run}/{seq + 1 + at:012d}", value)
        await one.store.create(f"ready/{run}/-/n", b'{"event":"%s"}' % MARKER.encode())
        await one.store.create("claims/door/other/000000000001", b'{"type":"claim","schema":"%s"}' % MARKER.encode())
        errors: list[str] = []
        for call in (
            one.engine.run(run),
            one.engine.events(run),
            one.engine.resume(run),
            one.engine.retry(run, by="x"),
        ):
            try:
                await call
            except WaysideError as error:
                errors += [str(error), error.hint, repr(error.__cause__), repr(error.__context__)]
        await one.sweep()
        await one.quiet()
        assert len(errors) == 16
        assert not any(holds(text) for text in errors)
        assert not holds(json.dumps([dataclasses.asdict(event) for event in one.heard.events]))
        assert not any(holds(entry.getMessage()) for entry in logged.records)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"%s": "%s"' % (NAME.encode(), MARKER.encode()),
        b'{"%s": 1, "%s": 2}' % (NAME.encode(), NAME.encode()),
        b'"%s"' % MARKER.encode(),
        b'{"%s": NaN}' % NAME.encode(),
        b'{"a": "%s' % MARKER.encode() + b"x" * 20_000 + b'"}',
        b'{"a": "%s \xff"}' % MARKER.encode(),
        b'{"a": "%s \\ud800"}' % MARKER.encode(),
        b'{"%s": {"constructor": 1}}' % NAME.encode(),
    ],
)
def test_what_is_no_payload_is_refused_without_a_word_of_it(raw: bytes) -> None:
    problem = parse_payload(raw)
    assert isinstance(problem, PayloadProblem)
    assert not holds(repr(problem))


def test_a_request_does_not_show_its_payload() -> None:
    assert not holds(repr(request({NAME: MARKER})))
