"""A rolling upgrade with two real builds: gateways of the old one and of the new one work over one store, under load.

    python -m tests.instances.upgrade [--old COMMIT] [--new COMMIT] [--stores postgres] [--devices 12] [--seconds 10]

Three parts over each store: the whole story of two gateways, of which one is old, either way round; devices that go
on while the gateways are replaced one at a time, and one back again, with what became of every signal; and builds that
refuse the store of one whose format is higher.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import httpx

from engine.store.base import Record
from engine.store.open import open_store
from tests.faults.judging import EARLY_SECONDS, Report, judge
from tests.faults.kill import WAIT_SECONDS, WORKFLOW, all_ended
from tests.faults.simulated import Simulated
from tests.instances import story
from tests.instances.builds import build, raised, refused
from tests.instances.stores import STORES
from tests.support.serving import Gateway

OLD = "09ea35b"
RIGHTS = ["read", "run", "signal", "admin"]
# Runs that begin in one build and end in another, and a signal that is held meanwhile.
KEPT = """
name: kept
jobs:
  - name: main
    steps:
      - name: verdict
        task: { type: wait_for_signal, key: verdict, acceptEarly: 600, timeout: 600 }
"""
PARENT = """
name: parent
jobs:
  - name: main
    steps:
      - name: child
        task: { type: workflow, workflow: kept }
"""


@dataclass
class Builds:
    """The trees, and the format that `raised` writes."""

    old: Path
    new: Path
    raised: Path
    format: int


@dataclass
class Crossing(Simulated):
    """A device with a connection to each gateway: whatever it asks for, it asks one of them by chance."""

    ends: list[Simulated] = field(default_factory=list)

    async def exchange(self, topic: str, payload: bytes, reply_id: str) -> dict[str, Any]:
        """Ask one of them; a signal with an id is asked the other, too, now and then."""
        first, second = self.dice.sample(self.ends, 2)
        answer = await first.exchange(topic, payload, reply_id)
        if answer["ok"] and topic.count("/") == 3 and self.dice.random() < 0.4:
            again = await second.exchange(topic, payload, reply_id)
            same = answer["receipt"] == again.get("receipt")
            self.answers["repeated: the same" if same else "repeated: another"] += 1
        return answer

    async def close(self) -> None:
        """Leave both."""
        for end in self.ends:
            await end.close()
            self.sent += end.sent

    @classmethod
    def over(cls, gateways: Sequence[Gateway], name: str, token: str, seed: int) -> Crossing:
        """Be a device of these gateways; its ends tell into one and the same lists."""
        one = cls(name, token, 0, random.Random(seed))
        for at, gateway in enumerate(gateways):
            end = Simulated(
                name, token, gateway.mqtt, one.dice, one.told, one.answers, client_id=f"{name}-{at}", _ids=one._ids
            )
            one.ends.append(end)
        return one


@dataclass
class Rolling:
    """Two gateways over one store, devices on both, and a clock of what happened."""

    builds: Builds
    url: str
    workflows: Path
    gateways: list[Gateway]
    seconds: float
    report: Report = field(default_factory=Report)
    everyone: list[Crossing] = field(default_factory=list)
    kept: dict[str, str] = field(default_factory=dict)
    # An operator's of its own: the first builds, started over a store that another serves, took the other's admin away.
    token: str = ""

    def client(self, at: int) -> httpx.AsyncClient:
        """Make a client of a gateway's API."""
        return self.gateways[at].client(self.token)

    async def start(self, at: int, build: Path) -> None:
        """Start a gateway from a build."""
        self.gateways[at].root = build
        await self.gateways[at].start("--store", self.url, "--workflows", str(self.workflows))

    async def replace(self, at: int, build: Path, *, kill: bool = False) -> None:
        """Stop or kill a gateway under load, start it from another build, and let it work for a while."""
        gateway, before = self.gateways[at], self.told
        if kill:
            await gateway.kill()
        else:
            assert await gateway.stop() == 0, "a gateway that is told to stop exits 0"
        await self.start(at, build)
        await asyncio.sleep(self.seconds)
        print(
            f"  gateway {at} is {'killed' if kill else 'stopped'} and back as {build.name}: "
            f"{self.told - before} signals accepted meanwhile", flush=True,
        )  # fmt: skip

    @property
    def told(self) -> int:
        return sum(len(each.told) for each in self.everyone)


async def rolling(directory: Path, url: str, builds: Builds, devices: int, seconds: float) -> bool:
    """Replace one gateway after the other and one of them back; tell whether all went well."""
    names = [f"work-{number:02d}" for number in range(devices)]
    workflows = directory / "workflows"
    workflows.mkdir()
    texts = {name: WORKFLOW.format(name=name, early=EARLY_SECONDS, timeout=WAIT_SECONDS) for name in names}
    for name, text in {**texts, "kept": KEPT, "parent": PARENT, "later": KEPT.replace("kept", "later")}.items():
        (workflows / f"{name}.yaml").write_text(text)
    one = Rolling(builds, url, workflows, [_gateway(directory / f"host{at}") for at in range(2)], seconds)
    async with AsyncExitStack() as stack:
        for gateway in one.gateways:
            stack.push_async_callback(story._end, gateway)
        for at in range(2):
            await one.start(at, builds.old)
        async with one.gateways[1].client() as client:
            one.token = (await _post(client, "/operators", {"operator": "upgrade", "rights": RIGHTS}))["token"]
        async with one.client(0) as client:
            for number, name in enumerate(names):
                token = await one.gateways[0].add_device(client, name, [f"signal:{name}/verdict", f"run:{name}"])
                one.everyone.append(Crossing.over(one.gateways, name, token, number))
        await under_load(one)
    await judge(directory / "host0", one.everyone, one.report, url=url)
    return _said(one)


def _gateway(data: Path) -> Gateway:
    data.mkdir(mode=0o700)
    return Gateway(data, environment={"WAYSIDE_ENGINE__SWEEP_INTERVAL": "1"})


async def under_load(one: Rolling) -> None:
    """Let the devices go on through every replacement."""
    stop = asyncio.Event()
    tasks = [asyncio.create_task(each.live(stop), name=each.name) for each in one.everyone]
    await begin(one)
    await asyncio.sleep(one.seconds)
    print(f"  both old: {one.told} signals accepted", flush=True)
    await one.replace(0, one.builds.new)
    await mixed(one)
    await one.replace(1, one.builds.new, kill=True)
    await finish(one)
    # What a new build has written an old one of the same format reads.
    await one.replace(1, one.builds.old)
    await mixed(one)
    await one.replace(1, one.builds.new)
    stop.set()
    await asyncio.gather(*tasks)
    await all_ended(one.gateways[0])
    for each in one.everyone:
        await each.close()
        one.report.answers += each.answers
    for gateway in one.gateways:
        assert await gateway.stop() == 0


async def _post(client: httpx.AsyncClient, path: str, body: object, **headers: str) -> dict[str, Any]:
    answer = await client.post(path, json=body, headers=headers)
    assert answer.is_success, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def _becomes(one: Rolling, at: int, run: str, status: str) -> dict[str, Any]:
    async with one.client(at) as client, asyncio.timeout(60):
        while (shown := await one.gateways[at].run(client, run))["status"] != status:
            await asyncio.sleep(0.05)
        return shown


async def begin(one: Rolling) -> None:
    """In the old build: a run that waits, one whose child waits, and a signal that is held."""
    async with one.client(0) as client:
        one.kept["parent"] = (await _post(client, "/workflows/parent/runs", {"inputs": {}}))["run"]
        await _becomes(one, 1, one.kept["parent"], "suspended")
        held = await _post(client, "/signals/later/verdict", {"n": 1}, **{"Idempotency-Key": "kept"})
        one.kept["receipt"] = held["receipt"]


async def mixed(one: Rolling) -> None:
    """With a gateway of each build: runs and signals cross both ways, and each verifies what both have audited."""
    for opener, sender in ((0, 1), (1, 0)):
        async with one.client(opener) as here, one.client(sender) as there:
            text = KEPT.replace("kept", "mixed")
            (one.workflows / "mixed.yaml").write_text(text)
            run = await _started(here, "mixed")
            await _becomes(one, sender, run, "suspended")
            await _post(there, "/signals/mixed/verdict", {"n": opener})
            shown = await _becomes(one, opener, run, "succeeded")
            assert story.taken(shown) == opener
            verified = (await there.get("/audit/verify")).json()
            assert verified["ok"], verified


async def _started(client: httpx.AsyncClient, workflow: str) -> str:
    """Start a run of a definition that the gateway has yet to see."""
    async with asyncio.timeout(30):
        while not (answer := await client.post(f"/workflows/{workflow}/runs", json={"inputs": {}})).is_success:
            await asyncio.sleep(0.2)
        return str(answer.json()["run"])


async def finish(one: Rolling) -> None:
    """In the new build: what the old one began goes on, and the signal that it held is taken, once."""
    async with one.client(1) as client:
        await _post(client, "/signals/kept/verdict", {"n": 2})
        await _becomes(one, 0, one.kept["parent"], "succeeded")
        again = await _post(client, "/signals/later/verdict", {"n": 1}, **{"Idempotency-Key": "kept"})
        assert again["receipt"] == one.kept["receipt"], "a repeat at the new build is another signal"
        run = (await _post(client, "/workflows/later/runs", {"inputs": {}}))["run"]
        assert story.taken(await _becomes(one, 0, run, "succeeded")) == 1
        again = await _post(client, "/signals/later/verdict", {"n": 1}, **{"Idempotency-Key": "kept"})
        assert again["receipt"] == one.kept["receipt"], "a repeat after it was applied is another signal"


def _said(one: Rolling) -> bool:
    sent = sum(each.sent for each in one.everyone)
    ids: dict[tuple[str, str], set[str]] = {}
    for each in one.everyone:
        for told in each.told:
            if told.signal_id is not None:
                ids.setdefault((each.name, told.signal_id), set()).add(told.receipt)
    other = sum(len(receipts) > 1 for receipts in ids.values())
    print(f"  publishes sent                {sent}")
    for line in one.report.lines()[1:]:
        print(f"  {line}")
    print(f"  identified with two receipts  {other}")
    return one.report.good and not other and one.report.answers["repeated: another"] == 0


async def everything(url: str) -> list[Record]:
    """Read all of a store."""
    store = open_store(url)
    try:
        return await store.list("")
    finally:
        await store.close()


async def guarded(directory: Path, url: str, builds: Builds, olders: Sequence[Path]) -> None:
    """Let the build of a higher format serve the store, and see the older ones refuse it and leave it as it is."""
    gateway = Gateway(directory / "raised", root=builds.raised)
    gateway.data.mkdir(mode=0o700)
    await gateway.start("--store", url)
    assert await gateway.stop() == 0
    before = await everything(url)
    for older in olders:
        status, said = await refused(older, gateway.data, url)
        print(f"  {older.name} exits {status}: {said.strip()}", flush=True)
        assert status == 1
        assert f"format {builds.format}; this build knows format {builds.format - 1}" in said
    assert await everything(url) == before


async def one_store(kind: str, builds: Builds, devices: int, seconds: float) -> bool:
    """Do all of it over one kind of store."""
    for order in ([builds.old, builds.new], [builds.new, builds.old]):
        began = monotonic()
        with tempfile.TemporaryDirectory(prefix="wayside-upgrade-") as temporary:
            directory = Path(temporary)
            async with STORES[kind](directory) as url, story.together(directory, url, (0, 0), builds=order) as all_:
                await story.whole_story(all_)
        print(
            f"{kind}: the story of {order[0].name} and {order[1].name}: {monotonic() - began:.1f} s, well", flush=True
        )
    with tempfile.TemporaryDirectory(prefix="wayside-upgrade-") as temporary:
        async with STORES[kind](Path(temporary)) as url:
            print(f"{kind}: a rolling upgrade, {devices} devices", flush=True)
            good = await rolling(Path(temporary), url, builds, devices, seconds)
            print(f"{kind}: the same store, taken over by a build of format {builds.format}", flush=True)
            await guarded(Path(temporary), url, builds, [builds.new])
    with tempfile.TemporaryDirectory(prefix="wayside-upgrade-") as temporary:
        async with STORES[kind](Path(temporary)) as url:
            print(f"{kind}: a store that a build of format {builds.format} made", flush=True)
            await guarded(Path(temporary), url, builds, [builds.old, builds.new])
    return good


async def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", default=OLD, metavar="COMMIT")
    parser.add_argument("--new", default="HEAD", metavar="COMMIT")
    parser.add_argument("--stores", nargs="+", choices=list(STORES), default=["sqlite", "postgres", "nats"])
    parser.add_argument("--devices", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=10, help="how long devices go on after each replacement")
    chosen = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory(prefix="wayside-builds-") as temporary:
        new = build(chosen.new, Path(temporary) / "new")
        higher, number = raised(new, Path(temporary) / "raised")
        builds = Builds(build(chosen.old, Path(temporary) / "old"), new, higher, number)
        for kind in chosen.stores:
            good = await one_store(kind, builds, chosen.devices, chosen.seconds) and good
    print("nothing was lost and nothing applied twice" if good else "FAILED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
