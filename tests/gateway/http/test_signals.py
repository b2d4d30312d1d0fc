"""Proves what a sender is told over HTTP: the same for delivered and held, only what it may know, and never a value."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator

import httpx
import pytest

from tests.gateway.http.conftest import Door

KEY = "/api/v1/signals/front-door/verdict"
KNOWN = b'{"who":"known"}'
MARKER = "marker-5d21"


def shape(answer: httpx.Response) -> tuple[int, list[tuple[str, str]], str]:
    """An answer with its ids and times made equal: what is left may not differ."""
    text = re.sub(r'"(receipt|at)":"[^"]*"', r'"\1":"…"', answer.text)
    return answer.status_code, list(answer.headers.items()), text


async def test_a_held_and_a_delivered_signal_are_answered_alike_to_who_may_only_signal(door: Door) -> None:
    async with await door.device("signal:front-door/verdict") as camera:
        held = await camera.post(KEY, content=KNOWN)
        await door.start()  # takes the held one
        run = await door.start()
        delivered = await camera.post(KEY, content=KNOWN)
    await door.services.engine.settled(run)
    assert held.status_code == 202
    assert shape(held) == shape(delivered)
    assert list(held.json()) == ["v", "ok", "code", "id", "receipt", "at"]
    shown = await door.services.engine.run(run)
    assert shown["jobs"][0]["steps"][0]["outputs"]["receipt"] == delivered.json()["receipt"]


async def test_a_reader_is_told_the_state_and_where_the_signal_went(door: Door) -> None:
    async with await door.device("signal:front-door", "read:front-door") as camera:
        held = (await camera.post(KEY, content=KNOWN)).json()
        await door.start()
        run = await door.start()
        delivered = (await camera.post(KEY, content=KNOWN)).json()
    assert held["state"] == "held"
    assert held["held_until"] > held["at"]
    assert (delivered["state"], delivered["run"], delivered["job"], delivered["step"]) == (
        "delivered",
        run,
        "main",
        "identify",
    )


async def test_a_repeat_under_the_same_key_is_one_signal_and_another_payload_under_it_is_refused(door: Door) -> None:
    async with await door.device("signal:front-door", "read:front-door") as camera:
        first = await camera.post(KEY, content=KNOWN, headers={"Idempotency-Key": "s-1"})
        again = await camera.post(KEY, content=KNOWN, headers={"Idempotency-Key": "s-1"})
        other = await camera.post(KEY, content=b'{"who":"intruder"}', headers={"Idempotency-Key": "s-1"})
    assert first.json()["receipt"] == again.json()["receipt"]
    assert (first.json()["duplicate"], again.json()["duplicate"]) == (False, True)
    assert (first.json()["id"], other.status_code, other.json()["error"]) == ("s-1", 422, "signal_id_reused")


async def test_what_is_unknown_undeclared_and_not_granted_gets_one_answer(door: Door) -> None:
    async with await door.device("signal:front-door/verdict", "signal:nowhere", "signal:front-door/nothing") as camera:
        answers = [
            await camera.post(f"/api/v1/signals/{path}", content=KNOWN)
            for path in ("nowhere/verdict", "front-door/nothing", "front-door/strict", "quick/verdict")
        ]
        unknown_wait = await camera.post(f"/api/v1/waits/{'a' * 26}/signal", content=KNOWN)
    assert [shape(answer) for answer in answers] == [shape(unknown_wait)] * 4
    assert unknown_wait.status_code == 404
    assert unknown_wait.json()["type"] == "not_found"
    assert unknown_wait.headers["content-type"] == "application/problem+json"


async def test_a_missing_grant_is_answered_before_the_payload_is_looked_at(door: Door) -> None:
    async with await door.device("signal:front-door/strict") as camera:
        for body in (b"not json", b"x" * 20_000):
            assert (await camera.post(KEY, content=body)).json()["error"] == "not_found"


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        (f'{{"who":"{MARKER}"}}'.encode(), 422, "invalid_payload"),
        (f'{{"{MARKER}":1}}'.encode(), 422, "invalid_payload"),
        (f'{{"who":"{MARKER}"'.encode(), 400, "bad_payload"),
        (f'["{MARKER}"]'.encode(), 400, "bad_payload"),
        (b"", 400, "bad_payload"),
        (f'{{"who":"{MARKER * 2000}"}}'.encode(), 413, "payload_too_large"),
    ],
)
async def test_a_refusal_names_the_rule_and_never_the_value(door: Door, body: bytes, status: int, error: str) -> None:
    async with await door.device("signal:front-door/verdict") as camera:
        answer = await camera.post(KEY, content=body)
    document = answer.json()
    assert (answer.status_code, document["status"], document["code"]) == (status, status, status)
    assert (document["type"], document["error"], document["ok"]) == (error, error, False)
    assert MARKER not in answer.text
    assert (await door.services.engine.waits())["pending"] == []


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_payload_over_the_limit_is_answered_with_the_limit_and_the_size(door: Door, *, chunked: bool) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield b" " * 4096

    async with await door.device("signal:front-door/verdict") as camera:
        content = pieces() if chunked else b" " * 5 * 4096
        answer = await camera.post(KEY, content=content)
    assert (answer.status_code, answer.json()["max_bytes"], answer.json()["bytes"]) == (413, 16_384, 20_480)


async def test_a_payload_of_exactly_the_limit_is_read(door: Door) -> None:
    body = json.dumps({"who": "known"}).encode()
    async with await door.device("signal:front-door/verdict") as camera:
        answer = await camera.post(KEY, content=body.ljust(16_384))
    assert answer.status_code == 202


async def test_without_an_open_wait_and_without_early_signals_nothing_is_stored(door: Door) -> None:
    async with await door.device("signal:front-door") as camera:
        answer = await camera.post("/api/v1/signals/front-door/strict", content=b"{}")
    assert (answer.status_code, answer.json()["error"]) == (409, "no_open_wait")


async def test_over_its_rate_a_device_is_told_when_to_come_back(door: Door) -> None:
    async with await door.device("signal:front-door") as camera:
        answers = [await camera.post("/api/v1/signals/front-door/strict", content=b"{}") for _ in range(25)]
    limited = [answer for answer in answers if answer.status_code == 429]
    assert limited
    assert limited[0].json()["limit"] == "signals"
    assert limited[0].json()["retry_after_ms"] > 0
    assert int(limited[0].headers["retry-after"]) >= 1


async def test_a_wait_can_be_signalled_by_its_id_once(door: Door) -> None:
    await door.start()
    wait = (await door.services.engine.waits())["waits"][0]["wait"]
    async with await door.device("signal:front-door/verdict") as camera:
        first = await camera.post(f"/api/v1/waits/{wait}/signal", content=KNOWN)
        second = await camera.post(f"/api/v1/waits/{wait}/signal", content=KNOWN)
    assert (first.status_code, second.status_code, second.json()["error"]) == (202, 409, "already_settled")


async def test_an_operator_signals_with_the_right_to_and_not_without(door: Door) -> None:
    async with await door.operator("signal") as may, await door.operator("read", name="reader") as may_not:
        assert (await may.post(KEY, content=KNOWN)).status_code == 202
        assert (await may_not.post(KEY, content=KNOWN)).status_code == 404


async def test_a_signal_id_that_is_none_is_refused(door: Door) -> None:
    async with await door.device("signal:front-door") as camera:
        answer = await camera.post(KEY, content=KNOWN, headers={"Idempotency-Key": "a b/c"})
    assert (answer.status_code, answer.json()["error"]) == (400, "bad_topic")
    assert (await door.services.engine.waits())["pending"] == []
