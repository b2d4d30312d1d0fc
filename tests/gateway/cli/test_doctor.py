"""Proves that the doctor finds each planted fault, says where it is and what to do; and none where there is none."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from devices import operations
from engine.names import Key
from gateway import certificates
from gateway.cli import doctor_gateway, doctor_host, invocation
from gateway.cli.client import Client
from gateway.cli.findings import Finding
from gateway.config import load
from gateway.settings import Settings
from tests.gateway.http.conftest import Door, door

__all__ = ["door"]
NOW = datetime(2026, 11, 30, tzinfo=UTC)


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A data directory as it should be; the command line names it."""
    directory = tmp_path / "data"
    (directory / "workflows").mkdir(parents=True)
    directory.chmod(0o700)
    invocation.set_current(invocation.parse(["--data", str(directory)], {}))
    yield directory
    invocation.set_current(invocation.Invocation())


def settings(data: Path, **given: object) -> Settings:
    return load({"data": str(data), **given}, environment={}).settings


def wrong(findings: Iterator[Finding] | list[Finding]) -> list[tuple[str, str, str]]:
    """What is not as it should be, with what to do: never without it."""
    found: list[tuple[str, str, str]] = [
        (it.result, f"{it.check}: {it.text}", it.repair) for it in findings if it.result != "ok"
    ]
    assert all(repair for _, _, repair in found)
    return found


def test_a_sound_installation_has_no_finding_but_good_ones(data: Path) -> None:
    assert wrong(doctor_host.checks(settings(data))) == []
    assert wrong(doctor_host.ports(settings(data, mqtt="127.0.0.1:0", http="127.0.0.1:0"))) == []


def test_every_mistake_in_the_settings_is_a_finding_with_file_and_line(data: Path) -> None:
    file = data / "wayside.toml"
    file.write_text('mqqt = "x"\nhttp = "nowhere"\n[engine]\nsweep_interval = 0\n')
    loaded, found = doctor_host.settings()
    assert loaded is None
    assert [text.split(": ")[1] for _, text, _ in wrong(found)] == [f"{file}:2", f"{file}:4", f"{file}:1"]
    file.write_text('mqqt = "x"\n')
    loaded, found = doctor_host.settings()
    assert loaded is not None
    ((result, text, _),) = wrong(found)
    assert (result, text) == ("warning", f"settings: {file}:1: there is no setting mqqt; did you mean mqtt?")


def test_what_others_can_read_is_named_with_the_command_that_mends_it(data: Path) -> None:
    (data / "tls").mkdir()
    for name in ("admin.token", "wayside.db", "wayside.db-wal", "tls/server.key"):
        (data / name).touch(mode=0o644)
    data.chmod(0o755)
    assert {repair for _, _, repair in wrong(doctor_host.checks(settings(data)))} == {
        f"chmod 700 {data}",
        *(f"chmod 600 {data / name}" for name in ("admin.token", "wayside.db", "wayside.db-wal", "tls/server.key")),
    }


def test_a_disk_that_is_nearly_full_is_told(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=doctor_host.LOW_DISK_BYTES - 1))
    ((result, text, _),) = wrong(doctor_host.checks(settings(data)))
    assert (result, text) == ("warning", f"disk: 255 MB are left for {data}")


@pytest.mark.parametrize(("days", "result"), [(400, None), (10, "warning"), (-1, "failed")])
def test_a_certificate_that_ends_soon_or_has_ended_is_told(data: Path, days: int, result: str | None) -> None:
    tls = data / "tls"
    tls.mkdir(mode=0o700)
    certificates.make_authority(tls)
    certificates.issue_server(tls, ["localhost"], days=days)
    found = wrong(doctor_host.checks(settings(data, mqtts="127.0.0.1:8883")))
    assert [it[0] for it in found] == ([result] if result else [])
    assert all(str(tls / "server.pem") in text for _, text, _ in found)


def test_a_certificate_that_is_none_and_a_key_that_others_can_read_are_told(data: Path) -> None:
    tls = data / "tls"
    tls.mkdir(mode=0o700)
    certificates.make_authority(tls)
    certificates.issue_server(tls, ["localhost"])
    (tls / "server.key").chmod(0o640)
    found = wrong(doctor_host.checks(settings(data, https="127.0.0.1:8443")))
    assert {repair for _, _, repair in found} == {f"chmod 600 {tls / 'server.key'}"}
    (tls / "server.pem").write_text("no certificate")
    assert "cannot be used" in wrong(doctor_host.checks(settings(data, https="127.0.0.1:8443")))[-1][1]


def test_a_door_that_others_reach_without_tls_is_told_although_it_is_allowed(data: Path) -> None:
    found = wrong(doctor_host.checks(settings(data, mqtt="0.0.0.0:1883", http="0.0.0.0:80", allow_plaintext=True)))
    assert [text.split(" can be")[0] for _, text, _ in found] == [
        "exposure: mqtt on 0.0.0.0:1883",
        "exposure: http on 0.0.0.0:80",
    ]
    behind = settings(data, http="0.0.0.0:80", trusted_proxies="10.0.0.5", metrics_open=True)
    assert [text for _, text, _ in wrong(doctor_host.checks(behind))] == [
        "exposure: /metrics is open to everybody who reaches HTTP"
    ]


def test_more_connections_than_the_system_lets_be_open_are_told(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (1_024, 4_096))
    ((_, text, repair),) = wrong(doctor_host.checks(settings(data)))
    assert text.startswith("limits: this user may have 4096 files open")
    assert "LimitNOFILE" in repair


@pytest.mark.parametrize("name", ["mqtt", "http", "mqtt_ws"])
def test_a_port_that_is_taken_is_told_with_the_flag_that_chooses_another(data: Path, name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        given = {"mqtt": "127.0.0.1:0", "http": "127.0.0.1:0", name: f"127.0.0.1:{taken.getsockname()[1]}"}
        ((result, _, repair),) = wrong(doctor_host.ports(settings(data, **given)))
    assert (result, f"--{name.replace('_', '-')} HOST:PORT" in repair) == ("failed", True)


async def look(door: Door, *, bridge: bool = False) -> list[tuple[str, str, str]]:
    async with door.admin() as http:
        return wrong(await doctor_gateway.checks(Client(http, local=False), bridge=bridge))


async def test_a_sound_gateway_has_no_finding_but_good_ones(door: Door) -> None:
    async with await door.device("signal:front-door/verdict", "listen:sirens/#"):
        assert await look(door, bridge=True) == []


async def test_definitions_with_problems_are_named_with_file_line_and_hint(door: Door) -> None:
    directory = door.services.settings.workflow_directory
    (directory / "broken.yaml").write_text("name: broken\njobs:\n  - name: main\n    stepps: []\n")
    door.services.engine.catalog.reload()
    found = await look(door)
    assert {text.split(": ")[1] for _, text, _ in found} <= {"broken.yaml:3", "broken.yaml:4"}
    assert found


async def test_devices_that_can_do_nothing_are_named(door: Door) -> None:
    for name, grants in (("idle", ()), ("lost", ("signal:front-dor/verdict", "signal:front-door/verdikt", "run:x"))):
        async with await door.device(*grants, name=name):
            pass
    async with await door.device("signal:front-door", name="gone"), door.admin() as admin:
        await admin.post("/api/v1/devices/gone/revoke")
    assert [text.split(":", 1)[1].strip() for _, text, _ in await look(door)] == [
        "gone is revoked: no token and no certificate lets it in",
        "idle has no grant: all that it sends is refused",
        "lost: signal:front-dor/verdict: there is no workflow front-dor, so far",
        "lost: signal:front-door/verdikt: no step of front-door waits under the key verdikt, so far",
        "lost: run:x: there is no workflow x, so far",
    ]


async def test_a_data_directorys_administrator_that_was_not_seen_for_long_is_named(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("admin-0a1b2c3d", "admin-of-the-shop"):
        await operations.add_operator(door.services.registry, name, rights=["admin"], by="user:system")
    assert await look(door) == []
    monkeypatch.setattr(doctor_gateway, "FORGOTTEN", timedelta(seconds=-1))
    told = [repair for result, text, repair in await look(door) if result == "warning"]
    assert any("`wayside operator revoke admin-0a1b2c3d`" in repair for repair in told)
    assert not any("shop" in repair for repair in told)


async def test_a_rotation_that_was_not_finished_and_a_key_of_two_devices_are_named(door: Door) -> None:
    async with await door.operator("read"), door.admin() as admin:
        await admin.post("/api/v1/operators/somebody/rotate")
    for name in ("one", "two"):
        async with await door.device("signal:front-door/verdict", name=name):
            pass
    operators, bridge = await look(door, bridge=True)
    assert operators[2].startswith("`wayside operator rotate somebody --finish`")
    assert "front-door/verdict (one, two)" in bridge[1]


async def test_a_gateway_that_is_not_ready_is_broken(door: Door) -> None:
    async def away() -> list[str]:
        return ["store"]

    door.app._not_ready = away
    ((result, text, _),) = await look(door)
    assert (result, text) == ("failed", "gateway: it is not ready: store")


def test_instances_that_were_killed_and_waits_past_their_deadline_are_named() -> None:
    key = Key("front-door", "verdict")
    beats = {"one": 5, "two": 3_600, "me": 3_600}
    doors = {
        "instance": "me",
        "instances": [
            {"instance": name, "last_beat": (NOW - timedelta(seconds=ago)).isoformat()} for name, ago in beats.items()
        ],
    }
    ((_, text, _),) = wrong(doctor_gateway._instances(doors, NOW))
    assert text.startswith("instances: two was last heard of 3600 s ago")
    waits = [
        {"workflow": key.workflow, "key": key.key, "deadline": (NOW + timedelta(seconds=s)).isoformat()}
        for s in (-30, 30)
    ]
    assert wrong(doctor_gateway._waits(waits, NOW)) == []
    waits[0]["deadline"] = (NOW - timedelta(seconds=90)).isoformat()
    ((_, text, _),) = wrong(doctor_gateway._waits(waits, NOW))
    assert text.startswith("waits: 1 waits are past their deadline")


def test_a_clock_that_was_stepped_is_told() -> None:
    assert wrong([doctor_gateway._clock(NOW - timedelta(days=4_000))])
