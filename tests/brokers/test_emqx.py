"""Proves that EMQX's and mosquitto-go-auth's configurations are well formed, and that what they ask is answered.

Neither is started here. The files are read as HOCON, each name in them is one that EMQX 5 has, and the requests that
they describe are made, with the broker's place-holders filled in, of the gateway itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from devices import operations
from devices.exports import emqx
from gateway.app import compose
from gateway.config import load
from gateway.http.app import create_app
from gateway.http.front import Front
from gateway.services import Services
from tests.brokers import hocon

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
GATEWAY = "http://127.0.0.1:8080"
SECRET = "a-secret-of-two-parties"
HTTP_FIELDS = {"enable", "method", "url", "headers", "body", "request_timeout"}
ALLOWED = {
    "": {"mqtt", "authentication", "authorization"},
    "mqtt": {"max_packet_size", "use_username_as_clientid", "retain_available"},
    "authentication by http": HTTP_FIELDS | {"mechanism", "backend"},
    "authentication by built_in_database": {
        *("mechanism", "backend", "user_id_type", "password_hash_algorithm", "bootstrap_file", "bootstrap_type"),
    },
    "authorization": {"no_match", "deny_action", "cache", "sources"},
    "authorization by http": HTTP_FIELDS | {"type"},
    "authorization by file": {"type", "enable", "path"},
}


def deployed() -> dict[str, Any]:
    return hocon.read((DEPLOY / "emqx" / "emqx.conf").read_text())


@pytest.mark.parametrize("text", [(DEPLOY / "emqx" / "emqx.conf").read_text(), emqx.SETTINGS], ids=["deploy", "export"])
def test_emqx_settings_are_hocon_with_names_that_emqx_has_and_let_nobody_in_by_default(text: str) -> None:
    found = hocon.read(text)
    (authenticator,), (source,) = found["authentication"], found["authorization"]["sources"]
    for name, table in {
        "": found,
        "mqtt": found["mqtt"],
        f"authentication by {authenticator['backend']}": authenticator,
        "authorization": found["authorization"],
        f"authorization by {source['type']}": source,
    }.items():
        assert set(table) <= ALLOWED[name], name
    assert authenticator["mechanism"] == "password_based"
    assert found["authorization"]["no_match"] == "deny"
    assert found["mqtt"]["use_username_as_clientid"] is True
    # Environment variables are put into the paths of files and into nothing else.
    for where in re.findall(r"\$\{EMQX\w*}[^\"]*", text):
        assert where in {"${EMQX_ETC_DIR}/wayside-users.csv", "${EMQX_ETC_DIR}/wayside-acl.conf"}


@pytest.mark.parametrize(
    "text",
    ["a = {", "a = [1", "a = }", "a b", "a = 1 b = 2", 'a = "x', "a = 1\na = 2", "a { b = 1 }}", "= 1", "a = $b"],
)
def test_what_is_no_hocon_is_not_taken_for_it(text: str) -> None:
    with pytest.raises(ValueError, match="line"):
        hocon.read(text)


@pytest.fixture
async def asked(tmp_path: Path) -> AsyncIterator[tuple[Services, httpx.AsyncClient]]:
    flags = {
        "data": tmp_path / "data",
        "bridge.auth_secret": SECRET,
        "bridge.url": "mqtt://wayside-bridge:of-the-bridge@127.0.0.1:1883",
    }

    async def ready() -> list[str]:
        return []

    async with compose(load(flags, environment={}).settings) as services:
        app = Front(create_app(services), hosts=[], not_ready=ready)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=GATEWAY) as client:
            yield services, client


async def emqx_asks(client: httpx.AsyncClient, table: Mapping[str, Any], **filled: str) -> str:
    """Make the request that a table describes, and read the answer as EMQX does: all but 200 or 204 is "ignore"."""
    body = {name: re.sub(r"\$\{(\w+)}", lambda at: filled[at[1]], value) for name, value in table["body"].items()}
    headers = {name: value.replace("SECRET", SECRET) for name, value in table["headers"].items()}
    answer = await client.request(table["method"].upper(), table["url"], headers=headers, content=json.dumps(body))
    if answer.status_code != 200 or not answer.headers["content-type"].startswith("application/json"):
        return "ignore"
    return str(answer.json()["result"])


async def test_what_emqx_is_configured_to_ask_is_answered_allow_or_deny(
    asked: tuple[Services, httpx.AsyncClient],
) -> None:
    services, client = asked
    (authenticator,), (source,) = deployed()["authentication"], deployed()["authorization"]["sources"]
    token = (await operations.add(services.registry, "camera", grants=["signal:door/verdict"], by="user:test")).token
    login = {"username": "camera", "password": token, "clientid": "camera"}
    assert await emqx_asks(client, authenticator, **login) == "allow"
    assert await emqx_asks(client, authenticator, **login | {"password": "wrong"}) == "deny"
    bridge = {"username": "wayside-bridge", "password": "of-the-bridge", "clientid": "wayside-bridge"}
    assert await emqx_asks(client, authenticator, **bridge) == "allow"
    for action, topic, answer in (
        ("publish", "d/camera/signals/door/verdict/s1", "allow"),
        ("publish", "d/lock/signals/door/verdict/s1", "deny"),
        ("subscribe", "d/camera/replies/#", "allow"),
        ("subscribe", "d/+/replies/#", "deny"),
    ):
        assert await emqx_asks(client, source, username="camera", action=action, topic=topic) == answer
    # A client may write names and passwords as long as its packet: still an answer, and no 413.
    assert await emqx_asks(client, authenticator, **login | {"password": "x" * 65_000}) == "deny"
    assert await emqx_asks(client, source, username="camera", action="publish", topic="x" * 65_000) == "deny"
    await operations.revoke(services.registry, "camera", by="user:test")
    assert await emqx_asks(client, authenticator, **login) == "deny"


async def test_what_go_auth_is_configured_to_ask_is_answered_by_a_status(
    asked: tuple[Services, httpx.AsyncClient],
) -> None:
    services, client = asked
    lines = (DEPLOY / "mosquitto" / "go-auth.conf").read_text().splitlines()
    options = dict(line.removeprefix("auth_opt_http_").split(" ", 1) for line in lines if "auth_opt_http_" in line)
    assert f"http://{options['host']}:{options['port']}" == GATEWAY
    assert (options["method"], options["params_mode"], options["response_mode"]) == ("POST", "json", "status")
    token = (await operations.add(services.registry, "camera", by="user:test")).token

    async def asks(option: str, fields: Mapping[str, object], secret: str = SECRET) -> bool:
        answer = await client.post(options[option].replace("SECRET", secret), json=fields)
        return 200 <= answer.status_code < 300

    login = {"username": "camera", "password": token, "clientid": "camera"}
    assert await asks("getuser_uri", login)
    assert not await asks("getuser_uri", login | {"password": "wrong"})
    assert not await asks("getuser_uri", login, "another-secret-of-two")
    assert not await asks("superuser_uri", {"username": "camera"})
    own: dict[str, object] = {
        "username": "camera",
        "clientid": "camera",
        "topic": "d/camera/signals/door/verdict",
        "acc": 2,
    }
    assert await asks("aclcheck_uri", own)
    assert not await asks("aclcheck_uri", own | {"topic": "d/lock/signals/door/verdict"})
    assert not await asks("aclcheck_uri", own, "another-secret-of-two")
    await operations.revoke(services.registry, "camera", by="user:test")
    assert not await asks("aclcheck_uri", own)
