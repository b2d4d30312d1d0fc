"""Proves who gets at the page, that nobody is made to act on it from elsewhere, and what each right shows and does."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from devices import operations
from devices.model import Right
from engine import names
from engine.names import Key
from gateway.auth import Principal
from gateway.http.front import Front
from gateway.services import Services
from gateway.web.render import static_files
from tests.gateway.http.conftest import DOOR, QUICK, Door, door

__all__ = ["door"]
ORIGIN = {"origin": "http://localhost"}
PAGES = ["/", "/keys", "/runs", "/devices", "/workflows", "/workflows/front-door", "/audit", "/audit.jsonl"]
SECRET = "marker-payload-7f3a"


@asynccontextmanager
async def visitor(door: Door, *rights: Right, name: str = "visitor") -> AsyncIterator[httpx.AsyncClient]:
    """Let an operator in, as a browser."""
    issued = await operations.add_operator(door.services.registry, name, rights=rights, by="user:test")
    code = door.services.sessions.offer(Principal("user", name, issued.entry.secrets[0].since))
    async with door.client(None) as client:
        answer = await client.post("/login", data={"code": code}, headers=ORIGIN)
        assert answer.status_code == 303
        yield client


async def csrf(client: httpx.AsyncClient) -> str:
    found = re.search(r'name="csrf" value="([0-9a-f]{64})"', (await client.get("/")).text)
    assert found is not None
    return found[1]


async def act(client: httpx.AsyncClient, path: str, **fields: str) -> httpx.Response:
    fields = {"csrf": await csrf(client)} | fields
    return await client.post(path, data=fields, headers=ORIGIN)


async def test_without_a_session_every_page_leads_to_the_login(door: Door) -> None:
    async with door.client(None) as client:
        for path in PAGES:
            answer = await client.get(path)
            assert (answer.status_code, answer.headers["location"]) == (303, "/login"), path
        assert (await client.get("/live")).status_code == 401
        assert (await client.post("/send", data={})).status_code == 401
        assert "wayside login" in (await client.get("/login")).text


async def test_what_is_damaged_is_named_on_the_pages_that_would_list_it(door: Door) -> None:
    damaged = ["waits/" + "0" * 26, names.event("0" * 26, 1), Key("front-door", "verdict").claim(1)]
    for key in damaged:
        await door.services.engine.store.create(key, b"\xff")
    async with visitor(door, "read") as client:
        overview, keys, runs = [await client.get(path) for path in ("/", "/keys", "/runs?status=damaged")]
    assert damaged[0] in overview.text
    assert damaged[2] in keys.text
    assert "unknown workflow" in runs.text


async def test_a_number_of_events_that_is_none_shows_a_page_of_them(door: Door) -> None:
    async with visitor(door, "admin") as client:
        for show in ("9" * 5_000, "-1", "many", "200"):
            assert (await client.get("/audit", params={"show": show})).status_code == 200, show[:10]


async def test_a_bearer_token_or_somebodys_guess_is_no_session(door: Door) -> None:
    async with door.admin() as client:
        client.cookies.set("wayside", "0" * 64)
        assert (await client.get("/")).status_code == 303


async def test_a_link_shows_a_button_first_and_works_once(door: Door) -> None:
    async with door.admin() as api, door.client(None) as client:
        path = (await api.post("/api/v1/logins")).json()["path"]
        for _ in range(2):  # whoever looks at links ahead of people has not used it up
            assert "Log in" in (await client.get(path)).text
        code = path.rpartition("/")[2]
        answer = await client.post("/login", data={"code": code}, headers=ORIGIN)
        cookie = answer.headers["set-cookie"]
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        assert all(part in cookie for part in ("HttpOnly", "SameSite=strict", "Path=/", "Max-Age="))
        assert "Secure" not in cookie
        client.cookies.clear()
        assert (await client.post("/login", data={"code": code}, headers=ORIGIN)).status_code == 403


@pytest.mark.parametrize("headers", [{}, {"origin": "null"}, {"origin": "http://elsewhere.example"}])
async def test_nobody_is_logged_in_from_another_site(door: Door, headers: dict[str, str]) -> None:
    async with door.admin() as api, door.client(None) as client:
        path = (await api.post("/api/v1/logins")).json()["path"]
        answer = await client.post("/login", data={"code": path.rpartition("/")[2]}, headers=headers)
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers


async def test_a_device_gets_no_link(door: Door) -> None:
    async with await door.device("signal:front-door") as client:
        assert (await client.post("/api/v1/logins")).status_code == 403


async def test_a_form_without_the_sessions_own_token_does_nothing(door: Door) -> None:
    async with visitor(door, "admin") as client:
        for given in ({}, {"csrf": "0" * 64}):
            data = {"name": "new", "grants": ""} | given
            assert (await client.post("/devices", data=data, headers=ORIGIN)).status_code == 403
        async with visitor(door, "admin", name="other") as other:
            data = {"name": "new", "grants": "", "csrf": await csrf(other)}
        assert (await client.post("/devices", data=data, headers=ORIGIN)).status_code == 403
        assert door.services.registry.device("new") is None


async def test_a_form_from_another_origin_does_nothing(door: Door) -> None:
    async with visitor(door, "admin") as client:
        data = {"name": "new", "grants": "", "csrf": await csrf(client)}
        answer = await client.post("/devices", data=data, headers={"origin": "http://elsewhere.example"})
        assert answer.status_code == 403
        assert door.services.registry.device("new") is None


async def test_a_session_ends_with_its_operators_token(door: Door) -> None:
    async with visitor(door, "admin") as client:
        assert (await client.get("/")).status_code == 200
        await operations.revoke_operator(door.services.registry, "visitor", by="user:test")
        assert (await client.get("/")).status_code == 303


async def test_logging_out_ends_the_session_not_only_the_cookie(door: Door) -> None:
    async with visitor(door, "read") as client:
        cookie = client.cookies["wayside"]
        assert (await act(client, "/logout")).status_code == 303
        client.cookies.set("wayside", cookie)
        assert (await client.get("/")).status_code == 303


async def test_every_answer_forbids_what_is_not_the_pages_own(door: Door) -> None:
    async with visitor(door, "admin") as client:
        for path in [*PAGES[:-1], "/login/x", "/nothing-here", "/runs/nothing"]:
            answer = await client.get(path)
            policy = answer.headers.get("content-security-policy", "default-src 'none'")
            assert "unsafe" not in policy
            assert policy.startswith("default-src 'none'")
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert not re.search(r"""(?:src|href|action)=["'](?:https?:)?//""", answer.text), path
            assert not re.search(r"<script(?![^>]* src=)|<style| style=| on[a-z]+=", answer.text), path


def test_all_files_together_are_under_200_kilobytes() -> None:
    assert sum(map(len, static_files().values())) < 60_000


async def run_with_a_payload(door: Door) -> str:
    (door.services.settings.workflow_directory / "notes.yaml").write_text(
        "name: notes\njobs:\n  - name: main\n    steps:\n      - name: wait\n"
        "        task: { type: wait_for_signal, key: note, timeout: 60 }\n"
    )
    door.services.engine.catalog.reload()
    run = await door.start("notes")
    async with door.admin() as api:
        answer = await api.post("/api/v1/signals/notes/note", json={"text": SECRET})
        assert answer.status_code == 202
    await door.services.engine.settled(run)
    return run


async def test_a_payload_is_shown_on_its_run_to_whoever_may_read_and_nowhere_else(door: Door) -> None:
    run = await run_with_a_payload(door)
    async with visitor(door, "admin") as client:
        assert SECRET in (await client.get(f"/runs/{run}")).text
        for path in PAGES:
            assert SECRET not in (await client.get(path)).text, path
    async with visitor(door, "signal", "run", name="sender") as client:
        for path in (*PAGES, f"/runs/{run}"):
            assert SECRET not in (await client.get(path)).text, path


@pytest.mark.parametrize(
    ("rights", "refused"),
    [
        (("read",), {"/audit": 403, "/audit.jsonl": 403}),
        (("signal",), {"/runs": 403, "/devices": 403, "/workflows": 403, "/audit": 403}),
        (("admin",), {}),
    ],
)
async def test_each_right_opens_its_pages(door: Door, rights: tuple[Right, ...], refused: dict[str, int]) -> None:
    async with visitor(door, *rights) as client:
        for path in PAGES[:5] + PAGES[6:]:
            expected = refused.get(path, 200 if path not in {"/audit", "/audit.jsonl"} else refused.get("/audit", 200))
            assert (await client.get(path)).status_code == expected, path


async def test_a_reader_may_do_nothing(door: Door) -> None:
    run = await door.start()
    async with visitor(door, "read") as client:
        for path, fields in {
            "/devices": {"name": "new", "grants": ""},
            f"/runs/{run}/cancel": {},
            f"/runs/{run}/retry": {},
            f"/runs/{run}/delete": {},
        }.items():
            assert (await act(client, path, **fields)).status_code == 403, path
        refused = await act(client, "/send", workflow="front-door", key="verdict", payload='{"who":"known"}')
        assert "Refused" in (await client.get(refused.headers["location"])).text
        refused = await act(client, "/runs", workflow="quick", inputs='{"good": true}')
        assert "Refused" in (await client.get(refused.headers["location"])).text
    assert (await door.services.engine.run(run))["status"] == "suspended"
    assert len((await door.services.engine.runs())[0]) == 1


async def test_a_signal_of_the_page_is_the_operators_and_is_audited(door: Door) -> None:
    run = await door.start()
    async with visitor(door, "read", "signal") as client:
        sent = await act(client, "/send", workflow="front-door", key="verdict", payload='{"who":"known"}', id="one")
        assert "Delivered to the step identify" in (await client.get(sent.headers["location"])).text
        assert "Delivered" not in (await client.get("/keys")).text  # a notice is shown once
    async with door.admin() as api:
        events = (await api.get("/api/v1/audit", params={"action": "signal.delivered"})).json()["events"]
        assert [(event["principal"], event["run"]) for event in events] == [("user:visitor", run)]


async def test_a_form_goes_back_to_a_page_of_this_gateway_alone(door: Door) -> None:
    async with visitor(door, "admin") as client:
        for back in ("//elsewhere.example", "https://elsewhere.example/"):
            answer = await act(client, "/send", workflow="x", key="y", payload="{}", back=back)
            assert answer.headers["location"] == "/keys"


async def test_what_somebody_named_is_escaped_wherever_it_is_shown(door: Door) -> None:
    async with visitor(door, "admin") as client:
        await act(client, "/devices", name="camera", grants="signal:front-door", note="<script>alert(1)</script>")
        for path in ("/devices", "/devices/camera", "/"):
            text = (await client.get(path)).text
            assert "<script>alert" not in text
            assert "&lt;script&gt;alert" in text


async def test_a_devices_token_is_in_one_answer_only(door: Door) -> None:
    async with visitor(door, "admin") as client:
        answer = await act(client, "/devices", name="camera", grants="signal:front-door/verdict")
        token = re.search(r"wsd_[0-9A-Za-z]{49}", answer.text)
        assert token is not None
        assert answer.headers["cache-control"] == "no-store"
        for path in ("/devices", "/devices/camera", "/audit", "/audit.jsonl"):
            assert token[0] not in (await client.get(path)).text
    async with door.client(token[0]) as device:
        assert (await device.post("/api/v1/signals/front-door/verdict", json={"who": "known"})).status_code == 202


async def test_the_stream_tells_that_something_changed_and_ends_with_the_session(door: Door) -> None:
    following = asyncio.create_task(door.services.live.follow())
    async with visitor(door, "read") as client:
        told = await stream(door.app, door.services, client.cookies["wayside"])
    assert told == ["ready", "changed", "over"]
    following.cancel()


async def stream(app: Front, services: Services, cookie: str) -> list[str]:
    """Read `/live` as a server would have it sent, and do something meanwhile."""
    events: list[str] = []

    async def receive() -> dict[str, object]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: dict[str, object]) -> None:
        body = message.get("body", b"")
        assert isinstance(body, bytes)
        events.extend(re.findall(r"^event: (\w+)$", body.decode(), re.MULTILINE))
        if events == ["ready"]:
            await services.engine.start_run("front-door", {}, by="user:test")
        elif events == ["ready", "changed"]:
            services.sessions.end(cookie)
            await services.engine.start_run("front-door", {}, by="user:test")

    headers = [(b"host", b"localhost"), (b"cookie", f"wayside={cookie}".encode())]
    scope = {"type": "http", "method": "GET", "path": "/live", "raw_path": b"/live", "query_string": b""}
    scope |= {
        "headers": headers,
        "http_version": "1.1",
        "scheme": "http",
        "client": ("127.0.0.1", 1),
        "server": ("x", 1),
    }
    await asyncio.wait_for(app(scope, receive, send), 20)  # type: ignore[arg-type]
    return events


async def test_the_audit_page_filters_and_exports_what_the_api_gives(door: Door) -> None:
    async with await door.device("signal:front-door/verdict") as device:
        await device.post("/api/v1/signals/front-door/verdict", json={"who": "nobody"})
    async with visitor(door, "admin") as client, door.admin() as api:
        page = (await client.get("/audit", params={"device": "camera", "result": "invalid_payload"})).text
        assert page.count('data-key="') == 1
        assert "No event matches" in (await client.get("/audit", params={"key": "nothing"})).text
        lines = (await client.get("/audit.jsonl", params={"device": "camera"})).text.splitlines()
        events = (await api.get("/api/v1/audit", params={"device": "camera"})).json()["events"]
        assert len(lines) == len(events) == 2


async def test_a_broken_definition_is_shown_with_its_lines(door: Door) -> None:
    directory = door.services.settings.workflow_directory
    (directory / "wrong.yaml").write_text("name: wrong\njobs:\n  - name: a\n    steps: []\n    more: 1\n")
    (directory / "front-door.yaml").write_text(DOOR.replace("timeout: 600 }", "timeout: never }"))
    (directory / "quick.yaml").write_text(QUICK)
    door.services.engine.catalog.reload()
    async with visitor(door, "read") as client:
        listed = (await client.get("/workflows")).text
        assert "wrong.yaml" in listed
        assert "in the newer edit" in listed
        assert 'id="line-5"' in (await client.get("/workflows/files/wrong.yaml")).text
        assert "The newer edit has problems" in (await client.get("/workflows/front-door")).text
        for path in ("/workflows/files/..%2fadmin.token", "/workflows/files/admin.token", "/workflows/nothing"):
            assert (await client.get(path)).status_code == 404
