"""Proves what EMQX and mosquitto-go-auth are answered, in their own words, and that the secret comes first."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import msgspec
import pytest

from devices import operations
from gateway.app import compose
from gateway.config import load
from gateway.http.app import create_app
from gateway.http.front import Front
from gateway.services import Services
from tests.gateway.http.conftest import Door

SECRET = "a-secret-of-two-parties"
BRIDGE = "mqtt://wayside-bridge:of-the-bridge@127.0.0.1:1883"
EMQX, GO_AUTH = "/api/v1/brokers/emqx", f"/api/v1/brokers/mosquitto-go-auth/{SECRET}"


async def ready() -> list[str]:
    return []


@pytest.fixture
async def asked(tmp_path: Path) -> AsyncIterator[Door]:
    flags = {"data": tmp_path / "data", "bridge.auth_secret": SECRET, "bridge.url": BRIDGE}
    async with compose(load(flags, environment={}).settings) as services:
        yield Door(services, Front(create_app(services), hosts=[], not_ready=ready))


async def device(services: Services, name: str, *grants: str) -> str:
    return (await operations.add(services.registry, name, grants=grants, by="user:test")).token


async def emqx(client: httpx.AsyncClient, what: str, **fields: str) -> str:
    answer = await client.post(f"{EMQX}/{what}", json=fields)
    assert answer.status_code == 200
    assert answer.json()["is_superuser"] is False
    return str(answer.json()["result"])


async def test_emqx_is_told_allow_for_the_right_token_and_deny_with_200_for_everything_else(asked: Door) -> None:
    token = await device(asked.services, "camera")
    async with asked.client(SECRET) as broker:
        right = {"username": "camera", "password": token, "clientid": "camera"}
        assert await emqx(broker, "authn", **right) == "allow"
        assert await emqx(broker, "authn", **right | {"password": token[:-1]}) == "deny"
        assert await emqx(broker, "authn", **right | {"username": "lock"}) == "deny"
        assert await emqx(broker, "authn", username="camera") == "deny"
        assert await emqx(broker, "authn", username="wayside-bridge", password="of-the-bridge") == "allow"
        assert await emqx(broker, "authn", username="wayside-bridge", password="") == "deny"
        for content in (b"", b"nonsense", b"[]", b"\xff", b"{" * 20_000):
            answer = await broker.post(f"{EMQX}/authn", content=content)
            assert (answer.status_code, answer.json()["result"]) == (200, "deny")
        await operations.revoke(asked.services.registry, "camera", by="user:test")
        assert await emqx(broker, "authn", **right) == "deny"


async def test_a_client_id_of_another_device_is_denied_and_one_of_its_own_is_not(asked: Door) -> None:
    token = await device(asked.services, "camera")
    async with asked.client(SECRET) as broker:
        for client_id, result in (("camera:1", "allow"), ("camera-2", "deny"), ("lock", "deny"), ("", "allow")):
            found = await emqx(broker, "authn", username="camera", password=token, clientid=client_id)
            assert (client_id, found) == (client_id, result)


async def test_emqx_is_told_what_a_device_may_do_as_its_grants_are_now(asked: Door) -> None:
    await device(asked.services, "camera", "signal:door/verdict", "listen:sirens/+")
    async with asked.client(SECRET) as broker:

        async def may(action: str, topic: str, user: str = "camera") -> bool:
            return await emqx(broker, "authz", username=user, action=action, topic=topic) == "allow"

        assert await may("publish", "d/camera/signals/door/verdict")
        assert await may("publish", "signals/door/verdict/s1")
        assert not await may("publish", "signals/door/other")
        assert not await may("publish", "d/lock/signals/door/verdict")
        assert await may("subscribe", "d/camera/replies/#")
        assert await may("subscribe", "sirens/hall")
        assert not await may("subscribe", "#")
        assert not await may("delete", "d/camera/signals/door/verdict")
        assert not await may("publish", "d/ghost/signals/door/verdict", "ghost")
        assert await may("subscribe", "d/+/signals/#", "wayside-bridge")
        assert not await may("subscribe", "#", "wayside-bridge")
        assert await may("publish", "d/camera/replies/x", "wayside-bridge")
        await operations.ungrant(asked.services.registry, "camera", "signal:door/verdict", by="user:test")
        assert not await may("publish", "signals/door/verdict/s1")
        await operations.disable(asked.services.registry, "camera", by="user:test")
        assert not await may("publish", "d/camera/signals/door/verdict")


async def test_without_the_shared_secret_everything_is_denied_and_without_one_configured_too(asked: Door) -> None:
    token = await device(asked.services, "camera")
    right = {"username": "camera", "password": token, "clientid": "camera"}
    for shown in (None, "wrong", ""):
        async with asked.client(shown) as broker:
            assert await emqx(broker, "authn", **right) == "deny"
            assert await emqx(broker, "authz", username="camera", action="publish", topic="d/camera/status") == "deny"
    async with asked.client(None) as broker:
        assert (await broker.post("/api/v1/brokers/mosquitto-go-auth/wrong/user", json=right)).status_code == 403
    settings = asked.services.settings
    asked.services.settings = msgspec.structs.replace(
        settings, bridge=msgspec.structs.replace(settings.bridge, auth_secret="")
    )
    async with asked.client("") as broker:
        assert await emqx(broker, "authn", **right) == "deny"


async def test_mosquitto_go_auth_is_answered_by_status_alone(asked: Door) -> None:
    token = await device(asked.services, "camera")
    async with asked.client(None) as broker:

        async def status(what: str, **fields: object) -> int:
            return (await broker.post(f"{GO_AUTH}/{what}", json=fields)).status_code

        assert await status("user", username="camera", password=token, clientid="camera") == 200
        assert await status("user", username="camera", password="wrong") == 403
        assert await status("superuser", username="camera") == 403
        own, answers = "d/camera/signals/door/verdict", "d/camera/replies/#"
        for topic, acc, expected in (
            (own, 2, 200), (own, 1, 403), (own, 3, 403), (answers, 4, 200), (answers, 2, 403),
            ("d/camera/replies/x", 1, 200), ("d/lock/replies/x", 1, 403), (own, 9, 403),
        ):  # fmt: skip
            assert (topic, acc, await status("acl", username="camera", topic=topic, acc=acc)) == (topic, acc, expected)
        form = {"username": "camera", "topic": own, "acc": "2"}
        assert (await broker.post(f"{GO_AUTH}/acl", data=form)).status_code == 200


async def test_the_export_is_an_admins_alone_and_no_verifier_is_anywhere_else(asked: Door) -> None:
    await device(asked.services, "camera")
    async with await asked.operator("read") as reader:
        assert (await reader.get("/api/v1/exports/mosquitto")).status_code == 403
    async with asked.admin() as admin:
        shown = await admin.get("/api/v1/exports/emqx")
        assert shown.status_code == 200
        assert [file["secret"] for file in shown.json()["files"]] == [True, False, False]
        listed = await admin.get("/api/v1/devices")
        assert "digest" not in listed.text
        assert "verifier" not in listed.text
        assert (await admin.get("/api/v1/exports/other")).status_code == 422
        shown = await admin.get("/api/v1/exports/mosquitto", params={"directory": "/srv/a broker"})
        assert "\nacl_file /srv/a broker/wayside.acl\n" in shown.json()["files"][2]["text"]
        for directory in ("here", "/a\nallow_anonymous true", "/a\0"):
            answer = await admin.get("/api/v1/exports/mosquitto", params={"directory": directory})
            assert answer.status_code == 422
