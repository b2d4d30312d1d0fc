"""Kill the gateway again and again while devices signal, and count what became of every acknowledged signal.

`python -m tests.faults.kill --kills 200 --devices 50 --seed 1` repeats a run: which kill comes when, and what each
device sends, follow from the seed (the operating system's scheduling does not). Every kill is SIGKILL: either at a
random moment, or between the store's commit and the PUBACK.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import random
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine import names, records
from engine.decisions.fold import fold
from engine.records import Accepted, Claim, Pending, Stored
from engine.store.base import Store
from engine.store.open import open_store
from tests.support.plain_mqtt import PlainClient, Refused
from tests.support.serving import Gateway

WAIT_SECONDS = 20
EARLY_SECONDS = 20
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


@dataclass
class Told:
    """One signal that a device was told is accepted."""

    receipt: str
    device: str
    number: int
    signal_id: str | None


@dataclass
class Simulated:
    """One device: it starts a run and signals it, again and again, and sends again whatever was not acknowledged."""

    name: str
    token: str
    port: int
    dice: random.Random
    told: list[Told] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)
    sent: int = 0
    number: int = 0
    client: PlainClient | None = None
    _sought: dict[str, asyncio.Future[dict[str, Any]]] = field(default_factory=dict)

    def _heard(self, topic: str, payload: bytes) -> None:
        reply = json.loads(payload)
        future = self._sought.get(reply["id"])
        if future is not None and not future.done():
            future.set_result(reply)
        if topic.startswith("replies/signals/"):
            self._note(reply)

    def _note(self, reply: dict[str, Any]) -> None:
        number, signal_id = self._ids[reply["id"]]
        if reply["ok"]:
            self.told.append(Told(reply["receipt"], self.name, number, signal_id))
        self.answers["accepted" if reply["ok"] else reply["error"]] += 1

    _ids: dict[str, tuple[int, str | None]] = field(default_factory=dict)

    async def connected(self) -> PlainClient:
        """Be connected, however long the gateway takes to come back."""
        while self.client is None or self.client.lost.is_set():
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, Refused):
                self.client = await PlainClient.connect(
                    self.port, self.name, self.token, client_id=self.name, heard=self._heard
                )
                break
            await asyncio.sleep(0.05)
        assert self.client is not None
        return self.client

    async def exchange(self, topic: str, payload: bytes, reply_id: str) -> dict[str, Any]:
        """Publish until an answer has come, again after each lost connection."""
        while True:
            client = await self.connected()
            sought = self._sought[reply_id] = asyncio.get_running_loop().create_future()
            self.sent += 1
            if await client.publish(topic, payload) and sought.done():
                del self._sought[reply_id]
                reply: dict[str, Any] = sought.result()
                if reply.get("error") == "rate_limited":
                    await asyncio.sleep(reply.get("retry_after_ms", 200) / 1000)
                    continue
                return reply

    async def start_run(self) -> None:
        """Ask for the next run, under an id of its own."""
        run_id = f"r{self.number}"
        await self.exchange(f"runs/{self.name}/{run_id}", b"{}", run_id)

    async def signal(self, signal_id: str | None) -> None:
        """Send this round's verdict."""
        payload = json.dumps({"n": self.number, "by": self.name}).encode()
        reply_id = signal_id or hashlib.sha256(payload).hexdigest()[:16]
        self._ids[reply_id] = (self.number, signal_id)
        tail = f"/{signal_id}" if signal_id else ""
        await self.exchange(f"signals/{self.name}/verdict{tail}", payload, reply_id)

    async def live(self, stop: asyncio.Event) -> None:
        """Go round until told to stop."""
        while not stop.is_set():
            self.number += 1
            signal_id = f"s{self.number}" if self.dice.random() < 0.6 else None
            if self.dice.random() < 0.3:
                await self.signal(signal_id)
                await self.start_run()
            else:
                await self.start_run()
                await self.signal(signal_id)
            await asyncio.sleep(self.dice.random() * 0.15)


@dataclass
class Report:
    """What the run came to."""

    kills: int = 0
    between: int = 0
    told: int = 0
    outcomes: int = 0
    held: int = 0
    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    repeats: int = 0
    unfinished: list[str] = field(default_factory=list)
    runs: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)

    @property
    def good(self) -> bool:
        """Whether nothing was lost, nothing applied twice, and every run ended."""
        return not (self.lost or self.twice or self.unfinished)

    def lines(self) -> list[str]:
        """Say it in words."""
        share = 100 * self.outcomes / max(1, self.told)
        return [
            f"kills                        {self.kills}, of them between commit and PUBACK {self.between}",
            f"signals told accepted        {self.told}",
            f"  outcome of exactly one wait {self.outcomes} ({share:.1f} %)",
            f"  held within its limit       {self.held}",
            f"  lost                        {len(self.lost)} {self.lost[:5]}",
            f"  identified, applied twice   {len(self.twice)} {self.twice[:5]}",
            f"repeats of unidentified       {self.repeats}",
            f"runs                          {dict(self.runs)}, not ended {len(self.unfinished)} {self.unfinished[:5]}",
            f"answers                       {dict(self.answers)}",
        ]


async def prepare(gateway: Gateway, devices: int, dice: random.Random) -> list[Simulated]:
    """Write the workflows, start the gateway and add the devices."""
    folder = gateway.data / "workflows"
    folder.mkdir(parents=True)
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


async def one_kill(gateway: Gateway, everyone: list[Simulated], dice: random.Random, *, between: bool) -> None:
    """Let the gateway live for some signals and a moment, whatever the machine's speed, and kill it."""
    assert gateway.process is not None
    if between:
        # It was started to die by itself, at a chosen message.
        await gateway.process.wait()
    else:
        enough = _told(everyone) + dice.randint(0, 60)
        async with asyncio.timeout(60):
            while _told(everyone) < enough:
                await asyncio.sleep(0.01)
        await asyncio.sleep(dice.random() * 0.1)
        await gateway.kill()


async def hunt(data: Path, *, kills: int, devices: int, seed: int, progress: bool = False) -> Report:
    """Do the whole run."""
    dice = random.Random(seed)
    gateway = Gateway(data, program=(sys.executable, "-m", "tests.faults.dying_gateway"))
    everyone = await prepare(gateway, devices, dice)
    stop = asyncio.Event()
    report = Report()
    tasks = [asyncio.create_task(each.live(stop), name=each.name) for each in everyone]
    # The first kill is of a gateway that was not told to die.
    between = False
    for number in range(1, kills + 1):
        await one_kill(gateway, everyone, dice, between=between)
        report.kills += 1
        report.between += between
        between = number < kills and dice.random() < 0.4
        options = {"DIE_AT": "committed", "DIE_AFTER": str(dice.randint(1, 80))} if between else {}
        await gateway.start(**options)
        if progress:
            print(f"\rkill {number}/{kills}, {_told(everyone)} signals accepted", end="", file=sys.stderr, flush=True)
    stop.set()
    await asyncio.gather(*tasks)
    await all_ended(gateway)
    for each in everyone:
        if each.client is not None:
            await each.client.close()
        report.answers += each.answers
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


async def judge(data: Path, everyone: list[Simulated], report: Report, *, url: str = "") -> None:
    """Compare what devices were told with what the store holds: the one that `url` names, or the directory's own."""
    store = open_store(url or str(data / "wayside.db"))
    try:
        applied: Counter[str] = Counter()
        for record in await store.list("outcomes/"):
            outcome = records.outcome(record)
            assert isinstance(outcome, Stored)
            if isinstance(outcome.value, Accepted):
                applied[outcome.value.receipt] += 1
        await _runs(store, report)
        told = {told.receipt: told for each in everyone for told in each.told}
        report.told = len(told)
        report.twice = [receipt for receipt, times in applied.items() if times > 1]
        for receipt, signal in told.items():
            if applied[receipt]:
                report.outcomes += 1
            elif await _was_held(store, receipt, signal):
                report.held += 1
            else:
                report.lost.append(f"{receipt} of {signal.device} number {signal.number}")
        unidentified = Counter((each.device, each.number) for each in told.values() if each.signal_id is None)
        report.repeats = sum(times - 1 for times in unidentified.values())
    finally:
        await store.close()


async def _runs(store: Store, report: Report) -> None:
    logs: dict[str, list[Stored[records.Event]]] = {}
    for record in await store.list(names.RUNS):
        logs.setdefault(names.run_of(record.key), []).append(records.event(record))
    for run, events in logs.items():
        state = fold(run, events)
        assert state is not None
        report.runs[state.status] += 1
        if state.phase != "ended":
            report.unfinished.append(f"{run} {state.status}")


async def _was_held(store: Store, receipt: str, signal: Told) -> bool:
    """Tell whether a signal was held and lawfully not taken: no wait opened in time, or an earlier one was taken."""
    key = names.Key(signal.device, "verdict")
    for record in await store.list(key.slots):
        entry = records.slot_record(record)
        if not isinstance(entry, Stored) or not isinstance(entry.value, Pending) or entry.value.receipt != receipt:
            continue
        slot = names.parse_pending(record.key).slot
        for raw in await store.list(key.claims):
            claim = records.key_record(raw)
            if isinstance(claim.value, Claim) and claim.value.takes == slot:
                late = (claim.at - entry.at).total_seconds() > EARLY_SECONDS
                outcome = await store.get(names.outcome(claim.value.wait))
                return late or await _earlier_was_taken(store, outcome, slot, key, entry.number)
        return True
    # Expired and cleared away: the audit log still says so.
    return any(
        receipt.encode() in record.value and b'"signal.expired"' in record.value
        for record in await store.list(names.AUDIT)
    )


async def _earlier_was_taken(store: Store, outcome: Any, slot: int, key: names.Key, number: int) -> bool:
    found = None if outcome is None else records.outcome(outcome)
    if not isinstance(found, Stored) or not isinstance(found.value, Accepted):
        return False
    for record in await store.list(key.slot(slot)):
        entry = records.slot_record(record)
        if not isinstance(entry, Stored) or not isinstance(entry.value, Pending):
            continue
        if entry.value.receipt == found.value.receipt:
            return entry.number < number
    return False


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--devices", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", type=Path, help="an empty directory to keep; default: a temporary one")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wayside-kill-") as temporary:
        data = chosen.data or Path(temporary) / "data"
        data.mkdir(parents=True, exist_ok=True)
        report = asyncio.run(hunt(data, kills=chosen.kills, devices=chosen.devices, seed=chosen.seed, progress=True))
    print()
    print("\n".join(report.lines()))
    print("nothing was lost and nothing applied twice" if report.good else "FAILED")
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
