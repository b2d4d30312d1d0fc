"""An engine in a process of its own that asks before each operation on the store. For `orders` alone.

It takes commands and leave on standard input, a line each, and says on standard output what it is about to do
(`asks`), and how a command ended (`ended`). What it may do before, without being asked, `free` says.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from engine.errors import WaysideError
from engine.results import Taken
from engine.store.base import Record, Store
from engine.store.open import open_store
from tests.support.bench import Bench, bench


class Gated:
    """A store that waits for leave before each operation, one at a time."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.leave: asyncio.Queue[None] = asyncio.Queue()
        self.free = True
        self._one = asyncio.Lock()

    async def _pass(self, what: str, key: str) -> None:
        if not self.free:
            say(asks=f"{what} {key}")
            await self.leave.get()

    async def create(self, key: str, value: bytes) -> Record:
        async with self._one:
            await self._pass("create", key)
            return await self.store.create(key, value)

    async def create_all(self, items: Sequence[tuple[str, bytes]]) -> list[Record]:
        async with self._one:
            await self._pass("create", " ".join(key for key, _ in items))
            return await self.store.create_all(items)

    async def get(self, key: str) -> Record | None:
        async with self._one:
            await self._pass("get", key)
            return await self.store.get(key)

    async def last(self, prefix: str) -> Record | None:
        async with self._one:
            await self._pass("last", prefix)
            return await self.store.last(prefix)

    async def list(self, prefix: str, *, after: str | None = None, limit: int | None = None) -> list[Record]:
        async with self._one:
            await self._pass("list", prefix)
            return await self.store.list(prefix, after=after, limit=limit)

    async def delete(self, keys: Iterable[str]) -> None:
        async with self._one:
            keys = list(keys)
            await self._pass("delete", " ".join(keys))
            await self.store.delete(keys)

    async def now(self, until: datetime | None = None) -> datetime:
        return await self.store.now(until)

    async def changed(self) -> None:
        await self.store.changed()

    async def close(self) -> None:
        await self.store.close()


def say(**said: object) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


async def do(one: Bench, command: str, arguments: dict[str, Any]) -> Any:
    """Carry one command out, to its end."""
    match command:
        case "start":
            await one.engine.start_run(arguments["workflow"], {}, by="test", run=arguments["run"])
            await one.quiet()
            return "started"
        case "outlive":
            await one.engine.start_run(arguments["workflow"], {}, by="test", run=arguments["run"])
            await one.quiet()
            await asyncio.sleep(1.1)
            await one.engine.resume(arguments["run"])
            await one.quiet()
            return "outlived"
        case "signal":
            answer = await one.signal(
                arguments["workflow"], "verdict", {"n": arguments["n"]}, signal_id=arguments.get("id")
            )
            if isinstance(answer, Taken):
                return {"state": answer.state, "receipt": answer.receipt.id}
            return {"state": type(answer).__name__, "receipt": ""}
        case "cancel":
            await one.engine.cancel(arguments["run"], by="test")
            await one.quiet()
            return "cancelled"
        case "resume":
            await one.engine.resume(arguments["run"])
            await one.quiet()
            return "resumed"
        case "sweep":
            await one.sweep()
            return "swept"
        case "bury":
            # Whoever does not beat while this one's own beats succeed is dead.
            await one.sweep()
            one.source.advance(40)
            assert one.engine._pulse is not None
            for _ in range(2):
                await one.engine._pulse.beat()
            await one.sweep()
            return "buried"
        case "break":
            break_engine(arguments["how"])
            return "broken"
        case _:
            raise AssertionError(command)


def break_engine(how: str) -> None:
    """Get the protocol wrong from now on, in a way that looks right."""
    import pytest

    from tests.instances.wrong import MUTATIONS

    MUTATIONS[how](pytest.MonkeyPatch())


async def main(url: str, directory: Path, label: str, texts: Sequence[str]) -> None:
    store = Gated(open_store(url))
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async with bench(directory, *texts, store=store, label=label) as one:
        say(ready=one.engine.instance)
        working: asyncio.Task[None] | None = None
        while line := await reader.readline():
            message = json.loads(line)
            if message == "go":
                store.leave.put_nowait(None)
                continue
            store.free = message.pop("free", False)
            assert working is None or working.done()
            working = asyncio.create_task(_work(one, message))
        if working is not None:
            await working
        store.free = True
    await store.close()


async def _work(one: Bench, message: dict[str, Any]) -> None:
    try:
        result = await do(one, message.pop("do"), message)
    except WaysideError as error:
        result = {"error": type(error).__name__}
    say(ended=result)


def workflows(count: int) -> list[str]:
    """Give texts of workflows `early-N`, `strict-N` and `brief-N`, which have a wait each."""
    tasks = {
        "early": "acceptEarly: 600, timeout: 600",
        "strict": "timeout: 600",
        "brief": "acceptEarly: 600, timeout: 1",
    }
    return [
        f"name: {kind}-{number}\njobs:\n  - name: main\n    steps:\n      - name: verdict\n"
        f"        task: {{ type: wait_for_signal, key: verdict, {task} }}\n"
        for kind, task in tasks.items()
        for number in range(count)
    ]


if __name__ == "__main__":
    store_url, folder, own_label, how_many = sys.argv[1:]
    asyncio.run(main(store_url, Path(folder), own_label, workflows(int(how_many))))
