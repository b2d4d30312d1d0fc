"""Proves that a file of devices is added whole or not at all, that no token is lost, and that it may be run again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import stat
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from devices.credentials import digest
from engine.errors import BadInput
from gateway.cli import devices, importing, invocation
from gateway.cli.client import Client
from tests.gateway.http.conftest import Door, door

__all__ = ["door"]
FILE = """\
name,grants,note
# the kitchen
camera,signal:front-door/verdict;read:front-door,"over the door, left"
bell,listen:d/+/status  signal:front-door/*

lock,
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "devices.csv"
    made.write_text(FILE)
    return made


@pytest.fixture(autouse=True)
def admin(door: Door, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The commands reach the gateway of `door`, and answer in JSON."""

    @contextlib.asynccontextmanager
    async def connect(*_: object, **__: object) -> AsyncIterator[Client]:
        async with door.admin() as http:
            yield Client(http, local=False)

    for module in (importing, devices):
        monkeypatch.setattr(module, "connect", connect)
    invocation.set_current(invocation.Invocation(json=True))
    yield
    invocation.set_current(invocation.Invocation())


async def run(file: Path, tokens: Path | None = None, *, dry_run: bool = False) -> None:
    await importing._import(file, tokens, dry_run=dry_run)


async def listed(door: Door) -> dict[str, dict[str, Any]]:
    async with door.admin() as http:
        return {it["device"]: it for it in (await http.get("/api/v1/devices")).json()["devices"]}


async def test_all_of_a_file_is_added_and_each_token_is_told_once(
    door: Door, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await run(file, dry_run=True)
    assert json.loads(capsys.readouterr().out) == {
        "dry_run": True, "would_add": ["camera", "bell", "lock"], "unchanged": [],
    }  # fmt: skip
    assert await listed(door) == {}
    await run(file)
    told = json.loads(capsys.readouterr().out)
    assert [it["device"] for it in told["added"]] == ["camera", "bell", "lock"]
    there = await listed(door)
    assert {name: it["grants"] for name, it in there.items()} == {
        "camera": ["signal:front-door/verdict", "read:front-door"],
        "bell": ["listen:d/+/status", "signal:front-door"],
        "lock": [],
    }
    assert there["camera"]["note"] == "over the door, left"
    for it in told["added"]:
        owner = door.services.registry.owner(digest(it["token"]))
        assert owner is not None
        assert owner.name == it["device"]
    await run(file)
    assert json.loads(capsys.readouterr().out) == {"added": [], "unchanged": ["camera", "bell", "lock"]}


async def test_tokens_go_into_a_new_file_for_its_owner_alone_as_they_are_made(
    door: Door, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens, calls = tmp_path / "tokens.csv", 0
    post = Client.post

    async def breaks_off(self: Client, path: str, body: object = None) -> dict[str, Any]:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise asyncio.CancelledError
        return await post(self, path, body)

    with monkeypatch.context() as patched:
        patched.setattr(Client, "post", breaks_off)
        with pytest.raises(asyncio.CancelledError):
            await run(file, tokens)
    assert stat.S_IMODE(tokens.stat().st_mode) == 0o600
    header, *lines = tokens.read_text().splitlines()
    assert (header, [line.split(",")[0] for line in lines]) == ("device,token", ["camera", "bell"])
    assert all(line.split(",")[1].startswith("wsd_") for line in lines)
    with pytest.raises(BadInput, match="cannot be made"):
        await run(file, tokens)
    assert set(await listed(door)) == {"camera", "bell"}
    await run(file, tmp_path / "rest.csv")
    assert json.loads(capsys.readouterr().out) == {"added": ["lock"], "unchanged": ["camera", "bell"]}


async def test_what_the_list_prints_is_read_back_with_state_note_and_limits(
    door: Door, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await run(file)
    await devices._limit("camera", {"signals": {"per_second": 50.0, "burst": 100}})
    async with door.admin() as http:
        await http.post("/api/v1/devices/bell/disable")
        before = await listed(door)
        for name in before:
            await http.delete(f"/api/v1/devices/{name}")
    copy = tmp_path / "list.json"
    copy.write_text(json.dumps({"devices": list(before.values())}))
    await run(copy, tmp_path / "tokens.csv")
    told = ("grants", "note", "state", "limits")
    after = await listed(door)
    assert {name: [it[key] for key in told] for name, it in after.items()} == {
        name: [it[key] for key in told] for name, it in before.items()
    }
    assert (after["bell"]["state"], after["camera"]["limits"]["signals"]["burst"]) == ("disabled", 100)
    await run(copy, dry_run=True)
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["would_add"] == []


async def test_a_device_that_is_there_otherwise_stops_all_of_it(door: Door, file: Path) -> None:
    async with door.admin() as http:
        await http.post("/api/v1/devices", json={"device": "lock", "grants": ["read:front-door"]})
    with pytest.raises(BadInput) as refused:
        await run(file)
    assert [line.partition(";")[0] for line in refused.value.problems] == ["line 6: lock has read:front-door"]
    assert set(await listed(door)) == {"lock"}


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        (
            "name,grants\nA,signal:x\nb,nothing\nc,read:w\nc,\n",
            ["line 2: 'A'", "line 3: 'nothing'", "line 5: c is there"],
        ),
        ("name,grants\na,read:w,note\n", ["line 2: 3 fields"]),
        ('name,grants\na,"read:w\n', ["line 2: "]),
        ("camera,read:w\n", ["line 1: the first line names"]),
        ("name,name\n", ["line 1: the first line names"]),
        ("name,token\na,wsd_x\n", ["line 1: the first line names"]),
        (f"name,note\na,{'x' * 300}\n", ["line 2: a note"]),
        ("name,grants\na,listen:d/#\n", ["line 2: 'listen:d/#'"]),
        ("", ["it is empty"]),
        (
            '{"devices": [{"device": "a", "grants": ["x"]}, {"grants": []}, 7]}',
            ["device 2: ", "device 3: ", "device 1: 'x'"],
        ),
        ('{"devices": [{"device": "a", "state": "deleted"}]}', ["device 1: "]),
        ('[{"name": "a", "limits": {"signals": {"per_second": 0, "burst": 1}}}]', ["device 1: limits: "]),
        ('{"devices": 7}', ["there is no list"]),
        ('{\n"devices": [,]}', ["line 2: "]),
    ],
)
def test_everything_that_is_wrong_is_named_with_its_line(tmp_path: Path, text: str, problems: list[str]) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(BadInput) as refused:
        importing.read(tmp_path / "file")
    assert len(refused.value.problems) == len(problems)
    for said, begins in zip(refused.value.problems, problems, strict=True):
        assert said.startswith(begins)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "5/0", "5/x", "x", "", "1e9", "5/20/3"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        devices._rate("signals", text)


async def test_a_limit_is_set_shown_and_taken_back(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    async with door.admin() as http:
        await http.post("/api/v1/devices", json={"device": "camera"})
        refused = await http.post("/api/v1/devices/camera/limits", json={"signals": {"per_second": 1}})
    assert refused.status_code == 422
    await devices._limit(
        "camera", {"signals": devices._rate("signals", "0.5"), "reads": devices._rate("reads", "5/20")}
    )
    await devices._limit("camera", {"signals": devices._rate("signals", "default")})
    await devices._limit("camera", {})
    said = [json.loads(line)["limits"] for line in capsys.readouterr().out.splitlines()]
    reads = {"per_second": 5.0, "burst": 20}
    assert said == [{"signals": {"per_second": 0.5, "burst": 2}, "reads": reads}, {"reads": reads}, {"reads": reads}]
