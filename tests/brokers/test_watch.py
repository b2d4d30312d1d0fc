"""Proves that an export that watches has a running broker take a new device and drop a revoked one, unrestarted."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from devices.exports import mosquitto, nats
from devices.exports.access import BridgeUser
from devices.exports.verifiers import VerifierKind, maker
from tests.support.behind import Behind, Ear, behind, ear
from tests.support.brokers import Broker
from tests.support.command import start
from tests.support.plain_mqtt import Refused

PASSWORD = "the-bridge-s-own"
SECONDS = 30.0


def guarded(kind: VerifierKind, directory: Path) -> Broker:
    """Give a broker that reads what an export writes into its directory."""
    settings = "include wayside-users.conf"
    if kind == "mosquitto":
        settings = (
            f"allow_anonymous false\npassword_file {directory}/wayside.passwd\nacl_file {directory}/wayside.acl\n"
            "use_username_as_clientid true"
        )
    return Broker(kind, directory, settings=settings)


@contextlib.asynccontextmanager
async def watching(bridged: Behind, kind: VerifierKind) -> AsyncIterator[list[str]]:
    """Run `wayside device export --watch`, whose command to reload fails the first time; give what it says."""
    broker, command = bridged.broker, bridged.broker.directory / "reload.sh"
    assert broker.process is not None
    first = broker.directory / "reloaded"
    command.write_text(f"#!/bin/sh\n[ -e {first} ] || {{ touch {first}; exit 7; }}\nkill -HUP {broker.process.pid}\n")
    command.chmod(0o700)
    process = await start(
        "device", "export", kind, "--to", str(broker.directory), "--watch", "--reload", str(command),
        "--data", str(bridged.gateway.data), **bridged.settings,
    )  # fmt: skip
    assert process.stderr is not None
    said: list[str] = []

    async def collect() -> None:
        assert process.stderr is not None
        while line := await process.stderr.readline():
            said.append(line.decode())

    collecting = asyncio.create_task(collect())
    try:
        yield said
        assert process.returncode is None, said
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await collecting
        assert process.stdout is not None
        await process.stdout.read()
        await process.wait()


@contextlib.asynccontextmanager
async def let_in(broker: Broker, name: str, token: str) -> AsyncIterator[Ear]:
    """Connect as a device as soon as the broker knows it."""
    async with contextlib.AsyncExitStack() as stack:
        async with asyncio.timeout(SECONDS):
            while True:
                with contextlib.suppress(Refused, asyncio.IncompleteReadError, ConnectionError):
                    listening = ear(broker.port, name, f"d/{name}/replies/#", password=token)
                    device = await stack.enter_async_context(listening)
                    break
                # The export looks every second, and nobody is told when the broker has read it.
                await asyncio.sleep(0.1)
        yield device


@pytest.mark.parametrize("kind", ["mosquitto", "nats"])
async def test_a_device_that_is_added_gets_in_and_one_that_is_revoked_goes_without_a_restart(
    kind: VerifierKind, tmp_path: Path
) -> None:
    broker = guarded(kind, tmp_path / "broker")
    url = f"mqtt://wayside-bridge:{PASSWORD}@127.0.0.1:{broker.port}"
    export = mosquitto.export if kind == "mosquitto" else nats.export
    for file in export([], BridgeUser("wayside-bridge", verifiers=maker([kind])(PASSWORD))).files:
        (broker.directory / file.name).write_text(file.text)
        (broker.directory / file.name).chmod(0o600)
    async with (
        behind(tmp_path, broker, WAYSIDE_BRIDGE__URL=url, WAYSIDE_BRIDGE__VERIFIERS=kind) as bridged,
        watching(bridged, kind) as said,
    ):
        async with bridged.api() as api:
            stays = await bridged.gateway.add_device(api, "keeper", ["signal:porch/verdict"])
        async with let_in(broker, "keeper", stays) as keeper:
            if kind == "mosquitto":
                # What watches goes on when the gateway was away.
                assert await bridged.gateway.stop() == 0
                await bridged.start()
            async with bridged.api() as api:
                token = await bridged.gateway.add_device(api, "camera", ["signal:door/verdict"])
                async with let_in(broker, "camera", token) as camera:
                    _, reply = await camera.ask("signals/door/verdict/s1", {"n": 1})
                    assert (reply["id"], reply["error"]) == ("s1", "no_open_wait")
                    (await api.post("/devices/camera/revoke")).raise_for_status()
                    await asyncio.wait_for(camera.client.lost.wait(), SECONDS)
            with pytest.raises((Refused, asyncio.IncompleteReadError)):
                async with ear(broker.port, "camera", "d/camera/replies/#", password=token):
                    pass
            # The same connection of the other one: the broker was not started again.
            _, reply = await keeper.ask("signals/porch/verdict/s2", {"n": 1})
            assert (reply["id"], reply["ok"]) == ("s2", True)
        assert any("ended with status 7; trying again" in line for line in said)
