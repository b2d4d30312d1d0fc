"""Proves that `wayside doctor --broker` finds planted mistakes in an access list, and none where there is none."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.behind import Behind, behind
from tests.support.brokers import Broker
from tests.support.command import Ran, wayside

PASSWORD = "the-bridge-s-own"


@dataclass(frozen=True)
class Mistake:
    """A change of the exported files, and the checks that have to find it."""

    name: str
    checks: frozenset[str]
    add_rule: str = ""
    settings: tuple[tuple[str, str], ...] = ()


MISTAKES = (
    Mistake("none", frozenset()),
    Mistake(
        "a pattern that names no user",
        frozenset({"publish as another", "will as another"}),
        "pattern write d/+/signals/#",
    ),
    Mistake("the short form for everybody", frozenset({"short form of another"}), "pattern write signals/#"),
    Mistake("replies may be heard by everybody", frozenset({"listen to another"}), "pattern read d/+/replies/#"),
    Mistake(
        "a device may write under all of d",
        frozenset({"answer another", "publish as another", "will as another"}),
        "pattern write d/#",
    ),
    Mistake("devices may send commands", frozenset({"publish anywhere"}), "pattern write wayside-doctor/#"),
    Mistake("the gateway's own topics", frozenset({"speak as the gateway"}), "pattern write gateway/#"),
    Mistake(
        "anonymous clients",
        frozenset({"anonymous"}),
        settings=(("allow_anonymous false", "allow_anonymous true"), ("use_username_as_clientid true", "")),
    ),
    Mistake(
        "client ids are free", frozenset({"take over a session"}), settings=(("use_username_as_clientid true", ""),)
    ),
)


class Site:
    """A gateway and its Mosquitto with exported rules, into which a mistake is planted."""

    def __init__(self, bridged: Behind, directory: Path) -> None:
        self.bridged, self.directory = bridged, directory
        self.reload = directory / "reload.sh"

    async def prepare(self, mistake: Mistake) -> None:
        """Write export and settings with the mistake; the reload command plants it again after each export."""
        data = self.bridged.gateway.data
        environment: dict[str, Any] = dict(self.bridged.settings)
        await wayside("device", "export", "mosquitto", "--to", str(self.directory), "--data", str(data), **environment)
        settings = (self.directory / "wayside.conf").read_text().replace("/etc/mosquitto/wayside", str(self.directory))
        for line in ("persistence true", "max_queued_messages 100000"):
            settings = settings.replace(line + "\n", "")
        for before, after in mistake.settings:
            settings = settings.replace(before, after)
        self.bridged.broker.settings = settings
        await self.bridged.broker.end()
        await self.bridged.broker.start()
        assert self.bridged.broker.process is not None
        self.reload.write_text(
            f"#!/bin/sh\necho '{mistake.add_rule}' >> {self.directory}/wayside.acl\n"
            f"kill -HUP {self.bridged.broker.process.pid}\n"
        )
        self.reload.chmod(0o700)

    async def doctor(self) -> Ran:
        given: dict[str, Any] = dict(self.bridged.settings)
        return await wayside(
            "doctor", "--broker", "--export", "mosquitto", "--to", str(self.directory), "--reload", str(self.reload),
            "--data", str(self.bridged.gateway.data), "--json", status=None, **given,
        )  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda it: it.name)
async def test_the_doctor_finds_the_mistake_and_names_the_line_that_repairs_it(
    mistake: Mistake, tmp_path: Path
) -> None:
    broker = Broker("mosquitto", tmp_path / "broker")
    url = f"mqtt://wayside-bridge:{PASSWORD}@127.0.0.1:{broker.port}"
    async with behind(tmp_path, broker, WAYSIDE_BRIDGE__URL=url, WAYSIDE_BRIDGE__VERIFIERS="mosquitto") as bridged:
        site = Site(bridged, tmp_path / "broker")
        await site.prepare(mistake)
        await bridged.logged("bridge connected", 2)
        ran = await site.doctor()
        findings = json.loads(ran.out)["findings"]
        failed = {it["check"]: it for it in findings if it["result"] == "failed"}
        assert set(failed) >= mistake.checks, findings
        assert not failed or mistake.checks, failed
        assert ran.status == (1 if failed else 0)
        assert len(findings) >= 10
        assert all("Mosquitto: " in it["repair"] for it in failed.values())
        async with bridged.api() as api:
            assert (await api.get("/devices")).json()["devices"] == []
