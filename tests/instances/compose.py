"""The topologies of `deploy/docker` as processes, with the very arguments and settings of the compose files.

    python -m tests.instances.compose [single postgres nats]

There is no Docker in it: addresses, paths and passwords are put in place of the containers', and the rest stands as
it is. A device signals through each topology until a run has ended by it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.support.mosquitto import free_port
from tests.support.nats import program as nats_program
from tests.support.plain_mqtt import PlainClient, Refused
from tests.support.postgres import database, shared_server

DOCKER = Path(__file__).resolve().parents[2] / "deploy" / "docker"
ROOT = DOCKER.parents[1]
WORKFLOW = """
name: door
jobs:
  - name: main
    steps:
      - name: verdict
        task: { type: wait_for_signal, key: verdict, timeout: 600 }
"""


def compose(name: str) -> dict[str, Any]:
    """Read a compose file; passwords that it takes from the environment are `secret`."""
    text = re.sub(r"\$\{[A-Z_]+:\?\}", "secret", (DOCKER / f"{name}.yaml").read_text())
    found: dict[str, Any] = yaml.safe_load(text)
    return found


class Host:
    """Starts processes in a directory, with other words in place of the containers'."""

    def __init__(self, directory: Path, stack: AsyncExitStack, words: Mapping[str, str]) -> None:
        self.directory = directory
        self.words = {"0.0.0.0": "127.0.0.1", "/workflows": str(directory / "workflows"), **words}
        self._stack = stack
        (directory / "workflows").mkdir()
        (directory / "workflows" / "door.yaml").write_text(WORKFLOW)

    def replaced(self, text: str) -> str:
        for word, other in self.words.items():
            text = text.replace(word, other)
        return text

    async def run(self, name: str, service: Mapping[str, Any], **ports: int) -> Process:
        """Start the gateway's command of a service; `--mqtt` and `--http` get the ports given."""
        arguments = [self.replaced(word) for word in service["command"]]
        for option, port in ports.items():
            arguments[arguments.index(f"--{option}") + 1] = f"127.0.0.1:{port}"
        settings = {key: self.replaced(value) for key, value in service.get("environment", {}).items()}
        data = {"WAYSIDE_DATA": str(self.directory / name)}
        (self.directory / name).mkdir(mode=0o700, exist_ok=True)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gateway.cli", *arguments,
            stdin=DEVNULL, stdout=PIPE, stderr=(self.directory / f"{name}.log").open("wb"), cwd=ROOT,
            env={**os.environ, **settings, **data},
        )  # fmt: skip
        self._stack.push_async_callback(_end, process)
        return process

    async def serve(self, name: str, service: Mapping[str, Any], *, again: int = 0) -> httpx.AsyncClient:
        """Start a gateway, `again` if it ends as a container would be; give a client of its API."""
        http, mqtt = free_port(), free_port()
        for _ in range(again + 1):
            process = await self.run(name, service, mqtt=mqtt, http=http)
            assert process.stdout is not None
            if (await asyncio.wait_for(process.stdout.readline(), 60)).startswith(b"ready"):
                break
            await asyncio.sleep(1)
        else:
            raise AssertionError((self.directory / f"{name}.log").read_text())
        self.mqtt = mqtt
        token = (self.directory / name / "admin.token").read_text().strip()
        client = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{http}", headers={"authorization": f"Bearer {token}"}, timeout=30,
            trust_env=False,
        )  # fmt: skip
        self._stack.push_async_callback(client.aclose)
        # What the image's health check asks.
        for _ in range(100):
            if (await client.get("/readyz")).status_code == 200:
                return client
            await asyncio.sleep(0.1)
        raise AssertionError((await client.get("/readyz")).text)


async def _end(process: Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def signal_moves_a_run(apis: list[httpx.AsyncClient], port: int, *, broker: bool = False) -> None:
    """Start a run at the first gateway, signal it by MQTT, and see it end at the last."""
    added = await apis[0].post("/api/v1/devices", json={"device": "camera", "grants": ["signal:door"]})
    added.raise_for_status()
    started = await apis[0].post("/api/v1/workflows/door/runs", json={"inputs": {}})
    started.raise_for_status()
    run = started.json()["run"]
    heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    prefix = "d/camera/" if broker else ""
    async with asyncio.timeout(60):
        while (await apis[-1].get(f"/api/v1/runs/{run}")).json().get("status") != "suspended":
            await asyncio.sleep(0.1)
        client = None
        while client is None:
            # The broker hears of a new device within seconds.
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, Refused):
                client = await PlainClient.connect(
                    port, "camera", added.json()["token"], client_id="camera", replies=f"{prefix}replies/#",
                    heard=lambda _, payload: heard.put_nowait(json.loads(payload)),
                )  # fmt: skip
            await asyncio.sleep(0.1)
        await client.publish(f"{prefix}signals/door/verdict", b"{}")
        assert (await heard.get())["ok"]
        await client.close()
        while (await apis[-1].get(f"/api/v1/runs/{run}")).json()["status"] != "succeeded":
            await asyncio.sleep(0.1)


async def single(directory: Path, stack: AsyncExitStack) -> None:
    host = Host(directory, stack, {})
    api = await host.serve("data", compose("single")["services"]["gateway"])
    await signal_moves_a_run([api], host.mqtt)


async def postgres(directory: Path, stack: AsyncExitStack) -> None:
    services = compose("postgres")["services"]
    url = await stack.enter_async_context(database(shared_server()))
    port = free_port()
    words = {
        "postgresql://wayside:secret@postgres:5432/wayside": url,
        "mosquitto:1883": f"127.0.0.1:{port}",
        "/mosquitto/wayside": str(directory / "rules"),
    }
    host = Host(directory, stack, words)
    (directory / "rules").mkdir()
    (directory / "kept").mkdir()
    first = await host.run("rules-first", services["rules-first"])
    assert await first.wait() == 0, (directory / "rules-first.log").read_text()
    configuration = (DOCKER / "mosquitto.conf").read_text()
    for word, other in {
        "listener 1883": f"listener {port} 127.0.0.1", "/mosquitto/wayside": str(directory / "rules"),
        "/mosquitto/data/": f"{directory}/kept/",
    }.items():  # fmt: skip
        assert word in configuration
        configuration = configuration.replace(word, other)
    (directory / "mosquitto.conf").write_text(("user root\n" if os.geteuid() == 0 else "") + configuration)
    program = shutil.which("mosquitto", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program, "mosquitto is not installed"
    broker = await asyncio.create_subprocess_exec(
        program, "-c", str(directory / "mosquitto.conf"), stdin=DEVNULL, stdout=DEVNULL,
        stderr=(directory / "mosquitto.log").open("wb"),
    )  # fmt: skip
    stack.push_async_callback(_end, broker)
    host.words["kill -HUP 1"] = f"kill -HUP {broker.pid}"
    await host.run("rules", services["rules"])
    apis = [await host.serve(name, services[name]) for name in ("gateway1", "gateway2")]
    await signal_moves_a_run(apis, port, broker=True)


async def nats(directory: Path, stack: AsyncExitStack) -> None:
    services = compose("nats")["services"]
    servers = ["nats1", "nats2", "nats3"]
    words = {f"{name}:{port}": f"127.0.0.1:{free_port()}" for name in servers for port in (4222, 6222)}
    host = Host(directory, stack, words)
    for name in servers:
        configuration = host.replaced((DOCKER / "nats.conf").read_text())
        configuration = configuration.replace("127.0.0.1:4222", words[f"{name}:4222"])
        configuration = configuration.replace("127.0.0.1:6222", words[f"{name}:6222"])
        configuration = configuration.replace('"/data"', f'"{directory / name}"')
        (directory / f"{name}.conf").write_text(configuration)
        process = await asyncio.create_subprocess_exec(
            nats_program(), "--config", str(directory / f"{name}.conf"), stdin=DEVNULL, stdout=DEVNULL,
            stderr=(directory / f"{name}.log").open("wb"), env={**os.environ, **services[name]["environment"]},
        )  # fmt: skip
        stack.push_async_callback(_end, process)
    apis = [await host.serve(name, services[name], again=20) for name in ("gateway1", "gateway2", "gateway3")]
    await signal_moves_a_run(apis, host.mqtt)


TOPOLOGIES = {"single": single, "postgres": postgres, "nats": nats}


async def main(chosen: list[str]) -> None:
    """Run the command."""
    for name in chosen or list(TOPOLOGIES):
        with tempfile.TemporaryDirectory(prefix="wayside-compose-") as directory:
            async with AsyncExitStack() as stack:
                await TOPOLOGIES[name](Path(directory), stack)
        print(f"{name}.yaml as processes: a device's signal moved a run", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
