"""Another process over the same store, for tests: does what it is told, and prints what came of it."""

from __future__ import annotations

import asyncio
import sys

from engine.store.open import open_store


def say(*words: str) -> None:
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


async def create_until_killed(url: str, name: str) -> None:
    """Create one record after another from several callers; print each key once its create has returned."""
    store = open_store(url)

    async def one(caller: int) -> None:
        for number in range(1_000_000):
            key = f"{name}/{caller}/{number:012d}"
            await store.create(key, key.encode())
            say(key)

    await asyncio.gather(*(one(caller) for caller in range(8)))


async def race(url: str, name: str) -> None:
    """Say ready, wait for a line with a number, then create so many records with our own value; print each winner."""
    store = open_store(url)
    say("ready")
    for number in range(int(await asyncio.to_thread(sys.stdin.readline))):
        key = f"race/{number:012d}"
        records = await asyncio.gather(*(store.create(key, f"{name}/{caller}".encode()) for caller in range(5)))
        winners = {record.value.decode() for record in records}
        say(key, *winners)
    await store.close()


async def get(url: str, key: str) -> None:
    """Print the value of one record."""
    store = open_store(url)
    record = await store.get(key)
    say("absent" if record is None else record.value.decode())
    await store.close()


if __name__ == "__main__":
    command, store_url, argument = sys.argv[1:]
    asyncio.run({"create": create_until_killed, "race": race, "get": get}[command](store_url, argument))
