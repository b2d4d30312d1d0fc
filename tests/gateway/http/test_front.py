"""Proves what stands before every route: the Host that is meant, the cap on bodies, health, faults that say nothing."""

from __future__ import annotations

import io
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
import structlog

from gateway import logs
from gateway.cli.client import Client
from gateway.http.front import MAX_BODY_BYTES, Front
from tests.gateway.http.conftest import Door

MARKER = "marker-91ce"


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    handlers = logging.getLogger().handlers[:]
    stream = io.StringIO()
    logs.configure(console=False, stream=stream)
    yield stream
    structlog.reset_defaults()
    logging.getLogger().handlers[:] = handlers


async def nothing_missing() -> list[str]:
    return []


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8080", "127.0.0.1:8080", "[::1]:8080", "192.168.1.7", "here.lan"]
)
async def test_an_address_and_a_known_name_are_answered(door: Door, host: str) -> None:
    front = Front(door.app._app, hosts=["here.lan"], not_ready=nothing_missing)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(front), base_url="http://x") as client:
        assert (await client.get("/healthz", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "", "127.0.0.1.evil.example:8080", "127.0.0.1:80.evil"]
)
async def test_another_name_may_be_a_trick_and_is_refused(door: Door, host: str) -> None:
    async with door.admin() as admin:
        answer = await admin.get("/api/v1/runs", headers={"Host": host})
    assert (answer.status_code, answer.json()["type"]) == (421, "misdirected_request")


async def test_a_page_of_another_origin_is_refused_and_one_of_the_same_is_not(door: Door) -> None:
    async with door.admin() as admin:
        same = await admin.get("/api/v1/runs", headers={"Origin": "http://localhost"})
        other = [
            await admin.get("/api/v1/runs", headers={"Origin": origin})
            for origin in ("http://evil.example", "null", "http://localhost:81", "http://[", "http://[::1")
        ]
    assert same.status_code == 200
    assert [answer.status_code for answer in other] == [403] * 5


async def test_health_takes_no_token_and_says_what_is_missing(door: Door) -> None:
    async def store_away() -> list[str]:
        return ["store"]

    front = Front(door.app._app, hosts=[], not_ready=store_away)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(front), base_url="http://localhost") as client:
        alive, ready = await client.get("/healthz"), await client.get("/readyz")
    assert (alive.status_code, ready.status_code) == (200, 503)
    assert ready.json() == {"status": "unavailable", "missing": ["store"]}


async def call(
    door: Door, body: AsyncIterator[bytes], *headers: tuple[bytes, bytes], token: str
) -> list[dict[str, Any]]:
    """Call the door as a server does, with a body that is not there before it is asked for."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": await anext(body), "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/api/v1/devices",
        "raw_path": b"/api/v1/devices",
        "query_string": b"",
        "root_path": "",
        "client": ("127.0.0.1", 5),
        "server": ("127.0.0.1", 80),
        "headers": [
            (b"host", b"localhost"),
            (b"content-type", b"application/json"),
            (b"authorization", f"Bearer {token}".encode()),
            *headers,
        ],
    }
    await door.app(scope, receive, send)
    return sent


@pytest.mark.parametrize("said", [False, True])
async def test_a_body_over_the_cap_is_not_read_to_its_end(door: Door, *, said: bool) -> None:
    read = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read
        while True:
            read += 4096
            yield b" " * 4096

    token = (door.services.settings.data / "admin.token").read_text().strip()
    length = [(b"content-length", b"1000000000")] if said else []
    sent = await call(door, endless(), *length, token=token)
    assert sent[0]["status"] == 413
    assert read <= (0 if said else MAX_BODY_BYTES + 4096)


async def test_a_fault_is_answered_without_a_word_of_it_and_logged_without_its_values(
    door: Door, log: io.StringIO
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError(MARKER)

    front = Front(broken, hosts=[], not_ready=nothing_missing)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(front), base_url="http://localhost") as client:
        answer = await client.get("/api/v1/runs")
    assert (answer.status_code, answer.json()["type"]) == (500, "internal")
    assert MARKER not in answer.text
    assert "RuntimeError" in log.getvalue()
    assert MARKER not in log.getvalue()
    assert "Traceback" not in answer.text + log.getvalue()


async def test_a_fault_in_a_route_is_answered_the_same_way(
    door: Door, log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError(MARKER)

    monkeypatch.setattr(door.services.engine, "runs", broken)
    async with door.admin() as admin:
        answer = await admin.get("/api/v1/runs")
    assert (answer.status_code, answer.json()["type"]) == (500, "internal")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert MARKER not in answer.text + log.getvalue()
    assert "RuntimeError" in log.getvalue()


async def test_a_malformed_request_is_answered_without_repeating_it(door: Door) -> None:
    async with door.admin() as admin:
        answers = [
            await admin.post("/api/v1/devices", json={"device": {"deep": MARKER}, MARKER: 1}),
            await admin.post("/api/v1/devices", content=f'{{"{MARKER}'.encode()),
            await admin.get("/api/v1/runs", params={"status": MARKER}),
            await admin.get(f"/api/v1/runs/{MARKER}"),
        ]
    assert [answer.status_code for answer in answers] == [422, 422, 422, 422]
    assert all(answer.headers["content-type"] == "application/problem+json" for answer in answers)
    assert all(MARKER not in answer.text for answer in answers[1:])


async def test_what_is_not_there_is_a_problem_document_too(door: Door) -> None:
    async with door.admin() as admin:
        missing, method = await admin.get("/api/v1/nothing"), await admin.put("/api/v1/runs")
    assert (missing.status_code, missing.json()["type"]) == (404, "not_found")
    assert (method.status_code, method.json()["type"]) == (405, "method_not_allowed")


async def test_the_description_names_every_route_with_its_errors(door: Door) -> None:
    async with door.admin() as admin:
        document = (await admin.get("/api/v1/openapi.json")).json()
    assert "ProblemDocument" in document["components"]["schemas"]
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    assert len(operations) > 20
    for operation in operations:
        assert "401" in operation["responses"], operation["operationId"]
        for status, answer in operation["responses"].items():
            if status.startswith("4"):
                assert list(answer["content"]) == ["application/problem+json"], (operation["operationId"], status)
    assert len({operation["operationId"] for operation in operations}) == len(operations)


async def test_a_form_that_is_not_kept_is_described_in_words(door: Door) -> None:
    async with door.admin() as admin:
        name = (await admin.get("/api/v1/devices/A%20b")).json()
        receipt = (await admin.get("/api/v1/audit", params={"receipt": "A b"})).json()
    assert name["problems"][0]["message"].startswith("a name is a-z, 0-9, _ and -")
    assert receipt["problems"] == [{"pointer": "/receipt", "message": "an id is 26 characters of a-z and 0-9"}]


async def test_a_body_that_is_not_said_to_be_json_is_refused_with_what_to_say(door: Door) -> None:
    async with door.admin() as admin:
        form = {"content-type": "application/x-www-form-urlencoded"}  # as curl -d says
        refused = await admin.post("/api/v1/workflows/quick/runs", content=b"{}", headers=form)
        taken = await admin.post("/api/v1/workflows/quick/runs", json={})
    assert (refused.status_code, taken.status_code) == (422, 201)
    assert "Content-Type: application/json" in refused.json()["hint"]


async def test_each_list_is_read_page_by_page_with_nothing_missed_and_nothing_twice(door: Door) -> None:
    for name in ("one", "two", "three"):
        async with await door.device(name=name), await door.operator("read", name=name):
            pass
    for _ in range(3):
        await door.start()
    async with door.admin() as admin:
        for path, name in (
            ("devices", "device"), ("operators", "operator"), ("workflows", "name"), ("waits", "wait"), ("keys", "key"),
        ):  # fmt: skip
            whole = (await admin.get(f"/api/v1/{path}")).json()
            found, after = [], None
            while True:
                query = {"limit": 1} | ({"after": after} if after else {})
                answer = (await admin.get(f"/api/v1/{path}", params=query)).json()
                found += [item[name] for item in answer[path]]
                if (after := answer["next"]) is None:
                    break
                assert len(answer[path]) == 1
            assert whole["next"] is None
            assert found == [item[name] for item in whole[path]], path
            if path in {"devices", "operators", "keys"}:
                assert len(found) > 1, path
            refused = await admin.get(f"/api/v1/{path}", params={"limit": 0})
            assert refused.status_code == 422


async def test_a_cursor_that_no_answer_gave_is_refused_and_one_whose_item_is_gone_is_not(door: Door) -> None:
    gone = {"devices": "gone", "operators": "gone", "workflows": "gone", "waits": "0" * 26, "runs": "0" * 26}
    async with door.admin() as admin:
        for path, cursor in (gone | {"keys": "gone/key"}).items():
            assert (await admin.get(f"/api/v1/{path}", params={"after": cursor})).status_code == 200, path
            assert (await admin.get(f"/api/v1/{path}", params={"after": ""})).status_code == 200, path
            for garbage in ("Garbage!", "/", f"{cursor}\n"):
                answer = await admin.get(f"/api/v1/{path}", params={"after": garbage})
                assert answer.status_code == 422, (path, garbage)
                (problem,) = answer.json()["problems"]
                assert problem["pointer"] == "/after"
                assert problem["message"].startswith(("a name is", "an id is", "a key is written"))


async def test_a_command_reads_all_pages(door: Door) -> None:
    for name in ("one", "two", "three"):
        async with await door.device(name=name):
            pass
    async with door.admin() as http:
        listed = await Client(http, local=False).listed("/devices", "devices", limit=2)
    assert [device["device"] for device in listed["devices"]] == ["one", "three", "two"]
    assert "next" not in listed
