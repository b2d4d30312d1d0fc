"""Proves that the configurations in `deploy/` start as they are, let a device signal, and open one door alone."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.behind import behind, ear
from tests.support.brokers import Broker
from tests.support.command import wayside
from tests.support.mosquitto import free_port

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
PASSWORD = "the-bridge-s-own"


@dataclass
class Deployed(Broker):
    """A broker that is started by its configuration in `deploy/`, but for its ports, in a directory of its own.

    What a container's has as `/mosquitto` is that directory, and the plugin, which is not to be had, is left out.
    """

    given: str = ""

    def _command(self) -> list[str]:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin"
        if self.kind == "mosquitto":
            program, given = shutil.which("mosquitto", path=path), "mosquitto/mosquitto.conf"
        else:
            program, given = shutil.which("nats-server", path=path), "nats/nats.conf"
        assert program
        text = (DEPLOY / (self.given or given)).read_text()
        text = re.sub(r"^listener 1883( 127\.0\.0\.1)?$", f"listener {self.port} 127.0.0.1", text, flags=re.MULTILINE)
        text = re.sub(r"^auth_.*$", "", text, flags=re.MULTILINE).replace(" /mosquitto/", f" {self.directory}/")
        text = re.sub(r"^  port: 1883", f"  port: {self.port}", text, flags=re.MULTILINE)
        text = text.replace("127.0.0.1:4222", "127.0.0.1:-1")
        if self.kind == "mosquitto" and os.geteuid() == 0:
            text = "user root\n" + text
        (self.directory / "broker.conf").write_text(text)
        (self.directory / "data").mkdir(exist_ok=True)
        return ["/bin/sh", "-c", f"cd '{self.directory}' && exec '{program}' -c broker.conf"]

    def listens_on(self) -> list[tuple[str, int]]:
        """List the sockets on which it takes connections."""
        assert self.process is not None
        sockets = psutil.Process(self.process.pid).net_connections("tcp")
        return [(it.laddr.ip, it.laddr.port) for it in sockets if it.status == psutil.CONN_LISTEN]


@asynccontextmanager
async def exported(tmp_path: Path, broker: Broker, to: Path) -> AsyncIterator[tuple[str, str]]:
    """Add a device, write the export where the configuration expects it, and give its name and token."""
    data = tmp_path / "data"
    environment: dict[str, Any] = {"WAYSIDE_BRIDGE__VERIFIERS": broker.kind}
    environment["WAYSIDE_BRIDGE__URL"] = f"mqtt://wayside-bridge:{PASSWORD}@127.0.0.1:{broker.port}"
    added = await wayside(
        "device", "add", "camera", "--grant", "signal:porch/verdict", "--data", str(data), "--json", **environment
    )
    await wayside("device", "export", broker.kind, "--to", str(to), "--data", str(data), **environment)
    assert (to / ("wayside.passwd" if broker.kind == "mosquitto" else "wayside-users.conf")).stat().st_mode & 0o077 == 0
    yield "camera", added.json["token"]


@pytest.mark.parametrize("kind", ["mosquitto", "nats"])
async def test_the_configuration_starts_as_it_is_and_a_device_signals_through_it(kind: str, tmp_path: Path) -> None:
    broker = Deployed("mosquitto" if kind == "mosquitto" else "nats", tmp_path / "broker", port=free_port())
    to = tmp_path / "broker" / "wayside" if kind == "mosquitto" else tmp_path / "broker"
    url = f"mqtt://wayside-bridge:{PASSWORD}@127.0.0.1:{broker.port}"
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o700)
    async with exported(tmp_path, broker, to) as (name, token):
        shutil.rmtree(tmp_path / "data" / "workflows", ignore_errors=True)
        async with (
            behind(tmp_path, broker, WAYSIDE_BRIDGE__URL=url, WAYSIDE_BRIDGE__VERIFIERS=kind),
            ear(broker.port, name, f"d/{name}/replies/#", password=token) as camera,
        ):
            _, reply = await camera.ask("signals/porch/verdict/s1", {"n": 1})
            assert (reply["id"], reply["ok"]) == ("s1", True)
            # And its rules hold, as the doctor finds: NATS alone has none for client ids.
            assert broker.process is not None
            ran = await wayside(
                "doctor", "--broker", "--export", kind, "--to", str(to), "--reload", f"kill -HUP {broker.process.pid}",
                "--data", str(tmp_path / "data"), "--json",
                WAYSIDE_BRIDGE__URL=url, WAYSIDE_BRIDGE__VERIFIERS=kind,
            )  # fmt: skip
            found = {it["check"]: it["result"] for it in ran.json["findings"]}
            assert len(found) >= 10
            assert found.pop("take over a session") == ("ok" if kind == "mosquitto" else "warning")
            assert set(found.values()) == {"ok"}


@pytest.mark.parametrize("given", ["mosquitto/mosquitto.conf", "mosquitto/go-auth.conf", "docker/mosquitto.conf"])
async def test_mosquitto_listens_where_its_configuration_says_and_nowhere_else(given: str, tmp_path: Path) -> None:
    broker = Deployed("mosquitto", tmp_path / "broker", given=given)
    (tmp_path / "data").mkdir(mode=0o700)
    async with exported(tmp_path, broker, tmp_path / "broker" / "wayside"), broker:
        assert broker.listens_on() == [("127.0.0.1", broker.port)]
    # Each of them has the rule that the export cannot have.
    text = (DEPLOY / given).read_text()
    assert re.findall(r"^listener .*\n(.*)$", text, flags=re.MULTILINE) == ["use_username_as_clientid true"]
