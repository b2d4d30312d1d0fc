"""Measure a store: creates a second and their latency by callers, reads by size, and what an idle store costs.

    python -m tests.benchmarks.store [--store URL] [--records 1000,100000] [--seconds 3] [--json FILE]

Without `--store`, a new SQLite file in a temporary directory. A million records: `--records 1000,100000,1000000`.
Beside each figure of SQLite stands what the bare module does on the same disk in the same run: compare those.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sqlite3
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import perf_counter, process_time

from engine.store.base import Store
from engine.store.open import open_store

VALUE = os.urandom(600)
CALLERS = (1, 16, 256)
ROWS = list[dict[str, str | float]]


async def creates(store: Store, callers: int, seconds: float) -> dict[str, str | float]:
    """Create records of 600 bytes from `callers` tasks for `seconds`."""
    latencies: list[float] = []
    started, worked = perf_counter(), process_time()
    until = started + seconds

    async def one(caller: int) -> None:
        number = 0
        while (at := perf_counter()) < until:
            await store.create(f"bench/{callers}/{caller:05d}/{number:012d}", VALUE)
            latencies.append(perf_counter() - at)
            number += 1

    await asyncio.gather(*(one(caller) for caller in range(callers)))
    took = perf_counter() - started
    return {
        "what": f"create, {callers} callers",
        "a second": len(latencies) / took,
        **spread(latencies),
        "CPU µs": (process_time() - worked) / len(latencies) * 1e6,
    }


def bare(group: int, seconds: float) -> dict[str, str | float]:
    """Insert the same records with the bare module, `group` in a transaction."""
    with tempfile.TemporaryDirectory() as directory:
        connection = sqlite3.connect(Path(directory) / "bare.db", isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(
            "CREATE TABLE records (seq INTEGER PRIMARY KEY, key TEXT UNIQUE, value BLOB, stored_at INTEGER)"
        )
        number, latencies, started = 0, [], perf_counter()
        while (at := perf_counter()) < started + seconds:
            connection.execute("BEGIN IMMEDIATE")
            for member in range(group):
                key = f"bench/{group}/{member:05d}/{number:012d}"
                connection.execute("INSERT INTO records (key, value, stored_at) VALUES (?, ?, ?)", (key, VALUE, number))
            connection.execute("COMMIT")
            latencies.append(perf_counter() - at)
            number += 1
        took = perf_counter() - started
        connection.close()
    return {"what": f"bare module, {group} a commit", "a second": number * group / took, **spread(latencies)}


async def reads(store: Store, records: int) -> ROWS:
    """Fill the store with `records` records, then read among them."""
    prefix = f"reads/{records}/"
    for start in range(0, records, 1_000):
        await store.create_all(
            [(f"{prefix}{at % 1_000:03d}/{at:012d}", VALUE) for at in range(start, min(start + 1_000, records))]
        )
    groups = min(records, 1_000)
    asked: dict[str, Callable[[int], Awaitable[object]]] = {
        "get": lambda at: store.get(f"{prefix}{at % groups:03d}/{at % records:012d}"),
        "last": lambda at: store.last(f"{prefix}{at % groups:03d}/"),
        "list, 10 of them": lambda at: store.list(f"{prefix}{at % groups:03d}/", limit=10),
        "list, none there": lambda at: store.list(f"{prefix}{at % groups:03d}x/"),
        "now": lambda _: store.now(),
    }
    rows: ROWS = []
    for name, ask in asked.items():
        latencies = []
        for at in range(2_000 if name != "now" else 300):
            started = perf_counter()
            await ask(at * 7_919)
            latencies.append(perf_counter() - started)
        rows.append(
            {"what": f"{name}, among {records}", "a second": 1 / statistics.mean(latencies), **spread(latencies)}
        )
    started = perf_counter()
    found = len(await store.list(prefix))
    took = perf_counter() - started
    assert found == records
    return [*rows, {"what": f"list all {records}", "a second": 1 / took, "p50 ms": took * 1e3, "p99 ms": took * 1e3}]


async def idle(store: Store, seconds: float) -> dict[str, str | float]:
    """Do nothing but watch for changes."""
    watching = asyncio.create_task(store.changed())
    worked = process_time()
    await asyncio.wait([watching], timeout=seconds)
    share = (process_time() - worked) / seconds
    watching.cancel()
    return {"what": "idle, watching for changes", "% of a core": share * 100}


def spread(latencies: list[float]) -> dict[str, str | float]:
    ordered = sorted(latencies)
    return {"p50 ms": ordered[len(ordered) // 2] * 1e3, "p99 ms": ordered[int(len(ordered) * 0.99)] * 1e3}


async def measure(url: str, sizes: list[int], seconds: float, *, compare: bool) -> ROWS:
    store = open_store(url)
    rows: ROWS = []
    try:
        for callers in CALLERS:
            rows.append(await creates(store, callers, seconds))
            if compare:
                rows.append(bare(callers, seconds))
        for size in sizes:
            rows += await reads(store, size)
        rows.append(await idle(store, seconds))
    finally:
        await store.close()
    return rows


def table(rows: ROWS) -> str:
    columns = ["what", "a second", "p50 ms", "p99 ms", "CPU µs", "% of a core"]
    lines = [f"{columns[0]:<32}" + "".join(f"{column:>14}" for column in columns[1:])]
    for row in rows:
        cells = [f"{row[column]:>14,.3f}" if column in row else " " * 14 for column in columns[1:]]
        lines.append(f"{row['what']:<32}" + "".join(cells))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", help="a URL; what is written there stays")
    parser.add_argument("--records", default="1000,100000", help="sizes to read among")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    asked = parser.parse_args()
    sizes = [int(size) for size in asked.records.split(",") if size]
    with tempfile.TemporaryDirectory() as directory:
        url = asked.store or str(Path(directory) / "records.db")
        rows = asyncio.run(measure(url, sizes, asked.seconds, compare=asked.store is None))
    sys.stdout.write(table(rows) + "\n")
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
