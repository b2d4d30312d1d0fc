"""Another process over one file, for tests: appends numbered records in moments and by plain creates until killed.

It prints, for each, how it was appended, its number and its value, once that is durable.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from engine.store.base import Store
from engine.store.sqlite import SqliteStore


def say(how: str, number: int, value: str) -> None:
    sys.stdout.write(f"{how} {number} {value}\n")
    sys.stdout.flush()


def numbered(number: int) -> str:
    return f"n/{number:012d}"


async def following(store: Store) -> int:
    last = await store.last("n/")
    return 1 if last is None else int(last.key[2:]) + 1


async def append_in_moments(store: SqliteStore, name: str) -> None:
    for each in range(1_000_000):
        value = f"{name}-{each}"

        async def append(view: Store, value: str = value) -> int:
            number = await following(view)
            record = await view.create(numbered(number), value.encode())
            assert record.value == value.encode(), "the number after the last is free"
            await view.create(f"beside/{value}", b"%d" % number)
            return number

        say("moment", await store.at_once(append), value)


async def append_plainly(store: SqliteStore, name: str) -> None:
    for each in range(1_000_000):
        value = f"{name}-{each}"
        number = await following(store)
        while (await store.create(numbered(number), value.encode())).value != value.encode():
            number = await following(store)
        say("plain", number, value)


async def append(path: Path, name: str) -> None:
    store = SqliteStore(path)
    moments = [append_in_moments(store, f"{name}-m{caller}") for caller in range(3)]
    await asyncio.gather(*moments, append_plainly(store, f"{name}-p"))


if __name__ == "__main__":
    asyncio.run(append(Path(sys.argv[1]), sys.argv[2]))
