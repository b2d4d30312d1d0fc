"""SQLite's clock is anchored once a boot: steps of the wall clock time nothing out, and `now` is strict."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from asyncio.subprocess import PIPE
from datetime import timedelta
from pathlib import Path

import pytest

from engine.errors import StoreUnavailable
from engine.store.sqlite import clock as sqlite_clock
from engine.store.sqlite.clock import SystemHostClock, to_datetime
from tests.engine.store.conftest import Open, SetHost

DAY = 86_400.0

HOLD_A_STAMPED_TRANSACTION = """
import sqlite3, sys
from pathlib import Path
from engine.store.sqlite.clock import SystemHostClock, anchored
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
clock = anchored(connection, SystemHostClock(), Path(sys.argv[1]))
stamp = clock.stamp_us(connection)
connection.execute("INSERT INTO records (key, value, stored_at) VALUES ('held', x'00', ?)", (stamp,))
print(stamp, flush=True)
sys.stdin.readline()
connection.execute("COMMIT")
connection.close()
"""


@pytest.mark.parametrize("step", [DAY, -DAY, 3_600.0, -1.0])
async def test_a_step_of_the_wall_clock_moves_no_stamp(open_sqlite: Open, step: float) -> None:
    host = SetHost()
    store = open_sqlite(host=host)
    first = await store.create("a", b"")
    host.pass_seconds(10)
    host.step_wall_seconds(step)
    second = await store.create("b", b"")
    assert second.stored_at - first.stored_at == timedelta(seconds=10)
    assert await store.now() == second.stored_at


async def test_a_process_that_opens_the_file_after_a_step_keeps_the_time_of_the_others(open_sqlite: Open) -> None:
    host = SetHost()
    first = await open_sqlite(host=host).create("a", b"")
    host.pass_seconds(10)
    host.step_wall_seconds(DAY)
    second = await open_sqlite(host=host).create("b", b"")
    assert second.stored_at - first.stored_at == timedelta(seconds=10)


async def test_a_new_boot_starts_at_the_wall_clock(open_sqlite: Open) -> None:
    host = SetHost()
    store = open_sqlite(host=host)
    await store.create("a", b"")
    await store.close()
    rebooted = SetHost(boot="boot 2", boot_us=7, wall_us=host.wall_us() + 3_600_000_000)
    record = await open_sqlite(host=rebooted).create("b", b"")
    assert record.stored_at == to_datetime(rebooted.wall_us())


@pytest.mark.parametrize("deleted", [False, True], ids=["stored", "deleted"])
async def test_a_new_boot_never_starts_below_the_highest_stamp(open_sqlite: Open, *, deleted: bool) -> None:
    host = SetHost()
    store = open_sqlite(host=host)
    await store.create("a", b"")
    host.pass_seconds(100)
    highest = await store.create("b", b"")
    if deleted:
        await store.delete(["b"])
    await store.close()
    no_battery = SetHost(boot="boot 2", boot_us=7, wall_us=0)
    store = open_sqlite(host=no_battery)
    assert (await store.create("c", b"")).stored_at == highest.stored_at
    no_battery.pass_seconds(5)
    assert (await store.create("d", b"")).stored_at == highest.stored_at + timedelta(seconds=5)


async def test_now_waits_for_a_transaction_of_another_process_that_is_stamped_and_not_committed(
    open_sqlite: Open, path: Path
) -> None:
    store = open_sqlite()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLD_A_STAMPED_TRANSACTION, str(path), stdin=PIPE, stdout=PIPE
    )
    assert process.stdout is not None
    assert process.stdin is not None
    stamp = to_datetime(int(await process.stdout.readline()))
    asked = asyncio.create_task(store.now())
    # The host's clock is past the stamp of a record that nobody can see: it would be the wrong answer.
    assert await store.now(until=stamp + timedelta(hours=1)) > stamp
    assert await store.get("held") is None
    assert not asked.done()
    await process.communicate(b"commit\n")
    assert await asked >= stamp
    held = await store.get("held")
    assert held is not None
    assert held.stored_at == stamp


async def test_now_answers_while_a_later_writer_finds_the_answer_behind_it(open_sqlite: Open) -> None:
    host = SetHost()
    store, other = open_sqlite(host=host), open_sqlite(host=host)
    for number in range(5):
        now = await store.now()
        assert (await other.create(f"a/{number}", b"")).stored_at >= now
        host.pass_seconds(1)


async def test_a_moment_that_lies_ahead_is_answered_without_the_write_lock(
    open_sqlite: Open, shell: sqlite3.Connection
) -> None:
    store = open_sqlite()
    until = await store.now() + timedelta(hours=1)
    shell.execute("BEGIN IMMEDIATE")
    for _ in range(100):
        assert await store.now(until) < until
    shell.execute("ROLLBACK")


async def test_the_clock_that_is_read_with_creates_is_not_above_their_stamp(
    open_sqlite: Open, shell: sqlite3.Connection
) -> None:
    store = open_sqlite()
    shell.execute("BEGIN IMMEDIATE")  # So that all of it gathers into one batch.
    tasks = [asyncio.create_task(store.create(f"a/{number}", b"")) for number in range(5)]
    asked = asyncio.create_task(store.now())
    later = asyncio.create_task(store.create("later", b""))
    await asyncio.sleep(0)
    shell.execute("ROLLBACK")
    now = await asked
    records = [await task for task in tasks]
    assert all(record.stored_at <= now for record in records)
    assert (await later).stored_at >= now


async def test_a_stamp_is_never_below_the_one_before_it(open_sqlite: Open) -> None:
    """Not even when the boot-time clock of one process is behind, as after a snapshot of a machine was put back."""
    host, behind = SetHost(), SetHost(boot_us=5_000_000)
    store, other = open_sqlite(host=host), open_sqlite(host=behind)
    host.pass_seconds(50)
    first = await store.create("a", b"")
    assert (await other.create("b", b"")).stored_at == first.stored_at
    assert await other.now() == first.stored_at


async def test_a_file_that_another_kernel_takes_over_is_written_no_more(open_sqlite: Open) -> None:
    store = open_sqlite(host=SetHost())
    open_sqlite(host=SetHost(boot="boot of another machine"))
    with pytest.raises(StoreUnavailable, match="another machine") as caught:
        await store.create("a", b"")
    assert not caught.value.uncertain
    assert "PostgreSQL" in caught.value.hint
    assert await store.get("a") is None


async def test_without_a_boot_id_an_answer_of_now_holds_for_other_processes_too(open_sqlite: Open) -> None:
    """Each process has an anchor of its own, here ten seconds apart: the file keeps them in order."""
    ahead = SetHost(boot="", wall_us=1_800_000_010_000_000)
    behind = SetHost(boot="")
    store, other = open_sqlite(host=ahead), open_sqlite(host=behind)
    now = await store.now()
    assert now == to_datetime(ahead.wall_us())
    assert (await other.create("a", b"")).stored_at == now
    behind.pass_seconds(60)
    late = await other.create("b", b"")
    assert late.stored_at == to_datetime(behind.wall_us())
    assert await store.now() == late.stored_at


async def test_a_file_that_lost_its_clock_is_damaged(open_sqlite: Open, shell: sqlite3.Connection) -> None:
    store = open_sqlite()
    shell.execute("DELETE FROM clock")
    with pytest.raises(StoreUnavailable, match="lost its clock"):
        await store.now()


def test_the_boot_of_this_machine_has_a_name_and_its_clocks_go_on() -> None:
    one, other = SystemHostClock(), SystemHostClock()
    assert one.boot() == other.boot() != ""
    assert one.boot_us() <= other.boot_us()
    assert one.wall_us() > 1_700_000_000_000_000


def test_a_host_without_a_boot_id_is_told_by_an_empty_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_clock, "_BOOT_ID", Path("/nonexistent/boot_id"))
    assert not SystemHostClock().boot()
