"""Proves that every scenario of the simulator goes as it expects against a real gateway, a kill in between included."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from devices.simulator import SCENARIOS, Member, Plan, Play, Tally
from tests.support.serving import Gateway

WORKFLOW = """
name: {name}
trigger: {{ topic: true }}
jobs:
  - name: main
    steps:
      - name: identify
        task:
          type: wait_for_signal
          key: verdict
          {early}
          timeout: 30
          schema:
            type: object
            required: [verdict]
            properties: {{ verdict: {{ type: string, enum: [known, intruder] }} }}
"""


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    """Serve a workflow for each scenario, so that none finds what another one left held."""
    data = tmp_path / "data"
    (data / "workflows").mkdir(parents=True)
    data.chmod(0o700)
    for name in SCENARIOS:
        text = WORKFLOW.format(name=name, early="" if name == "late" else "acceptEarly: 60")
        (data / "workflows" / f"{name}.yaml").write_text(text)
    gateway = Gateway(data)
    await gateway.start()
    yield gateway
    assert await gateway.stop() == 0


async def add(gateway: Gateway, scenario: str, number: int = 1) -> tuple[Member, ...]:
    async with gateway.client() as client:
        grants = [f"signal:{scenario}/verdict", f"run:{scenario}"]
        tokens = {f"{scenario}-{n}": await gateway.add_device(client, f"{scenario}-{n}", grants) for n in range(number)}
    return tuple(Member(device=name, token=token, workflow=scenario, key="verdict") for name, token in tokens.items())


async def play(gateway: Gateway, scenario: str, *, devices: int = 1, start: bool = False, count: int = 0) -> Tally:
    plan = Plan(
        scenario=scenario,
        host="127.0.0.1",
        port=gateway.mqtt,
        cast=await add(gateway, scenario, devices),
        start=start,
        count=count,
        rate=15.0,
    )
    return await Play(plan).perform()


async def test_every_scenario_goes_as_it_expects_against_a_real_gateway(gateway: Gateway) -> None:
    tallies = {
        "kitchen": await play(gateway, "kitchen", start=True),
        "early": await play(gateway, "early"),
        "late": await play(gateway, "late"),
        "duplicate": await play(gateway, "duplicate", start=True),
        "flaky": await play(gateway, "flaky", start=True, count=4),
        "storm": await play(gateway, "storm", devices=20),
        "bad": await play(gateway, "bad"),
        "fleet": await play(gateway, "fleet", devices=5, count=40),
    }
    assert tallies.keys() == SCENARIOS.keys()
    assert {scenario: tally.problems for scenario, tally in tallies.items() if tally.problems} == {}
    assert tallies["fleet"].answers == {(202, ""): 1, (409, "early_signal_held"): 39}
    assert tallies["bad"].answers.total() == 5


async def test_a_fleet_rides_out_a_kill_of_the_gateway(gateway: Gateway) -> None:
    crew = await add(gateway, "fleet", 4)
    killed: list[int] = []

    def kill_midway(done: int, _total: int) -> None:
        if done == 10:
            assert gateway.process
            gateway.process.kill()
            killed.append(done)

    plan = Plan(
        scenario="fleet", host="127.0.0.1", port=gateway.mqtt, cast=crew, count=20, rate=20.0, progress=kill_midway
    )
    async with asyncio.TaskGroup() as both:
        playing = both.create_task(Play(plan).perform())
        assert gateway.process
        await gateway._ended()
        await gateway.start()
    tally = playing.result()
    assert killed == [10]
    assert tally.problems == {}
    assert tally.answers[202, ""] + tally.answers[409, "early_signal_held"] == 20
    assert tally.answers[0, "not_connected"] + tally.answers[0, "connection_lost"] > 0
