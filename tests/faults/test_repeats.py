"""Proves that a signal sent a thousand times, on twenty connections while the gateway is killed, is one signal."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest_asyncio

from engine.store.open import open_store
from tests.faults.doors import AGAIN, ByHttp, ByWebSocket, at_doors
from tests.faults.judging import accepted
from tests.faults.simulated import Simulated
from tests.support.serving import Gateway

# A device may have eight connections over MQTT; the others are at HTTP and on WebSockets.
MQTT, HTTP, WEBSOCKET, TIMES, KILLS = 8, 6, 6, 50, 3
LIMITS = {
    f"WAYSIDE_LIMITS__{what}_{how}": "10000" for what in ("SIGNALS", "CONNECTS") for how in ("PER_SECOND", "BURST")
}
WORKFLOW = """
name: {name}
jobs:
  - name: main
    steps:
      - name: verdict
        task: {{ type: wait_for_signal, key: verdict, acceptEarly: 600, timeout: 600 }}
"""


@pytest_asyncio.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    """End what a test started, however it ends itself."""
    async with AsyncExitStack() as stack:
        yield stack


async def serving(directory: Path, stack: AsyncExitStack, *workflows: str) -> Gateway:
    """Start a gateway with these workflows; it ends with the test, however that ends."""
    gateway = Gateway(directory / "data", environment=LIMITS)
    (gateway.data / "workflows").mkdir(parents=True)
    gateway.data.chmod(0o700)
    for name in workflows:
        (gateway.data / "workflows" / f"{name}.yaml").write_text(WORKFLOW.format(name=name))
    stack.push_async_callback(gateway.kill)
    await gateway.start()
    return gateway


async def repeat(sender: Simulated, replies: list[dict[str, Any]]) -> None:
    """Send the signal again and again on one connection, each time until it is answered."""
    for _ in range(TIMES):
        if isinstance(sender, ByHttp | ByWebSocket):
            while (reply := await sender.ask({"n": 1}, "alarm")) is None or reply.get("error") in AGAIN:
                await asyncio.sleep(0.02)
        else:
            reply = await sender.exchange("signals/door/verdict/alarm", b'{"n":1}', "alarm")
        replies.append(dict(reply))


class Quiet(Simulated):
    """A connection over MQTT that leaves the counting to its caller."""

    def _note(self, reply: dict[str, Any]) -> None:
        """Keep nothing."""


async def test_one_signal_sent_a_thousand_times_while_the_gateway_is_killed_is_the_outcome_of_one_wait(
    tmp_path: Path, stack: AsyncExitStack
) -> None:
    gateway = await serving(tmp_path, stack, "door")
    replies: list[dict[str, Any]] = []
    async with gateway.client() as api:
        token = await gateway.add_device(api, "camera", ["signal:door/verdict"])
        who, at = ("door", token, gateway.mqtt, random.Random(1)), f"127.0.0.1:{gateway.http}"
        senders: list[Simulated] = [Quiet(*who, device="camera", client_id=f"camera-{n}") for n in range(MQTT)]
        senders += [ByHttp(*who, at=at) for _ in range(HTTP)] + [ByWebSocket(*who, at=at) for _ in range(WEBSOCKET)]
        async with asyncio.timeout(90), asyncio.TaskGroup() as group:
            for each in senders:
                group.create_task(repeat(each, replies))
            for number in range(1, KILLS + 1):
                # A run takes it; then others wait for the same key while it is sent still.
                await _until(lambda number=number: len(replies) >= number * 200)
                await gateway.kill()
                await gateway.start()
                (await api.post("/workflows/door/runs", json={})).raise_for_status()
        for each in senders:
            await each.close()
        statuses = sorted(run["status"] for run in (await api.get("/runs")).json()["runs"])
    assert await gateway.stop() == 0

    assert len(replies) == (MQTT + HTTP + WEBSOCKET) * TIMES == 1_000
    assert all(reply["ok"] for reply in replies), {reply.get("error") for reply in replies}
    assert len({reply["receipt"] for reply in replies}) == 1
    assert statuses == ["failed", "succeeded", "suspended"]  # the third found its key held by the second
    assert await _outcomes(gateway.data) == [{"n": 1}]


async def _until(true: Any) -> None:
    while not true():
        await asyncio.sleep(0.005)


async def _outcomes(data: Path) -> list[Any]:
    store = open_store(str(data / "wayside.db"))
    try:
        return [json.loads(bytes(each.payload)) for each in await accepted(store)]
    finally:
        await store.close()


async def test_a_signal_id_that_comes_with_another_payload_is_refused_by_name_at_every_door(
    tmp_path: Path, stack: AsyncExitStack
) -> None:
    gateway = await serving(tmp_path, stack, "door", "gate")
    async with gateway.client() as api:
        token = await gateway.add_device(api, "camera", ["signal:door/verdict"])
    plain = Simulated("door", token, gateway.mqtt, random.Random(1))
    senders = await at_doors(gateway, [plain] * 10, ["mqtt", "http", "websocket", "cli"])
    # The command line is an operator's, another sender: it signals a key at which nothing of the device's is held.
    senders[9].name = "gate"
    told = {}
    for each in (senders[0], senders[1], senders[2], senders[9]):
        each.device, each.number = "camera", 7
        await each.signal("alarm")
        each.number = 8
        await each.signal("alarm")
        await each.close()
        told[each.door] = dict(each.answers)
    assert await gateway.stop() == 0
    assert told == {door: {"accepted": 1, "signal_id_reused": 1} for door in ("mqtt", "http", "websocket", "cli")}
