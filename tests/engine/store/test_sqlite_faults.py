"""Every fault of the file is a clear error: nothing is acknowledged, and the store goes on when the fault is gone."""

# ruff: noqa: ASYNC240 - files are put into the state that a test is about, nothing else runs meanwhile

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from engine.errors import FormatTooNew, StoreDamaged, StoreUnavailable
from engine.store.sqlite import SqliteStore, store, writer
from tests.engine.store.conftest import Open

LARGE = b"v" * 40_000


class Trouble:
    """What a `Troubled` connection does instead of the next statement that starts with `on`."""

    on = ""
    stays = False
    code = 0
    raises: Exception | None = None
    hold: threading.Event | None = None


class Troubled(sqlite3.Connection):
    """A connection that fails where a test wants it to."""

    trouble = Trouble()

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        trouble = Troubled.trouble
        if trouble.on and sql.startswith(trouble.on):
            if not trouble.stays:
                trouble.on = ""
            if trouble.hold is not None:
                trouble.hold.wait()
            elif trouble.raises is not None:
                raise trouble.raises
            else:
                error = sqlite3.OperationalError("made up")
                error.sqlite_errorcode = trouble.code
                raise error
        return super().execute(sql, *parameters)


@pytest.fixture
def trouble(monkeypatch: pytest.MonkeyPatch) -> Trouble:
    plain = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **named: plain(*args, factory=Troubled, **named))
    monkeypatch.setattr(Troubled, "trouble", Trouble())
    return Troubled.trouble


async def refused(store: SqliteStore, *, value: bytes = b"", uncertain: bool = False) -> StoreUnavailable:
    with pytest.raises(StoreUnavailable) as caught:
        await store.create("refused", value)
    assert caught.value.uncertain == uncertain
    assert str(store.path) in caught.value.message
    assert caught.value.hint
    return caught.value


# Opening.


@pytest.mark.parametrize("content", [b"this is a text, and rather a long one\n" * 100, b"short"])
async def test_a_file_that_is_not_a_database_is_refused_and_left_as_it_was(
    open_sqlite: Open, path: Path, content: bytes
) -> None:
    path.write_bytes(content)
    with pytest.raises(StoreDamaged, match="not an SQLite database") as caught:
        open_sqlite()
    assert str(path) in caught.value.message
    assert path.read_bytes() == content


async def test_the_database_of_another_program_is_refused_and_left_as_it_was(open_sqlite: Open, path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (a)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreDamaged, match="another program"):
        open_sqlite()
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


async def test_the_file_of_a_newer_build_is_refused(open_sqlite: Open, path: Path, shell: sqlite3.Connection) -> None:
    shell.execute("PRAGMA user_version = 2")
    with pytest.raises(FormatTooNew, match="newer"):
        open_sqlite()


async def test_a_truncated_file_is_refused(open_sqlite: Open, path: Path) -> None:
    await fill(open_sqlite)
    os.truncate(path, path.stat().st_size // 2 // 4096 * 4096)
    with pytest.raises(StoreDamaged, match="damaged") as caught:
        open_sqlite()
    assert "backup" in caught.value.hint


async def test_an_emptied_file_with_records_left_beside_it_is_refused(open_sqlite: Open, path: Path) -> None:
    running = open_sqlite()
    await running.create("a", b"")
    shutil.copy(path.with_name("records.db-wal"), path.with_name("copy.db-wal"))
    path.with_name("copy.db").touch()
    with pytest.raises(StoreDamaged, match="empty"):
        open_sqlite(at=path.with_name("copy.db"))
    assert path.with_name("copy.db-wal").stat().st_size > 0


async def test_a_directory_in_place_of_the_file_is_refused(open_sqlite: Open, tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="not a file"):
        open_sqlite(at=tmp_path)


async def test_a_file_in_place_of_the_directory_is_refused(open_sqlite: Open, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailable, match="cannot be made") as caught:
        open_sqlite(at=tmp_path / "file" / "records.db")
    assert caught.value.hint


async def test_a_read_only_directory_is_refused(open_sqlite: Open, tmp_path: Path) -> None:
    place = tmp_path / "read-only"
    place.mkdir(mode=0o500)
    if os.access(place, os.W_OK):
        pytest.skip("root may write everywhere; a read-only disk is tested instead")
    with pytest.raises(StoreUnavailable, match="cannot be made"):
        open_sqlite(at=place / "records.db")


async def test_a_read_only_disk_is_refused(open_sqlite: Open, small_disk: Path) -> None:
    running = open_sqlite(at=small_disk / "records.db")
    await running.create("a", b"")
    await running.close()
    remount(small_disk, "ro")
    for name in ("records.db", "new.db"):
        with pytest.raises(StoreUnavailable) as caught:
            open_sqlite(at=small_disk / name)
        assert name in caught.value.message
        assert caught.value.hint
    remount(small_disk, "rw")
    assert await open_sqlite(at=small_disk / "records.db").get("a") is not None


async def test_a_file_that_stays_locked_is_refused(open_sqlite: Open, shell: sqlite3.Connection, path: Path) -> None:
    shell.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked") as caught:
        open_sqlite(lock_seconds=0.05)
    assert str(path) in caught.value.message
    assert "fuser" in caught.value.hint
    shell.execute("ROLLBACK")
    open_sqlite(lock_seconds=0.05)


# In use.


async def test_a_lock_that_stays_is_a_certain_refusal_and_goes_by(open_sqlite: Open, shell: sqlite3.Connection) -> None:
    running = open_sqlite(lock_seconds=0.05)
    shell.execute("BEGIN IMMEDIATE")
    fault = await refused(running)
    assert "locked" in fault.message
    with pytest.raises(StoreUnavailable, match="locked"):
        await running.now()
    assert await running.get("refused") is None  # Reads go on.
    shell.execute("ROLLBACK")
    assert (await running.create("refused", b"")).key == "refused"


async def test_a_lock_that_goes_in_time_is_waited_for(open_sqlite: Open, shell: sqlite3.Connection) -> None:
    running = open_sqlite()
    shell.execute("BEGIN IMMEDIATE")
    creating = asyncio.create_task(running.create("a", b""))
    await asyncio.sleep(0)
    shell.execute("ROLLBACK")
    assert (await creating).key == "a"


async def test_a_full_disk_refuses_and_the_store_goes_on_once_there_is_room(
    open_sqlite: Open, small_disk: Path
) -> None:
    running = open_sqlite(at=small_disk / "records.db")
    stored = await fill_up(running)
    for _ in range(2):
        fault = await refused(running, value=LARGE)
        assert "no room" in fault.message
    assert await running.now() >= stored[-1]  # Reading the clock writes nothing.
    assert [record.stored_at for record in await running.list("fill/")] == stored

    remount(small_disk, "size=12m")
    assert (await running.create("room again", b"v" * 500_000)).value == b"v" * 500_000
    await running.close()
    reopened = open_sqlite(at=small_disk / "records.db")
    assert [record.stored_at for record in await reopened.list("fill/")] == stored
    assert await reopened.get("refused") is None


async def test_a_file_at_its_bound_refuses_and_the_store_goes_on_when_the_bound_is_raised(
    open_sqlite: Open, trouble: Trouble
) -> None:
    running = open_sqlite()
    writing = running._writer._connection
    assert writing is not None
    writing.execute("PRAGMA max_page_count = 300")
    stored = await fill_up(running)
    assert "no room" in (await refused(running, value=LARGE)).message
    writing.execute("PRAGMA max_page_count = 100000")
    await running.create("room again", b"")
    assert [record.stored_at for record in await running.list("fill/")] == stored


async def test_a_full_disk_refuses_a_new_store(open_sqlite: Open, small_disk: Path) -> None:
    (small_disk / "ballast").write_bytes(bytes(3 * 1024 * 1024))
    with pytest.raises(StoreUnavailable) as caught:
        open_sqlite(at=small_disk / "records.db")
    assert caught.value.hint
    (small_disk / "ballast").unlink()
    await open_sqlite(at=small_disk / "records.db").create("a", b"")


async def test_damage_is_reported_where_it_is_found_and_the_rest_goes_on(open_sqlite: Open, path: Path) -> None:
    await fill(open_sqlite)
    pages = path.stat().st_size // 4096
    with path.open("r+b") as damaged:  # The middle third.
        damaged.seek(4096 * (pages // 3))
        damaged.write(b"\xff" * 4096 * (pages // 3))
    running = open_sqlite()
    with pytest.raises(StoreDamaged, match="damaged") as caught:
        await running.list("")
    assert str(path) in caught.value.message
    with pytest.raises(StoreDamaged) as caught:
        await running.create_all([(f"fill/{number:04d}x", b"") for number in range(500)])
    assert caught.value.hint
    last = await running.create("zzz", b"what lies elsewhere still works")
    assert await running.get("zzz") == last


async def test_missing_tables_are_reported(open_sqlite: Open, shell: sqlite3.Connection) -> None:
    running = open_sqlite()
    shell.execute("DROP TABLE records")
    with pytest.raises(StoreDamaged, match="tables"):
        await running.get("a")
    with pytest.raises(StoreDamaged, match="tables"):
        await running.create("a", b"")


@pytest.mark.parametrize("replaced", [False, True], ids=["removed", "replaced"])
async def test_nothing_is_acknowledged_once_the_file_is_not_in_its_place(
    open_sqlite: Open, path: Path, *, replaced: bool
) -> None:
    running = open_sqlite()
    await running.create("a", b"")
    path.rename(path.with_name("elsewhere.db"))
    if replaced:
        path.touch()
    assert "removed or replaced" in (await refused(running)).message
    path.unlink(missing_ok=True)
    path.with_name("elsewhere.db").rename(path)
    await running.create("back in place", b"")


@pytest.mark.parametrize(
    ("code", "uncertain"),
    [
        (sqlite3.SQLITE_IOERR_FSYNC, True),
        (sqlite3.SQLITE_IOERR_WRITE, True),
        (sqlite3.SQLITE_CORRUPT, True),
        (sqlite3.SQLITE_FULL, False),
        (sqlite3.SQLITE_BUSY, False),
    ],
)
async def test_a_commit_that_fails_is_uncertain_only_where_it_may_have_landed(
    open_sqlite: Open, trouble: Trouble, code: int, *, uncertain: bool
) -> None:
    running = open_sqlite()
    trouble.code, trouble.on = code, "COMMIT"
    await refused(running, uncertain=uncertain)
    assert await running.get("refused") is None
    assert (await running.create("refused", b"second")).value == b"second"


@pytest.mark.parametrize("statement", ["BEGIN", "SELECT boot", "INSERT"])
async def test_an_error_before_the_commit_is_certain(open_sqlite: Open, trouble: Trouble, statement: str) -> None:
    running = open_sqlite()
    trouble.code, trouble.on = sqlite3.SQLITE_IOERR_READ, statement
    assert "disk failed" in (await refused(running)).message
    assert (await running.create("refused", b"")).key == "refused"


async def test_a_read_waits_while_all_of_the_file_is_locked(open_sqlite: Open, trouble: Trouble) -> None:
    running = open_sqlite(lock_seconds=0.05)
    record = await running.create("a", b"")
    trouble.code, trouble.on = sqlite3.SQLITE_BUSY_RECOVERY, "SELECT key"
    assert await running.get("a") == record
    trouble.on, trouble.stays = "SELECT key", True
    with pytest.raises(StoreUnavailable, match="locked"):
        await running.get("a")
    trouble.on = ""
    assert await running.get("a") == record


async def test_a_read_that_fails_says_so_and_the_next_connects_anew(open_sqlite: Open, trouble: Trouble) -> None:
    running = open_sqlite()
    record = await running.create("a", b"")
    trouble.code, trouble.on = sqlite3.SQLITE_IOERR_READ, "SELECT key"
    with pytest.raises(StoreUnavailable, match="disk failed"):
        await running.get("a")
    assert await running.get("a") == record


async def test_an_error_of_the_module_does_not_give_away_what_it_quotes(open_sqlite: Open, trouble: Trouble) -> None:
    running = open_sqlite()
    trouble.raises, trouble.on = sqlite3.OperationalError("Could not decode 'payload of somebody'"), "SELECT key"
    with pytest.raises(StoreDamaged, match="damaged") as caught:
        await running.get("a")
    assert "payload" not in str(caught.value) + caught.value.hint


async def test_everybody_in_a_transaction_that_fails_is_told(
    open_sqlite: Open, trouble: Trouble, shell: sqlite3.Connection
) -> None:
    running = open_sqlite()
    shell.execute("BEGIN IMMEDIATE")
    asked = [running.create(str(number), b"") for number in range(10)]
    tasks = [asyncio.create_task(create) for create in asked]
    await asyncio.sleep(0)
    trouble.code, trouble.on = sqlite3.SQLITE_FULL, "COMMIT"
    shell.execute("ROLLBACK")
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    failed = [answer for answer in answers if isinstance(answer, StoreUnavailable)]
    assert failed
    assert len(set(map(id, failed))) == len(failed)
    stored = {record.key for record in await running.list("")}
    assert stored == {str(number) for number, answer in enumerate(answers) if not isinstance(answer, BaseException)}


async def test_an_error_that_nobody_thought_of_does_not_end_the_writer(open_sqlite: Open, trouble: Trouble) -> None:
    running = open_sqlite()
    trouble.raises, trouble.on = RuntimeError("payload of somebody"), "INSERT"
    with pytest.raises(StoreUnavailable) as caught:
        await running.create("a", b"")
    assert "payload" not in str(caught.value)
    trouble.on = "COMMIT"
    with pytest.raises(StoreUnavailable) as caught:
        await running.create("a", b"")
    assert caught.value.uncertain
    await running.create("a", b"")


async def test_a_disk_that_hangs_is_an_uncertain_refusal(
    open_sqlite: Open, trouble: Trouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "STORE_TIMEOUT_SECONDS", 0.05)
    monkeypatch.setattr(store, "_WATCHDOG_SECONDS", 0.01)
    running = open_sqlite()
    trouble.hold, trouble.on = threading.Event(), "COMMIT"
    try:
        fault = await refused(running, uncertain=True)
        with pytest.raises(StoreUnavailable) as caught:
            await running.now()
        assert not caught.value.uncertain
    finally:
        trouble.hold.set()
    assert "not answered" in fault.message
    monkeypatch.setattr(store, "STORE_TIMEOUT_SECONDS", 10.0)
    assert (await running.create("refused", b"")).key == "refused"


async def test_a_failing_disk_does_not_end_the_watch_for_changes(
    open_sqlite: Open, trouble: Trouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "SQLITE_POLL_SECONDS", 0.001)
    running, other = open_sqlite(), open_sqlite()
    trouble.code, trouble.on = sqlite3.SQLITE_IOERR_READ, "PRAGMA data_version"
    watching = asyncio.create_task(running.changed())
    await asyncio.sleep(0)
    await other.create("a", b"")
    async with asyncio.timeout(5):
        await watching


async def test_what_is_asked_of_a_closed_store_is_refused(open_sqlite: Open) -> None:
    running = open_sqlite()
    await running.close()
    for ask in (
        running.create("a", b""),
        running.create_all([("a", b"")]),
        running.delete(["a"]),
        running.now(),
        running.get("a"),
        running.last("a"),
        running.list("a"),
        running.changed(),
    ):
        with pytest.raises(StoreUnavailable, match="closed"):
            await ask


async def fill(open_sqlite: Open) -> None:
    """Make a file of some hundred pages, closed as it should be."""
    running = open_sqlite()
    await running.create_all([(f"fill/{number:04d}", b"v" * 1_000) for number in range(500)])
    await running.close()


async def fill_up(running: SqliteStore) -> list[Any]:
    """Create records until there is no room; give the stamps of those that were acknowledged."""
    stamps: list[Any] = []
    fault: StoreUnavailable | None = None
    while fault is None and len(stamps) < 1_000:
        try:
            stamps.append((await running.create(f"fill/{len(stamps):06d}", LARGE)).stored_at)
        except StoreUnavailable as error:
            fault = error
    assert fault is not None
    assert "no room" in fault.message
    assert not fault.uncertain
    assert stamps
    return stamps


def remount(place: Path, option: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{option}", place], check=True)
