"""Proves that of several gateways one is the active bridge, and the next one takes its session over."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from engine.clock import SystemSource
from engine.store.memory import ManualClock, MemoryStore
from engine.store.open import open_store
from gateway.bridge.claim import Claims
from tests.faults.judging import accepted
from tests.support.behind import Behind, Ear, behind, workflow
from tests.support.brokers import Broker, Kind
from tests.support.serving import Gateway

DEVICES = 6
SIGNALS = 12


async def exchange(device: Ear, topic: str, payload: object) -> dict[str, Any]:
    """Publish until the gateway has answered this very message."""
    while True:
        await device.tell(topic, payload)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(4):
                while True:
                    _, reply = await device.next()
                    if reply["id"] == topic.rsplit("/", 1)[1]:
                        return dict(reply)


async def play(bridged: Behind, name: str, receipts: list[str]) -> None:
    """Signal early and start the run that takes it, again and again; note each receipt as it is told."""
    async with bridged.device(name) as device:
        for number in range(SIGNALS):
            topic = f"d/{name}/signals/{name}/verdict/s{number}"
            while not (told := await exchange(device, topic, {"n": number}))["ok"]:
                # The run before is on its way to take its own.
                assert told["error"] == "early_signal_held"
                await asyncio.sleep(0.1)
            receipts.append(told["receipt"])
            assert (await exchange(device, f"d/{name}/runs/{name}/r{number}", {}))["ok"]


async def applied(data: Path) -> Counter[str]:
    """Count in how many outcomes each receipt is."""
    store = open_store(str(data / "wayside.db"))
    try:
        return Counter(each.receipt for each in await accepted(store))
    finally:
        await store.close()


@pytest.mark.parametrize("kind", ["mosquitto", "nats"])
async def test_the_active_bridge_killed_in_mid_flow_loses_nothing_and_applies_nothing_twice(
    kind: Kind, tmp_path: Path
) -> None:
    limits = {f"WAYSIDE_LIMITS__{it}_{what}": "1000" for it in ("SIGNALS", "RUNS") for what in ("PER_SECOND", "BURST")}
    names = [f"device-{number}" for number in range(DEVICES)]
    async with behind(tmp_path, Broker(kind, tmp_path / "broker"), start=False, **limits) as bridged:
        for name in names:
            (tmp_path / "data" / "workflows" / f"{name}.yaml").write_text(workflow(name, early_seconds=60))
        await bridged.start()
        for name in names:
            await bridged.add(name, f"signal:{name}/verdict", f"run:{name}")
        second = Gateway(bridged.gateway.data, environment=dict(bridged.settings))
        try:
            await second.start()
            await bridged.logged("bridge standby")
            receipts: list[str] = []
            tasks = [asyncio.create_task(play(bridged, name, receipts)) for name in names]
            async with asyncio.timeout(30):
                while len(receipts) < DEVICES * SIGNALS // 4:
                    await asyncio.sleep(0.005)
            await bridged.gateway.kill()
            assert len(receipts) < DEVICES * SIGNALS, "it was killed after everything was done"
            await bridged.logged("bridge connected", 2)
            await asyncio.gather(*tasks)
            assert len(set(receipts)) == DEVICES * SIGNALS
            async with asyncio.timeout(30):
                while set(receipts) - set(found := await applied(bridged.gateway.data)):
                    await asyncio.sleep(0.2)
            assert set(found.values()) == {1}
            assert set(found) == set(receipts)
        finally:
            if second.process is not None and second.process.returncode is None:
                await second.kill()


async def test_a_bridge_that_stops_lets_the_next_one_take_over_at_once(tmp_path: Path, mosquitto: Broker) -> None:
    async with behind(tmp_path, mosquitto) as bridged:
        await bridged.add("camera", "signal:porch/verdict")
        second = Gateway(bridged.gateway.data, environment=dict(bridged.settings))
        try:
            await second.start()
            await bridged.logged("bridge standby")
            assert await bridged.gateway.stop() == 0
            await bridged.logged("bridge connected", 2)
            async with bridged.device("camera") as camera:
                _, reply = await camera.ask("d/camera/signals/porch/verdict/s1", {"n": 1})
                assert reply["ok"]
        finally:
            if second.process is not None and second.process.returncode is None:
                await second.kill()


async def test_over_a_shared_subscription_every_instance_takes_its_part_and_a_signal_needs_an_id(
    tmp_path: Path, mosquitto: Broker
) -> None:
    async with behind(tmp_path, mosquitto, WAYSIDE_BRIDGE__SHARE="wayside") as bridged:
        await bridged.add("camera", "signal:porch/verdict", "run:door", "signal:door/verdict")
        second = Gateway(bridged.gateway.data, environment=dict(bridged.settings))
        try:
            await second.start()
            await bridged.logged("bridge connected", 2)
            async with bridged.device("camera") as camera, bridged.listener("sirens/#") as siren:
                _, reply = await camera.ask("d/camera/signals/porch/verdict", {"n": 1})
                assert reply["error"] == "bad_topic"
                assert (await exchange(camera, "d/camera/runs/door/r1", {}))["ok"]
                answers = [await exchange(camera, f"d/camera/signals/porch/verdict/s{n}", {"n": n}) for n in range(8)]
                assert [reply.get("error", "") for reply in answers] == ["", *["early_signal_held"] * 7]
                await exchange(camera, "d/camera/signals/door/verdict/s1", {"n": 1})
                # The command came out once, and both heard signals.
                assert await siren.next() == ("sirens/door", {"n": 1})
                assert siren.heard.empty()
            assert await signals_at(bridged.gateway) > 0
            assert await signals_at(second) > 0
        finally:
            if second.process is not None and second.process.returncode is None:
                await second.kill()


async def test_over_a_shared_subscription_the_next_to_hand_out_commands_repeats_none_that_a_trace_knows_of(
    tmp_path: Path, mosquitto: Broker
) -> None:
    async with behind(tmp_path, mosquitto, WAYSIDE_BRIDGE__SHARE="wayside") as bridged:
        await bridged.add("camera", "signal:porch/verdict", "run:porch")
        await bridged.logged("bridge hands out commands")
        second = Gateway(bridged.gateway.data, environment=dict(bridged.settings))
        store = open_store(str(bridged.gateway.data / "wayside.db"))
        traces = Claims(store, SystemSource(), client_id="wayside-bridge", instance="", is_dead=never)
        try:
            await second.start()
            await bridged.logged("bridge connected", 2)
            async with bridged.device("camera") as camera, bridged.listener("sirens/#") as siren:
                for number in range(3):
                    await exchange(camera, f"d/camera/signals/porch/verdict/s{number}", {"n": number})
                    await exchange(camera, f"d/camera/runs/porch/r{number}", {})
                    assert await siren.next() == ("sirens/porch", {"n": number})
                async with asyncio.timeout(30):
                    while (left := await traces.left()) is None or left.command < 3:
                        await asyncio.sleep(0.1)
                await bridged.gateway.kill()
                await bridged.logged("bridge hands out commands", 2)
                await exchange(camera, "d/camera/signals/porch/verdict/s9", {"n": 9})
                await exchange(camera, "d/camera/runs/porch/r9", {})
                assert await siren.next() == ("sirens/porch", {"n": 9})
        finally:
            await store.close()
            if second.process is not None and second.process.returncode is None:
                await second.kill()


async def never(_: str) -> bool:
    return False


async def signals_at(gateway: Gateway) -> float:
    """Ask one instance how many signals it has decided."""
    async with gateway.client() as client:
        told = (await client.get(f"http://127.0.0.1:{gateway.http}/metrics")).raise_for_status().text
    return sum(float(line.split()[-1]) for line in told.splitlines() if line.startswith("wayside_signals_total{"))


async def claims(store: MemoryStore, instance: str, dead: set[str]) -> Claims:
    async def is_dead(other: str) -> bool:
        return other in dead

    return Claims(store, SystemSource(), client_id="bridge", instance=instance, is_dead=is_dead)


async def test_one_instance_holds_the_claim_until_it_dies_or_lets_go() -> None:
    store, dead = MemoryStore(ManualClock()), set[str]()
    one, two = await claims(store, "one", dead), await claims(store, "two", dead)
    assert await one.take()
    assert await one.take()
    assert not await two.take()
    dead.add("one")
    assert await two.take()
    assert not await one.holds()
    dead.clear()
    await two.release()
    assert await one.take()
    assert await one.holds()


async def test_of_many_that_claim_at_once_one_wins() -> None:
    store = MemoryStore(ManualClock())
    everyone = [await claims(store, f"i{number}", set()) for number in range(20)]
    assert sum(await asyncio.gather(*(each.take() for each in everyone))) == 1


async def test_the_gap_is_measured_by_the_stores_clock_from_the_last_trace_and_never_too_long() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    one, two = await claims(store, "one", set()), await claims(store, "two", set())
    assert await one.left() is None
    await one.trace(7)
    await one.trace(9)
    clock.advance(42)
    left = await two.left()
    assert left is not None
    assert left.command == 9
    assert await two.gap_seconds(left) == pytest.approx(42 - 5, abs=0.01)
    await two.trace(11)
    after = await two.left()
    assert after is not None
    assert after.command == 11
    assert await two.gap_seconds(after) == 0.0
