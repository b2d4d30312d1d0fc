"""A shell step runs one real program with exactly its arguments, bounds what it takes, and leaves no process behind."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import msgspec
import psutil
import pytest

from engine.limits import MAX_OUTPUT_BYTES
from engine.steps import shell
from engine.steps.result import Effect
from engine.workflows.definition import ShellTask
from engine.workflows.expressions import ExpressionFailed

PRINT_ARGUMENTS = "import json,sys; print(json.dumps(sys.argv[1:]))"


async def run(*words: str, seconds: float = 20.0, env: dict[str, object] | None = None, **extra: str) -> Effect:
    task = ShellTask(run=words, timeout=seconds, env=extra)
    return await shell.prepare(task, env or {"inputs": {}, "steps": {}, "self": {}})()


def outputs(effect: Effect) -> dict[str, object]:
    assert effect.outputs is not None
    decoded: dict[str, object] = msgspec.json.decode(effect.outputs)
    return decoded


async def test_a_program_that_ends_with_zero_succeeds_with_its_output() -> None:
    effect = await run(sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr)")
    assert effect.error is None
    assert outputs(effect) == {"exit": 0, "stdout": "out\n", "stderr": "err\n"}


async def test_another_status_fails_the_step_and_keeps_what_was_said() -> None:
    effect = await run(sys.executable, "-c", "print('half'); raise SystemExit(3)")
    assert effect.error is not None
    assert (effect.error.code, effect.error.message) == ("task_failed", "the program ended with status 3")
    assert outputs(effect)["stdout"] == "half\n"


async def test_an_argument_is_one_argument_whatever_a_payload_put_into_it() -> None:
    nasty = "$(touch owned); `id` && rm -rf * \n 'x' \"y\" --flag"
    env: dict[str, object] = {"inputs": {"text": nasty, "number": 7, "list": [1, "a"]}, "steps": {}, "self": {}}
    words = ("${{ inputs.text }}", "${{ inputs.number }}", "${{ inputs.list }}", "n=${{ inputs.number }}")
    effect = await run(sys.executable, "-c", PRINT_ARGUMENTS, *words, env=env)
    assert msgspec.json.decode(str(outputs(effect)["stdout"])) == [nasty, "7", '[1,"a"]', "n=7"]


async def test_a_program_that_is_not_there_fails_the_step() -> None:
    effect = await run("/no/such/program")
    assert effect.error is not None
    assert effect.error.message == "the program could not be started: FileNotFoundError"


async def test_an_argument_with_a_nul_fails_the_step() -> None:
    env: dict[str, object] = {"inputs": {"text": "a\0b"}, "steps": {}, "self": {}}
    effect = await run(sys.executable, "-c", PRINT_ARGUMENTS, "${{ inputs.text }}", env=env)
    assert effect.error is not None
    assert effect.error.message == "the program could not be started: ValueError"


async def test_an_expression_that_fails_is_found_before_the_program_runs() -> None:
    with pytest.raises(ExpressionFailed):
        shell.prepare(ShellTask(run=("${{ inputs.missing }}",)), {"inputs": {}, "steps": {}, "self": {}})


async def test_output_is_read_to_its_end_and_kept_up_to_the_limit() -> None:
    script = f"import sys; sys.stdout.write('a' * {3 * MAX_OUTPUT_BYTES}); sys.stderr.write('b' * 10)"
    effect = await run(sys.executable, "-c", script)
    assert effect.error is None
    assert outputs(effect)["stdout"] == "a" * MAX_OUTPUT_BYTES
    assert outputs(effect)["stderr"] == "b" * 10


async def test_bytes_that_are_no_text_are_replaced() -> None:
    effect = await run(sys.executable, "-c", r"import sys; sys.stdout.buffer.write(b'\xff\xfe ok')")
    assert outputs(effect)["stdout"] == "�� ok"


async def test_the_program_has_no_standard_input() -> None:
    effect = await run(sys.executable, "-c", "import sys; print(repr(sys.stdin.read()))", seconds=20)
    assert outputs(effect)["stdout"] == "''\n"


async def test_the_gateways_own_settings_are_kept_from_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYSIDE_ADMIN_TOKEN", "not for programs")
    monkeypatch.setenv("ORDINARY", "yes")
    script = "import os; print(sorted(n for n in os.environ if n.startswith(('WAYSIDE','ORDINARY','OWN'))))"
    effect = await run(sys.executable, "-c", script, OWN="${{ 1 + 1 }}")
    assert outputs(effect)["stdout"] == "['ORDINARY', 'OWN']\n"


async def test_a_program_that_takes_too_long_is_killed_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    effect = await run("/bin/sh", "-c", f"sleep 300 & echo $$ $! > {pids}; sleep 300", seconds=1.0)
    assert effect.error is not None
    assert effect.error.message == "the program did not end within 1 s"
    assert effect.outputs is None
    await gone([int(pid) for pid in pids.read_text().split()])


async def test_a_child_that_a_program_left_behind_is_ended_with_it(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    effect = await run("/bin/sh", "-c", f"sleep 300 >/dev/null 2>&1 & echo $! > {pids}")
    assert effect.error is None
    await gone([int(pid) for pid in pids.read_text().split()])


async def test_a_step_that_is_abandoned_kills_its_program(tmp_path: Path) -> None:
    fifo, pids = tmp_path / "fifo", tmp_path / "pids"
    os.mkfifo(fifo)
    task = asyncio.create_task(run("/bin/sh", "-c", f"sleep 300 & echo $$ $! > {pids}; echo up > {fifo}; wait"))
    await asyncio.to_thread(fifo.read_text)  # returns when the program has said that it is up
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await gone([int(pid) for pid in pids.read_text().split()])


async def test_a_step_that_is_abandoned_as_it_starts_leaves_nothing_running(tmp_path: Path) -> None:
    marker = f"{301 + os.getpid()}.25"
    for turns in range(12):
        task = asyncio.create_task(run("/bin/sh", "-c", f"sleep {marker} & wait"))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        async with asyncio.timeout(10):
            with pytest.raises(asyncio.CancelledError):
                await task
    await gone(
        [process.pid for process in psutil.process_iter(["cmdline"]) if marker in (process.info["cmdline"] or [])]
    )


async def gone(pids: list[int]) -> None:
    """Return when none of the processes runs any more; a killed one may wait as a zombie for its reaper."""

    def running(pid: int) -> bool:
        try:
            return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    async with asyncio.timeout(10):
        while any(running(pid) for pid in pids):
            await asyncio.sleep(0.01)
