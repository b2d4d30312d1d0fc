"""The file is made for its owner alone, by however many processes at once, and can be backed up while it is in use."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from asyncio.subprocess import PIPE
from contextlib import closing
from pathlib import Path
from stat import S_IMODE

import pytest

from tests.engine.store.conftest import Open

OPEN_AND_CREATE = """
import asyncio, sys
from engine.store.open import open_store

async def main():
    sys.stdin.readline()
    store = open_store(sys.argv[1])
    print((await store.create("first", sys.argv[2].encode())).value.decode())
    await store.close()

asyncio.run(main())
"""


async def test_the_file_and_new_directories_are_for_their_owner_alone(open_sqlite: Open, tmp_path: Path) -> None:
    path = tmp_path / "new" / "newer" / "records.db"
    await open_sqlite(at=path).create("a", b"")
    assert S_IMODE(path.parent.stat().st_mode) == S_IMODE(path.parent.parent.stat().st_mode) == 0o700
    for name in ("records.db", "records.db-wal", "records.db-shm"):
        assert S_IMODE(path.with_name(name).stat().st_mode) == 0o600


async def test_closing_leaves_one_file(open_sqlite: Open, path: Path) -> None:
    store = open_sqlite()
    await store.create("a", b"")
    assert await store.get("a") is not None
    await store.close()
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


async def test_a_file_in_another_journal_mode_is_put_back_into_wal(open_sqlite: Open, path: Path) -> None:
    await open_sqlite().close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    await open_sqlite().create("a", b"")
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchall() == [("wal",)]


async def test_commits_are_synced_in_full(open_sqlite: Open) -> None:
    connection = open_sqlite()._writer._connection
    assert connection is not None
    assert connection.execute("PRAGMA synchronous").fetchall() == [(2,)]


async def test_processes_that_make_one_file_at_once_share_it(path: Path) -> None:
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", OPEN_AND_CREATE, str(path), str(number), stdin=PIPE, stdout=PIPE
        )
        for number in range(4)
    ]
    answers = await asyncio.gather(*(process.communicate(b"go\n") for process in processes))
    assert [process.returncode for process in processes] == [0, 0, 0, 0]
    assert len({output for output, _ in answers}) == 1


async def test_a_backup_is_taken_while_the_file_is_in_use(open_sqlite: Open, path: Path, tmp_path: Path) -> None:
    store = open_sqlite()
    record = await store.create("a", b"value")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("VACUUM INTO ?", (str(tmp_path / "copy.db"),))
    await store.create("b", b"")
    copy = open_sqlite(at=tmp_path / "copy.db")
    assert await copy.list("") == [record]
    assert (await copy.create("c", b"")).stored_at >= record.stored_at


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO records (key, value, stored_at) VALUES ('a', 'text', 1)",
        "INSERT INTO records (key, value, stored_at) VALUES (x'61', x'', 1)",
        "INSERT INTO records (key, value, stored_at) VALUES ('a', x'', 'now')",
        "INSERT INTO records (key, value, stored_at) VALUES ('a', x'', -1)",
        "INSERT INTO records (key, value, stored_at) VALUES ('a', NULL, 1)",
    ],
)
async def test_a_shell_cannot_store_what_could_not_be_read_back(shell: sqlite3.Connection, statement: str) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        shell.execute(statement)


@pytest.mark.parametrize("question", ["prefix", "last", "get"])
async def test_look_ups_use_the_index(shell: sqlite3.Connection, question: str) -> None:
    from engine.store.sqlite import reading

    statement = {"prefix": reading.page("a/", "a/b")[0], "last": reading.LAST, "get": reading.GET}[question]
    plan = shell.execute(f"EXPLAIN QUERY PLAN {statement}", ["a"] * statement.count("?")).fetchall()
    assert len(plan) == 1
    assert "SEARCH records USING INDEX" in plan[0][3]
