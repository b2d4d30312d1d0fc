"""Proves that the README's commands work as pasted: bash runs its code blocks, on other ports."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from engine.store.open import open_store
from tests.support.command import serving as serving_gateway
from tests.support.mosquitto import free_port

ROOT = Path(__file__).parents[2]
# The lines that install; the tests' own environment stands in for what they make.
SET_UP = r"(?:python3 -m venv|\.venv/bin/pip install)"


def blocks(heading: str, page: str = "README.md") -> list[str]:
    """Take the shell blocks of one section, as somebody would copy them."""
    text = (ROOT / page).read_text()
    section = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^```sh\n(.*?)^```", section, flags=re.MULTILINE | re.DOTALL)


def checkout(directory: Path) -> None:
    """Lay out what the commands find in a checkout where deploy/demo has been run."""
    (directory / "deploy").symlink_to(ROOT / "deploy")
    (directory / ".venv/bin").mkdir(parents=True)
    (directory / ".venv/bin/wayside").symlink_to(Path(sys.executable).with_name("wayside"))
    python = directory / ".venv/bin/python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)


def without_installing(block: str) -> str:
    return re.sub(rf"^{SET_UP}.*\n", "", block, flags=re.MULTILINE)


async def bash(script: str, directory: Path) -> Process:
    assert shutil.which("mosquitto_pub"), "mosquitto-clients is not installed; deploy/test installs it"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WAYSIDE_")}
    return await asyncio.create_subprocess_exec(
        "bash", "-euc", script, cwd=directory, env=environment, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT
    )


@asynccontextmanager
async def serving(script: str, directory: Path) -> AsyncIterator[None]:
    """Run the block that serves, up to the line that says it is ready; end it with SIGTERM."""
    gateway = await bash(script.replace("wayside serve", "exec wayside serve"), directory)
    assert gateway.stdout
    said = []
    try:
        async with asyncio.timeout(30):
            while line := (await gateway.stdout.readline()).decode():
                said.append(line)
                if line.startswith("ready"):
                    break
            else:
                raise AssertionError("the gateway did not start: " + "".join(said))
        drain = asyncio.create_task(gateway.stdout.read())
        yield
        gateway.terminate()
        await drain
        assert await gateway.wait() == 0
    finally:
        if gateway.returncode is None:
            gateway.kill()
            await gateway.wait()


async def test_the_commands_of_the_readme_move_a_run_as_they_stand(tmp_path: Path) -> None:
    checkout(tmp_path)
    serve, *device = map(without_installing, blocks("The same by hand"))
    mqtt, http = free_port(), free_port()
    script = "\n".join(device).replace("1883", str(mqtt)) + "\nkill %1 2>/dev/null || true\n"
    async with serving(serve.replace("1883", str(mqtt)).replace("8080", str(http)), tmp_path), asyncio.timeout(120):
        program = await bash(script, tmp_path)
        out = (await program.communicate())[0].decode()
    assert program.returncode == 0, out
    replies = [line.split(" ", 1) for line in out.splitlines() if line.startswith("replies/")]
    assert [topic.rpartition("/")[2] for topic, _ in replies] == ["rejected", "accepted", "accepted"], out
    assert '"code":422' in replies[0][1]
    assert '"error":"invalid_payload"' in replies[0][1]
    assert all('"code":202' in payload for _, payload in replies[1:])
    assert out.count("succeeded") >= 3, out  # the first run and its step, and the run that took the early signal


async def test_what_the_readme_says_of_people_programs_and_tls_works_as_it_stands(tmp_path: Path) -> None:
    checkout(tmp_path)
    ports = {number: str(free_port()) for number in ("1883", "8080", "8883", "8443")}

    def moved(script: str) -> str:
        for number, port in ports.items():
            script = script.replace(f":{number}", f":{port}")
        return script

    path = 'export PATH="$PWD/.venv/bin:$PATH"\n'
    serve = without_installing(blocks("The same by hand")[0])
    async with serving(moved(serve), tmp_path), asyncio.timeout(120):
        program = await bash(path + moved(without_installing("".join(blocks("People and programs")))), tmp_path)
        out = (await program.communicate())[0].decode()
    assert program.returncode == 0, out
    assert '"status":"succeeded"' in out
    assert "event: end" in out
    assert '"type":"subscribed"' in out
    assert '"action":"signal.held"' in out
    assert "event(s) of" in out
    assert "as written" in out
    init, serve_tls = blocks("TLS")[0].splitlines()
    program = await bash(path + init, tmp_path)
    assert (await program.communicate(), program.returncode)[1] == 0
    async with serving(path + moved(serve_tls), tmp_path), asyncio.timeout(60):
        program = await bash(path + moved(blocks("TLS")[1]), tmp_path)
        out = (await program.communicate())[0].decode()
    assert program.returncode == 0, out
    assert '"status":"ok"' in out


async def test_the_backup_of_a_running_gateway_s_store_is_whole_and_its_owner_s_alone(data: Path) -> None:
    (command,) = blocks("Backup", "deploy/README.md")
    async with serving_gateway(data) as gateway:
        await gateway.typed("device", "add", "camera")
        program = await bash(f"umask 022; {command}".replace("/var/lib/wayside/", f"{data}/"), data.parent)
        out = (await program.communicate())[0].decode()
    assert program.returncode == 0, out
    made = data.parent / "backup.db"
    assert made.stat().st_mode & 0o777 == 0o600
    backup = open_store(str(made))
    assert await backup.list("devices/camera/")
    await backup.close()
