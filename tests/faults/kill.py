"""Kill the gateway again and again while devices signal, and count what became of every acknowledged signal.

`python -m tests.faults.kill --kills 200 --devices 50 --seed 1` repeats a run: which kill comes when, and what each
device sends, follow from the seed (the operating system's scheduling does not). Every kill is SIGKILL: either at a
random moment, or between the store's commit and the PUBACK. `--doors mqtt,http,websocket,cli` has identified signals
come in by each of them, `--signals 20000` goes on until so many are accepted.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.faults.doors import at_doors
from tests.faults.judging import EARLY_SECONDS, Report, judge
from tests.faults.simulated import Simulated
from tests.support.serving import Gateway

WAIT_SECONDS = 20
WORKFLOW = """
name: {name}
trigger: {{ topic: true }}
jobs:
  - name: main
    steps:
      - name: verdict
        task:
          type: wait_for_signal
          key: verdict
          acceptEarly: {early}
          timeout: {timeout}
          schema:
            type: object
            required: [n]
            properties: {{ n: {{ type: integer }}, by: {{ type: string }} }}
"""


async def prepare(gateway: Gateway, devices: int, dice: random.Random) -> list[Simulated]:
    """Write the workflows, start the gateway and add the devices."""
    folder = gateway.data / "workflows"
    folder.mkdir(parents=True, exist_ok=True)
    gateway.data.chmod(0o700)
    each = [f"work-{number:02d}" for number in range(devices)]
    for name in each:
        text = WORKFLOW.format(name=name, early=EARLY_SECONDS, timeout=WAIT_SECONDS)
        (folder / f"{name}.yaml").write_text(text)
    await gateway.start()
    made = []
    async with gateway.client() as client:
        for name in each:
            token = await gateway.add_device(client, name, [f"signal:{name}/verdict", f"run:{name}"])
            made.append(Simulated(name, token, gateway.mqtt, random.Random(dice.random())))
    return made


async def one_kill(
    gateway: Gateway, everyone: list[Simulated], dice: random.Random, *, between: bool, signals: int = 60
) -> None:
    """Let the gateway live for some signals and a moment, whatever the machine's speed, and kill it."""
    assert gateway.process is not None
    if between:
        # It was started to die by itself, at a chosen message.
        await gateway.process.wait()
    else:
        enough = _told(everyone) + dice.randint(0, signals)
        async with asyncio.timeout(60 + signals):
            while _told(everyone) < enough:
                await asyncio.sleep(0.01)
        await asyncio.sleep(dice.random() * 0.1)
        await gateway.kill()


async def hunt(
    data: Path,
    *,
    kills: int,
    devices: int,
    seed: int,
    progress: bool = False,
    doors: Sequence[str] = (),
    signals: int = 0,
) -> Report:
    """Do the whole run: with `doors`, by each of them; with `signals`, until that many have been accepted."""
    dice = random.Random(seed)
    gateway = Gateway(data, program=(sys.executable, "-m", "tests.faults.dying_gateway"))
    everyone = await prepare(gateway, devices, dice)
    if doors:
        everyone = await at_doors(gateway, everyone, list(doors))
    apart = max(60, 3 * signals // kills)
    stop = asyncio.Event()
    report = Report()
    tasks = [asyncio.create_task(each.live(stop), name=each.name) for each in everyone]
    # The first kill is of a gateway that was not told to die.
    between = False
    for number in range(1, kills + 1):
        await one_kill(gateway, everyone, dice, between=between, signals=apart)
        report.kills += 1
        report.between += between
        between = number < kills and dice.random() < 0.4
        options = {"DIE_AT": "committed", "DIE_AFTER": str(dice.randint(1, 80))} if between else {}
        await gateway.start(**options)
        if progress:
            print(f"\rkill {number}/{kills}, {_told(everyone)} signals accepted", end="", file=sys.stderr, flush=True)
    while _told(everyone) < signals:
        await asyncio.sleep(0.1)
    stop.set()
    await asyncio.gather(*tasks)
    await all_ended(gateway)
    for each in everyone:
        await each.close()
        report.answers += each.answers
        counts = report.doors.setdefault(each.door, Counter())
        counts.update(tries=each.sent, accepted=len(each.told), refused=each.answers.total() - len(each.told))
    assert await gateway.stop() == 0
    await judge(data, everyone, report)
    return report


def _told(everyone: list[Simulated]) -> int:
    return sum(len(each.told) for each in everyone)


async def all_ended(gateway: Gateway) -> None:
    """Return when no run is open, or after the time that any wait could take."""
    async with gateway.client() as client:
        for _ in range((WAIT_SECONDS + 40) * 2):
            open_runs = 0
            for status in ("pending", "running", "suspended"):
                answer = await client.get("/runs", params={"status": status, "limit": 1})
                answer.raise_for_status()
                open_runs += len(answer.json()["runs"])
            if not open_runs:
                return
            await asyncio.sleep(0.5)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--devices", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--doors", default="", help="mqtt,http,websocket,cli: every signal has an id then")
    parser.add_argument("--signals", type=int, default=0, help="go on until so many are accepted")
    parser.add_argument("--data", type=Path, help="an empty directory to keep; default: a temporary one")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wayside-kill-") as temporary:
        data = chosen.data or Path(temporary) / "data"
        data.mkdir(parents=True, exist_ok=True)
        doors = [door for door in chosen.doors.split(",") if door]
        report = asyncio.run(
            hunt(
                data,
                kills=chosen.kills,
                devices=chosen.devices,
                seed=chosen.seed,
                progress=True,
                doors=doors,
                signals=chosen.signals,
            )
        )
    print()
    print("\n".join(report.lines()))
    print("nothing was lost and nothing applied twice" if report.good else "FAILED")
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
