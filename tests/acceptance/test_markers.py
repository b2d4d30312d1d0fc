"""Proves that what a device sends, and what it proves itself with, is found in the outcome and nowhere else.

Payloads are sent through every door, to be taken or refused in every way, and steps fail over them in every way; then
everything that the gateway has said to anybody, printed, written to a file or stored is searched.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect

from engine.store.open import open_store
from tests.support import wire
from tests.support.command import Serving, serving, wayside
from tests.support.mosquitto import ANYBODY, free_port, mosquitto
from tests.support.plain_mqtt import PlainClient, Refused

MARKER = "marker5d21"  # one word, also of a topic and of a host's name
TOKEN = "wsd_" + "Marker7" * 7
BROKER_PASSWORD = "marker9brokerpassword"
DOOR = """\
name: front-door
jobs:
  - name: main
    steps:
      - name: identify
        task:
          type: wait_for_signal
          key: verdict
          acceptEarly: 600
          timeout: 600
          schema: { type: object, required: [verdict], properties: { verdict: { enum: [known] } } }
"""
# Each step fails over what came with the signal.
STEPS = {
    "program": '{ type: shell, run: [sh, -c, "echo $0; echo $0 >&2; exit 3", $NOTE] }',
    "no-program": "{ type: shell, run: [/nowhere, $NOTE] }",
    "environment": "{ type: shell, run: ['false'], env: { NOTE: $NOTE } }",
    "request": '{ type: http, url: "http://127.0.0.1:1/?${{ steps.identify.payload.note }}", headers: { N: $NOTE } }',
    "no-url": "{ type: http, url: $NOTE, body: { note: $NOTE } }",
    "topic": '{ type: publish, topic: "${{ steps.identify.payload.topic }}", payload: { note: $NOTE } }',
    "command": '{ type: publish, topic: "sirens/hall", payload: { note: $NOTE } }',
    "number": '{ type: assert, that: "${{ int(steps.identify.payload.note) > 3 }}", message: no number }',
    "name": '{ type: assert, that: "${{ steps.identify.payload[steps.identify.payload.note] == 1 }}", message: none }',
    "each": '{ type: shell, run: ["true"] }\n        forEach: { item: it, in: "${{ steps.identify.payload.note }}" }',
}
# Where a payload may lie: the signal as it was sent, and a run's own log, which holds its steps' outputs; what steps
# sent to devices.
PLACES = ("pending/", "outcomes/", "runs/", "outbox/")
BAD = {
    "value": f'{{"verdict": "{MARKER}"}}',
    "name": f'{{"{MARKER}": 1}}',
    "no JSON": MARKER,
    "no object": f'["{MARKER}"]',
    "cut": f'{{"verdict": "{MARKER}"',
    "twice": f'{{"{MARKER}": 1, "{MARKER}": 1}}',
    "number": f'{{"verdict": NaN, "x": "{MARKER}"}}',
    "too large": json.dumps({"verdict": "known", "x": MARKER * 2_000}),
}


@dataclass
class Site:
    """A gateway with every door, and all that was heard of it by somebody."""

    gateway: Serving
    api: httpx.AsyncClient
    broker: int
    web: int
    tokens: dict[str, str]
    jar: httpx.Cookies = field(default_factory=httpx.Cookies)
    heard: dict[str, str] = field(default_factory=dict)

    def note(self, where: str, said: object) -> None:
        self.heard[where] = self.heard.get(where, "") + (
            said.decode("latin-1") if isinstance(said, bytes) else str(said)
        )

    async def refused(self, door: str, what: str, payload: bytes) -> None:
        """Send at a door what is refused there."""
        mqtt, http = self.gateway.mqtt[1], int(self.gateway.http.rpartition(":")[2])
        match door:
            case "listener" | "listener 5" | "WebSocket listener":
                port = self.web if door.startswith("Web") else mqtt
                version = 5 if door.endswith("5") else 4
                told = await wire.mqtt(
                    port, "camera", self.tokens["camera"], "signals/front-door/verdict", payload, version=version,
                    web=port == self.web,
                )  # fmt: skip
            case "bridge":
                told = await wire.broker(self.broker, "camera", "signals/front-door/verdict", payload)
            case "HTTP":
                told = (await self.api.post("/signals/front-door/verdict", content=payload)).content
            case "WebSocket":
                head = b'{"type":"signal","ref":1,"workflow":"front-door","key":"verdict","payload":'
                told = await wire.socket_message(http, self.tokens["camera"], head + payload[:60_000] + b"}")
            case "page":
                told = await self._page(payload)
            case _:
                ran = await self.gateway.run("signal", "front-door", "verdict", "-", "--json", given=payload, status=1)
                told = (ran.out + ran.err).encode()
        assert told, (door, what)
        self.note(f"{door}: {what}", told)

    async def _page(self, payload: bytes) -> bytes:
        async with self.visitor() as page:
            csrf = re.search(r'name="csrf" value="([0-9a-f]{64})"', (await page.get("/keys")).text)
            assert csrf is not None
            form = {"csrf": csrf[1], "workflow": "front-door", "key": "verdict", "payload": payload.decode()}
            answer = await page.post("/send", data=form, follow_redirects=True)
            return (str(answer.headers) + answer.text).encode()

    @contextlib.asynccontextmanager
    async def visitor(self) -> AsyncIterator[httpx.AsyncClient]:
        """Log in at the page once, as a browser."""
        base = f"http://{self.gateway.http}"
        async with httpx.AsyncClient(base_url=base, trust_env=False, headers={"origin": base}, timeout=30) as page:
            if not self.jar:
                path = (await self.api.post("/logins")).json()["path"]
                self.tokens["link"] = path.rpartition("/")[2]
                await page.post("/login", data={"code": self.tokens["link"]})
                self.jar = page.cookies
                self.tokens["cookie"] = next(iter(self.jar.values()))
            page.cookies = self.jar
            yield page


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    data = tmp_path / "data"
    (data / "workflows").mkdir(parents=True)
    (data / "workflows" / "front-door.yaml").write_text(DOOR + "".join(_step(name) for name in STEPS))
    (data / "wayside.toml").write_text(
        f'[log]\nlevel = "debug"\n[audit]\nstdout = true\nfile = "{tmp_path}/audit.jsonl"\n'
        "[limits]\nsignals_burst = 1000\nconnects_burst = 1000\n"
    )
    web = free_port()
    async with mosquitto(tmp_path, *ANYBODY) as broker:
        url = f"mqtt://gateway:{BROKER_PASSWORD}@127.0.0.1:{broker}"
        async with serving(data, ("--mqtt-ws", f"127.0.0.1:{web}", "--bridge", url)) as gateway:
            admin = (data / "admin.token").read_text().strip()
            headers = {"authorization": f"Bearer {admin}"}
            async with httpx.AsyncClient(
                base_url=f"http://{gateway.http}/api/v1", headers=headers, trust_env=False, timeout=30
            ) as api:
                added = await api.post("/devices", json={"device": "camera", "grants": ["signal:front-door"]})
                problems = (await api.get("/workflows/front-door")).json()["problems"]
                assert problems == []
                tokens = {"admin": admin, "camera": added.json()["token"], "broker": BROKER_PASSWORD}
                await asyncio.wait_for(gateway.says("bridge connected"), 30)
                yield Site(gateway, api, broker, web, tokens)


def _step(name: str) -> str:
    task = STEPS[name].replace("$NOTE", '"${{ steps.identify.payload.note }}"')
    return (
        f"      - name: {name}\n        dependsOn: [{{ step: identify }}]\n        allowFailure: true\n"
        f"        task: {task}\n"
    )


async def test_a_payload_is_found_in_the_outcome_alone_and_a_token_nowhere(site: Site, tmp_path: Path) -> None:
    port = site.gateway.mqtt[1]
    for door in ("listener", "listener 5", "WebSocket listener", "bridge", "HTTP", "WebSocket", "page"):
        for what, payload in BAD.items():
            await site.refused(door, what, payload.encode())
    for what in ("value", "cut"):
        await site.refused("command", what, BAD[what].encode())
    await _strangers(site, port)
    async with _listeners(site):
        await _accepted(site)
        await _shown(site)
    assert await site.gateway.stop() == 0
    assert site.gateway.process.stdout is not None
    site.note("standard output", await site.gateway.process.stdout.read())
    site.note("the log", "".join(site.gateway.log))
    site.note("the audit file", (tmp_path / "audit.jsonl").read_text())
    assert "signal.refused" in site.heard["standard output"]
    assert "signal.taken" in site.heard["the audit file"]
    secrets = {MARKER, TOKEN, TOKEN[4:], *site.tokens.values()}
    assert [where for where, said in site.heard.items() if any(secret in said for secret in secrets)] == []
    await _stored(site)


async def _strangers(site: Site, port: int) -> None:
    """Come with a token that nobody has, at every door."""
    http = int(site.gateway.http.rpartition(":")[2])
    for token in (TOKEN, MARKER):
        with pytest.raises(Refused):
            await PlainClient.connect(port, "camera", token, client_id="x", heard=lambda *_: None)
        bearer = f"Authorization: Bearer {token}"
        site.note("HTTP", await wire.http(http, "GET", f"/api/v1/runs?token={token}", bearer))
        site.note("HTTP", await wire.http(http, "GET", "/runs", f"Cookie: wayside={token}; wayside-{http}={token}"))
        site.note("HTTP", await wire.http(http, "GET", f"/metrics?token={token}", bearer))
        async with connect(f"ws://{site.gateway.http}/api/v1/ws", proxy=None) as socket:
            await socket.send(json.dumps({"type": "auth", "token": token}))
            site.note("WebSocket", await socket.recv())
        ran = await wayside("run", "list", "--server", site.gateway.http, status=1, WAYSIDE_TOKEN=token)
        site.note("command", ran.out + ran.err)


@contextlib.asynccontextmanager
async def _listeners(site: Site) -> AsyncIterator[None]:
    """Listen meanwhile to what is live: the page's stream, and the WebSocket's events."""

    async def stream() -> None:
        async with site.visitor() as page, page.stream("GET", "/live") as answer:
            async for line in answer.aiter_lines():
                site.note("/live", line)

    async def socket() -> None:
        headers = {"Authorization": f"Bearer {site.tokens['admin']}"}
        async with connect(f"ws://{site.gateway.http}/api/v1/ws", additional_headers=headers, proxy=None) as events:
            await events.send('{"type": "subscribe", "workflow": "front-door"}')
            async for message in events:
                site.note("events", message)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(stream()), group.create_task(socket())]
        async with asyncio.timeout(20):
            while not ("ready" in site.heard.get("/live", "") and "subscribed" in site.heard.get("events", "")):
                await asyncio.sleep(0.02)
        yield
        async with asyncio.timeout(20):
            while not ("changed" in site.heard["/live"] and "signal.taken" in site.heard["events"]):
                await asyncio.sleep(0.02)
        for task in tasks:
            task.cancel()


async def _accepted(site: Site) -> None:
    """Have a signal held and taken by a run whose steps fail over it; and another one held that stays."""
    run = ""
    payload = json.dumps({"verdict": "known", "note": MARKER, "topic": f"signals/{MARKER}"}).encode()
    for signal_id in ("one", "two"):
        topic = f"signals/front-door/verdict/{signal_id}"
        told = await wire.mqtt(site.gateway.mqtt[1], "camera", site.tokens["camera"], topic, payload)
        assert b'"ok":true' in told
        site.note("accepted", told)
        other = await site.api.post(
            "/signals/front-door/verdict", content=payload[:-1] + b" }", headers={"idempotency-key": signal_id}
        )
        site.note("in another's place", other.content)
        if signal_id == "one":
            run = (await site.api.post("/workflows/front-door/runs", json={})).json()["run"]
            followed = await site.gateway.run("run", "follow", run, status=None)
            site.note("run follow", followed.out + followed.err)
    shown = (await site.api.get(f"/runs/{run}")).json()
    steps = {step["name"]: step for step in shown["jobs"][0]["steps"]}
    assert steps["identify"]["outputs"]["payload"]["note"] == MARKER
    assert {name: step["status"] for name, step in steps.items() if step["status"] != "failed"} == {
        "identify": "succeeded",
        "command": "succeeded",
    }
    for name, step in steps.items():
        site.note(f"the error of {name}", step["error"])
    site.note("run show", (await site.gateway.run("run", "show", run)).out)


async def _shown(site: Site) -> None:
    """Look at everything that shows something, but for the outputs of that run's steps."""
    paths = ("runs", "waits", "keys", "audit?limit=500", "devices", "devices/camera", "operators", "workflows")
    for path in (*paths, "workflows/front-door", "doors", "openapi.json"):
        answer = await site.api.get(f"/{path}")
        assert answer.status_code == 200, path
        site.note(f"/api/v1/{path}", answer.text)
    async with site.visitor() as page:
        for path in ("/", "/keys", "/runs", "/devices", "/devices/camera", "/workflows", "/workflows/front-door"):
            site.note(f"page {path}", (await page.get(path)).text)
        site.note("page /audit", (await page.get("/audit")).text + (await page.get("/audit.jsonl")).text)
        metrics = await page.get("/metrics", headers={"authorization": f"Bearer {site.tokens['admin']}"})
        site.note("/metrics", metrics.text)
        assert "wayside_" in metrics.text
    for arguments in (("waits",), ("doctor",), ("config", "show"), ("audit", "--why", "front-door/verdict")):
        ran = await site.gateway.run(*arguments, status=None)
        site.note(" ".join(arguments), ran.out + ran.err)


async def _stored(site: Site) -> None:
    """Search the store: payloads are where they have to be, tokens nowhere, and no key holds either."""
    store = open_store(str(site.gateway.data / "wayside.db"))
    try:
        records = await store.list("")
    finally:
        await store.close()
    secrets = [secret.encode() for secret in (TOKEN, *site.tokens.values())]
    assert [it.key for it in records if any(secret in it.value for secret in secrets)] == []
    assert [it.key for it in records if MARKER in it.key] == []
    places = {it.key.partition("/")[0] + "/" for it in records if MARKER.encode() in it.value}
    assert {"outcomes/", "pending/"} <= places
    assert places <= set(PLACES)
    files = [path for path in site.gateway.data.rglob("*") if path.is_file() and not path.name.startswith("wayside.db")]
    held = {
        path.name for path in files if any(s.encode() in path.read_bytes() for s in (MARKER, *site.tokens.values()))
    }
    assert held == {"admin.token"}
