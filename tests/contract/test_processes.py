"""A create is durable when it returns, and one of several processes wins each record."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter

from engine.store.open import open_store
from tests.contract.backends import Backend


async def start(command: str, url: str, argument: str) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.contract.child", command, url, argument, stdin=PIPE, stdout=PIPE
    )


async def lines_of(process: Process) -> list[str]:
    output, _ = await process.communicate()
    return output.decode().splitlines()


async def test_what_was_answered_survives_the_process_being_killed(shared: Backend) -> None:
    await shared.store.close()
    for attempt in range(3 if shared.percent == 100 else 1):
        process = await start("create", shared.url, f"attempt{attempt}")
        assert process.stdout is not None
        answered = [await process.stdout.readline() for _ in range(shared.times(200))]
        process.kill()
        answered += [line for line in (await process.communicate())[0].splitlines(keepends=True) if line[-1:] == b"\n"]
        reopened = open_store(shared.url)
        try:
            stored = {record.key: record.value for record in await reopened.list(f"attempt{attempt}/")}
        finally:
            await reopened.close()
        for line in answered:
            key = line.decode().strip()
            assert stored[key] == key.encode()


async def test_of_four_processes_with_five_creators_each_one_wins_each_record(shared: Backend) -> None:
    processes = [await start("race", shared.url, f"process{number}") for number in range(4)]
    for process in processes:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"%d\n" % shared.times(100))
    seen = [line.split() for lines in await asyncio.gather(*map(lines_of, processes)) for line in lines]
    assert Counter(key for key, *_ in seen) == {f"race/{number:012d}": 4 for number in range(shared.times(100))}
    stored = {record.key: record.value.decode() for record in await shared.store.list("race/")}
    assert all(winners == [stored[key]] for key, *winners in seen)


async def test_another_process_sees_a_create_that_returned(shared: Backend) -> None:
    await shared.store.create("waits/1", b"seen")
    assert await lines_of(await start("get", shared.url, "waits/1")) == ["seen"]
    assert await lines_of(await start("get", shared.url, "waits/2")) == ["absent"]


async def test_a_change_by_another_process_is_noticed(backend: Backend) -> None:
    other = await backend.another()
    await backend.store.create("own", b"")
    waiting = [asyncio.create_task(backend.store.changed()) for _ in range(3)]
    await asyncio.sleep(0)
    await other.create("theirs", b"")
    async with asyncio.timeout(5):
        await asyncio.gather(*waiting)


async def test_a_change_between_two_calls_is_noticed_by_the_second(backend: Backend) -> None:
    other = await backend.another()
    for number in range(2):
        await other.create(f"theirs/{number}", b"")
        async with asyncio.timeout(5):
            await backend.store.changed()


async def test_closing_twice_is_no_error(backend: Backend) -> None:
    other = await backend.another()
    await other.create("a", b"")
    await other.close()
    await other.close()
    assert await backend.store.get("a") is not None
