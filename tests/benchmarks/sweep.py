"""Time a pass of the sweep with ever more open waits, of which ten are due.

    python -m tests.benchmarks.sweep [--waits 1000,100000,1000000] [--json FILE]

What a pass reads must grow with what is due: the number of store operations and of records read is printed beside the
time. The store is SQLite, on a file in a temporary directory (a gigabyte for a million waits).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path

from engine import names
from engine.clock import SystemSource, derived_id
from engine.records import Registration, encode, raw
from engine.service import Engine, EngineSettings
from engine.store.base import Record, Store
from engine.store.open import open_store
from tests.support.bench import Heard, Sent, catalog

DUE = 10
_BATCH = 5_000


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass cost."""

    open_waits: int
    due: int
    looked_at: int
    operations: int
    records_read: int
    milliseconds: float


class Counting:
    """A store that counts what is asked of it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.operations = 0
        self.records = 0

    def _read(self, records: int) -> None:
        self.operations += 1
        self.records += records

    async def create(self, key: str, value: bytes) -> Record:
        self._read(1)
        return await self._store.create(key, value)

    async def create_all(self, items: Sequence[tuple[str, bytes]]) -> list[Record]:
        self._read(len(items))
        return await self._store.create_all(items)

    async def get(self, key: str) -> Record | None:
        self._read(1)
        return await self._store.get(key)

    async def last(self, prefix: str) -> Record | None:
        self._read(1)
        return await self._store.last(prefix)

    async def list(self, prefix: str, *, after: str | None = None, limit: int | None = None) -> list[Record]:
        found = await self._store.list(prefix, after=after, limit=limit)
        self._read(len(found))
        return found

    async def delete(self, keys: Iterable[str]) -> None:
        keys = [*keys]
        self._read(len(keys))
        await self._store.delete(keys)

    async def now(self, until: datetime | None = None) -> datetime:
        return await self._store.now(until)

    async def changed(self) -> None:
        await self._store.changed()

    async def close(self) -> None:
        await self._store.close()


def records_of(number: int, due_at: datetime, seconds: float) -> list[tuple[str, bytes]]:
    """Make the records of one open wait: the index record, and the registration."""
    wait = derived_id("wait", str(number))
    due = names.due(due_at, "deadline", wait)
    value = Registration(
        at=names.registration(wait),
        nonce="bench",
        wait=wait,
        run=derived_id("run", str(number)),
        workflow="door",
        job="main",
        step="look",
        step_attempt=1,
        key=None,
        claim=None,
        timeout=seconds,
        schema=raw(None),
        due=due,
    )
    return [(due, b""), encode(value)]


async def fill(store: Store, first: int, last: int) -> None:
    """Store open waits whose deadlines are spread over the next year, from tomorrow on."""
    now = await store.now()
    batch: list[tuple[str, bytes]] = []
    for number in range(first, last):
        until = timedelta(days=1, seconds=(number * 7_919) % 31_000_000)
        batch += records_of(number, now + until, until.total_seconds())
        if len(batch) >= _BATCH:
            await store.create_all(batch)
            batch = []
    if batch:
        await store.create_all(batch)


async def one_pass(store: Store, directory: Path, open_waits: int) -> Pass:
    """Let ten waits fall due, and sweep."""
    now = await store.now()
    for number in range(DUE):
        await store.create_all(records_of(10**9 + open_waits * DUE + number, now - timedelta(minutes=2), 0.001))
    counting = Counting(store)
    engine = Engine(
        counting,
        catalog(directory / "workflows", []),
        observer=(heard := Heard()),
        publisher=Sent(),
        source=SystemSource(),
        settings=EngineSettings(sweeps=False),
    )
    async with engine:
        counting.operations = counting.records = 0
        began = time.perf_counter()
        swept = await engine.sweep()
        took = (time.perf_counter() - began) * 1_000
        due = len(heard.named("wait.settled"))
        assert due == DUE
        return Pass(open_waits, due, swept.looked_at, counting.operations, counting.records, round(took, 2))


async def measure(sizes: list[int]) -> list[Pass]:
    """Do a pass for each size, over one store that grows."""
    passes: list[Pass] = []
    with tempfile.TemporaryDirectory() as directory:
        store = open_store(f"sqlite:///{directory}/wayside.db")
        filled = 0
        print(
            f"{'open waits':>12} {'due':>5} {'looked at':>10} {'operations':>11} {'records':>8} {'ms':>8}", flush=True
        )
        for size in sizes:
            await fill(store, filled, size)
            filled = size
            each = await one_pass(store, Path(directory), size)
            passes.append(each)
            print(
                f"{each.open_waits:>12,} {each.due:>5} {each.looked_at:>10} {each.operations:>11} "
                f"{each.records_read:>8} {each.milliseconds:>8}",
                flush=True,
            )
        await store.close()
    return passes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--waits", default="1000,100000,1000000")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    passes = asyncio.run(measure([int(size) for size in arguments.waits.split(",")]))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(each) for each in passes], indent=2))


if __name__ == "__main__":
    main()
