"""Proves that `wayside doctor --broker` finds planted mistakes in an access list, and none where there is none."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support.behind import Behind, behind
from tests.support.brokers import Broker
from tests.support.command import Ran, wayside

pytestmark = pytest.mark.asyncio(loop_scope="module")

PASSWORD = "the-bridge-s-own"
SIGNALS, REPLIES, GATEWAY = (
    "pattern write d/%u/signals/#",
    "pattern read d/%u/replies/#",
    "pattern read gateway/+/status",
)
ANYBODY = ("allow_anonymous false", "allow_anonymous true")
NO_PASSWORDS = ("password_file ", "# password_file ")
OWN_IDS = "use_username_as_clientid true"
FREE_IDS = (OWN_IDS, f"# {OWN_IDS}")


@dataclass(frozen=True)
class Mistake:
    """A change of the exported files, and for each check that has to find it what it has to say of the repair.

    Where a line is written in the place of another, the repair has to name that other: with it in its place, the rules
    are those of "none" again. Everything else is a line too many, which the repair has to name as such.
    """

    name: str
    repairs: Mapping[str, str]
    extra: str = ""
    swap: tuple[str, str] = ("", "")
    settings: tuple[tuple[str, str], ...] = ()


MISTAKES = (
    Mistake("none", {}),
    Mistake(
        "a rule that names no user",
        {"publish as another": SIGNALS, "will as another": SIGNALS},
        swap=(SIGNALS, "pattern write d/+/signals/#"),
    ),
    Mistake(
        "the short form for everybody",
        {"short form of another": "no pattern write signals/#"},
        extra="pattern write signals/#",
    ),
    Mistake(
        "replies may be heard by everybody",
        {"listen to another": REPLIES},
        swap=(REPLIES, "pattern read d/+/replies/#"),
    ),
    Mistake(
        "a device may write under all of d",
        {
            "answer another": "no pattern write wider than d/%u/signals/#, such as d/#",
            "publish as another": "no wider one such as d/+/signals/# or d/#",
            "will as another": "no wider one",
        },
        extra="pattern write d/#",
    ),
    Mistake(
        "devices may send commands, and hear each other's presence",
        {
            "publish anywhere": "no pattern write # or wayside-doctor/#",
            "listen to another": "no pattern read d/+/status",
        },
        extra="pattern write wayside-doctor/#\npattern read d/+/status",
    ),
    Mistake(
        "devices may speak as the gateway",
        {"speak as the gateway": GATEWAY},
        swap=(GATEWAY, "pattern readwrite gateway/+/status"),
    ),
    Mistake("a device does not hear its replies", {"own topics": REPLIES}, swap=(REPLIES, "")),
    Mistake("client ids are free", {"take over a session": f"{OWN_IDS}, under each listener"}, settings=(FREE_IDS,)),
    Mistake(
        "anybody gets in",
        {
            "anonymous": "allow_anonymous false",
            "password": "password_file …/wayside.passwd and allow_anonymous false",
            "take over a session": OWN_IDS,
        },
        settings=(ANYBODY, NO_PASSWORDS, FREE_IDS),
    ),
)


@dataclass
class Site:
    """A gateway and its Mosquitto with exported rules, into which one mistake after the other is planted."""

    bridged: Behind
    settings: str = field(init=False)

    @property
    def directory(self) -> Path:
        return self.bridged.broker.directory

    async def prepare(self) -> None:
        """Write the export, and keep its settings, but for those that the tests' own configuration has too."""
        data, environment = self.bridged.gateway.data, dict[str, Any](self.bridged.settings)
        await wayside("device", "export", "mosquitto", "--to", str(self.directory), "--data", str(data), **environment)
        text = (self.directory / "wayside.conf").read_text()
        doubles = {"persistence true", "max_queued_messages 100000"}
        # What the broker's file begins with is its listener: this option goes under it, and is not in the export.
        self.settings = "\n".join([OWN_IDS, *(line for line in text.splitlines() if line not in doubles)])

    async def plant(self, mistake: Mistake) -> Path:
        """Plant settings now, and rules whenever the broker is told to read them; give the command that tells it."""
        broker, settings = self.bridged.broker, self.settings
        for right, wrong in mistake.settings:
            assert right in settings
            settings = settings.replace(right, wrong)
        if broker.settings != settings:
            broker.settings = settings
            await broker.end()
            await broker.start()
            await self.bridged.ready()
        right, wrong = mistake.swap
        assert broker.process is not None
        command = self.directory / "reload.sh"
        acl = self.directory / "wayside.acl"
        command.write_text(
            f"#!/bin/sh\ngrep -vxF '{right or 'no such line'}' {acl} > {acl}.new\n"
            f"echo '{wrong}' >> {acl}.new\necho '{mistake.extra}' >> {acl}.new\nmv {acl}.new {acl}\n"
            f"kill -HUP {broker.process.pid}\n"
        )
        command.chmod(0o700)
        return command

    async def doctor(self, reload: Path) -> Ran:
        given: dict[str, Any] = dict(self.bridged.settings)
        return await wayside(
            "doctor", "--broker", "--export", "mosquitto", "--to", str(self.directory), "--reload", str(reload),
            "--data", str(self.bridged.gateway.data), "--json", status=None, **given,
        )  # fmt: skip


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    directory = tmp_path_factory.mktemp("doctor")
    broker = Broker("mosquitto", directory / "broker")
    url = f"mqtt://wayside-bridge:{PASSWORD}@127.0.0.1:{broker.port}"
    async with behind(directory, broker, WAYSIDE_BRIDGE__URL=url, WAYSIDE_BRIDGE__VERIFIERS="mosquitto") as bridged:
        made = Site(bridged)
        await made.prepare()
        yield made


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda it: it.name)
async def test_the_doctor_finds_the_mistake_and_names_the_line_that_repairs_it(mistake: Mistake, site: Site) -> None:
    ran = await site.doctor(await site.plant(mistake))
    findings = json.loads(ran.out)["findings"]
    failed = {it["check"]: it["repair"] for it in findings if it["result"] == "failed"}
    assert set(failed) == set(mistake.repairs), findings
    for check, line in mistake.repairs.items():
        rule, _, repair = failed[check].partition(". Mosquitto: ")
        assert rule.startswith("missing: ")
        assert line in repair
    assert ran.status == (1 if mistake.repairs else 0)
    assert len(findings) >= 13 or "own topics" in failed, "every attempt was made"
    async with site.bridged.api() as api:
        assert (await api.get("/devices")).json()["devices"] == []
