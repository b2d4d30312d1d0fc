"""Proves that a gateway serves a local network over TLS with its own certificates, to mosquitto's clients and curl."""

from __future__ import annotations

import asyncio
import json
import signal
import stat
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from engine.clock import wall_clock
from gateway.certificates import begins, issue_device, issue_server, make_authority
from tests.support.command import SECONDS, Serving, serving, wayside

HOSTS = ("gw.test", "localhost", "127.0.0.1")
DOORS = (
    "--mqtts", "127.0.0.1:0",
    "--mqtt-ws", "127.0.0.1:0",
    "--mqtt-wss", "127.0.0.1:0",
    "--https", "127.0.0.1:0",
)  # fmt: skip
DOOR = """\
name: front-door
jobs:
  - name: main
    steps:
      - name: identify
        task: { type: wait_for_signal, key: verdict, acceptEarly: 60, timeout: 60 }
"""


async def run(*command: str) -> tuple[int, str]:
    """Run a client; give its status and all that it said."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await asyncio.wait_for(process.communicate(), SECONDS)
    assert process.returncode is not None
    return process.returncode, out.decode()


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Serving]:
    data = tmp_path / "data"
    (data / "workflows").mkdir(parents=True, mode=0o700)
    data.chmod(0o700)
    (data / "workflows" / "front-door.yaml").write_text(DOOR)
    make_authority(data / "tls")
    issue_server(data / "tls", HOSTS)
    issue_device(data / "tls", "door")
    async with serving(data, DOORS) as gateway:
        yield gateway


def doors(gateway: Serving) -> dict[str, str]:
    (file,) = (gateway.data / "gateways").glob("*.json")
    more: dict[str, str] = json.loads(file.read_text())["more"]
    return {name: where.rpartition(":")[2] for name, where in more.items()}


def publish(gateway: Serving, port: str, *more: str) -> tuple[str, ...]:
    ca = str(gateway.data / "tls" / "ca.pem")
    message = ("-t", "signals/front-door/verdict", "-m", "{}", "-q", "1", "-V", "mqttv5")
    return ("mosquitto_pub", "--cafile", ca, "-h", "127.0.0.1", "-p", port, *message, *more)


def certificate(gateway: Serving, name: str = "door") -> tuple[str, ...]:
    directory = gateway.data / "tls" / "devices"
    return ("--cert", str(directory / f"{name}.pem"), "--key", str(directory / f"{name}.key"))


async def held(gateway: Serving) -> list[dict[str, str]]:
    pending: list[dict[str, str]] = (await gateway.told("waits"))["pending"]
    return pending


async def test_a_token_works_over_tls(gateway: Serving) -> None:
    token = (await gateway.told("device", "add", "door", "--grant", "signal:front-door/verdict"))["token"]
    status, said = await run(*publish(gateway, doors(gateway)["mqtts"], "-u", "door", "-P", token))
    assert status == 0, said
    assert [signal["sender"] for signal in await held(gateway)] == ["device:door"]


async def test_a_certificate_stands_for_its_device_until_the_device_is_revoked(gateway: Serving) -> None:
    port = doors(gateway)["mqtts"]
    status, said = await run(*publish(gateway, port, *certificate(gateway)))
    assert status != 0, f"a device that is not there: {said}"
    await gateway.told("device", "add", "door", "--grant", "signal:front-door/verdict")
    status, said = await run(*publish(gateway, port, *certificate(gateway)))
    assert status == 0, said
    assert [signal["sender"] for signal in await held(gateway)] == ["device:door"]
    await gateway.typed("device", "revoke", "door")
    status, _ = await run(*publish(gateway, port, *certificate(gateway)))
    assert status != 0


@pytest.mark.parametrize("end", ["revoke", "delete"])
async def test_a_certificate_that_was_stolen_stays_void_and_one_that_is_made_then_is_good(
    gateway: Serving, tmp_path: Path, end: str
) -> None:
    port = doors(gateway)["mqtts"]
    await gateway.told("device", "add", "door", "--grant", "signal:front-door/verdict")
    stolen = tmp_path / "stolen"
    (gateway.data / "tls" / "devices").rename(stolen)
    thief = ("--cert", str(stolen / "door.pem"), "--key", str(stolen / "door.key"))
    status, said = await run(*publish(gateway, port, *thief))
    assert status == 0, said
    await gateway.typed("device", end, "door")
    await gateway.typed("device", *(["rotate"] if end == "revoke" else ["add"]), "door")
    await gateway.typed("device", "grant", "door", "signal:front-door/verdict")
    # In the same second as the revocation, or so.
    made = await gateway.typed("tls", "device", "door")
    assert "warning" not in made.err
    status, said = await run(*publish(gateway, port, *thief))
    assert status != 0, said
    assert "Bad User Name or Password" in said
    status, said = await run(*publish(gateway, port, *certificate(gateway), "-t", "signals/front-door/verdict/s2"))
    assert status == 0, said
    assert ": certificates made until then are void" in (await gateway.typed("device", "show", "door")).out


def test_a_device_s_certificate_begins_in_a_later_second_than_the_revocation(tmp_path: Path) -> None:
    make_authority(tmp_path)
    revoked = wall_clock().replace(microsecond=0) + timedelta(seconds=10)
    pair = issue_device(tmp_path, "door", after=revoked + timedelta(seconds=0.9))
    assert begins(pair.certificate) == revoked + timedelta(seconds=1)
    assert begins(issue_device(tmp_path, "hall", after=revoked - timedelta(days=1)).certificate) <= wall_clock()


async def test_a_certificate_is_made_with_a_warning_where_the_device_would_not_be_let_in(gateway: Serving) -> None:
    async def warned(name: str) -> str:
        return (await gateway.typed("tls", "device", name)).err.split("\n  mosquitto_pub")[0]

    assert "there is no device window; the certificate lets nobody in until `wayside device add`" in await warned(
        "window"
    )
    for name, does in {"hall": "disable", "gate": "revoke"}.items():
        await gateway.told("device", "add", name)
        await gateway.typed("device", does, name)
    assert "hall is disabled; the certificate does not let it in until `wayside device enable hall`" in await warned(
        "hall"
    )
    assert "gate is revoked; the certificate does not let it in until `wayside device rotate gate`" in await warned(
        "gate"
    )
    await gateway.told("device", "add", "porch")
    assert "warning" not in await warned("porch")


async def test_a_certificate_is_no_credential_for_another_device(gateway: Serving) -> None:
    await gateway.told("device", "add", "door")
    await gateway.told("device", "add", "window", "--grant", "signal:front-door/verdict")
    status, said = await run(*publish(gateway, doors(gateway)["mqtts"], *certificate(gateway), "-u", "window"))
    assert status != 0, said
    assert await held(gateway) == []


async def test_a_certificate_of_another_authority_is_none(gateway: Serving, tmp_path: Path) -> None:
    await gateway.told("device", "add", "door", "--grant", "signal:front-door/verdict")
    make_authority(tmp_path / "other")
    theirs = issue_device(tmp_path / "other", "door")
    stranger = ("--cert", str(theirs.certificate), "--key", str(theirs.key))
    status, said = await run(*publish(gateway, doors(gateway)["mqtts"], *stranger))
    assert status != 0, said
    assert await held(gateway) == []


async def test_https_answers_to_the_names_of_its_certificate(gateway: Serving) -> None:
    ca, port = str(gateway.data / "tls" / "ca.pem"), doors(gateway)["https"]
    where = ("--resolve", f"gw.test:{port}:127.0.0.1", f"https://gw.test:{port}/healthz")
    status, said = await run("curl", "-sS", "--noproxy", "*", "--cacert", ca, *where)
    assert (status, json.loads(said)["status"]) == (0, "ok")
    status, said = await run("curl", "-sS", "--noproxy", "*", *where)
    assert status == 60, f"a certificate that nobody vouched for: {said}"


async def test_a_remote_command_reaches_it_over_https(gateway: Serving) -> None:
    port = doors(gateway)["https"]
    ran = await wayside(
        "device", "list", "--json", "--server", f"https://localhost:{port}",
        "--token-file", str(gateway.data / "admin.token"), "--ca", str(gateway.data / "tls" / "ca.pem"),
    )  # fmt: skip
    assert ran.json["devices"] == []


async def test_a_new_certificate_is_taken_up_on_sighup(gateway: Serving) -> None:
    port = doors(gateway)["https"]
    await wayside("tls", "init", "new.test", "--data", str(gateway.data))
    gateway.process.send_signal(signal.SIGHUP)
    await asyncio.wait_for(gateway.says("certificate reread"), SECONDS)
    where = ("--resolve", f"new.test:{port}:127.0.0.1", f"https://new.test:{port}/healthz")
    status, said = await run("curl", "-sS", "--noproxy", "*", "--cacert", str(gateway.data / "tls" / "ca.pem"), *where)
    assert status == 0, said


async def test_private_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    await wayside("tls", "init", *HOSTS, "--data", str(data))
    await wayside("tls", "device", "door", "--data", str(data))
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    keys = sorted((data / "tls").rglob("*.key"))
    assert [key.name for key in keys] == ["ca.key", "door.key", "server.key"]
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}


async def test_a_door_that_others_can_reach_takes_tls_or_a_word(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    ran = await wayside("serve", "--data", data, "--mqtt", "0.0.0.0:0", "--http", "127.0.0.1:0", status=2)
    assert "use mqtts" in ran.err
    ran = await wayside("serve", "--data", data, "--mqtts", "0.0.0.0:0", status=2)
    assert "wayside tls init" in ran.err
