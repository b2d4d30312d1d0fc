"""Make the tables, and check that they are those this build knows.

Each numbered file in `migrations` is applied once, in order, all that are missing in one transaction, by whichever
instance comes first: the others wait for its lock. A build that meets a newer schema than it knows refuses it.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any, Final

import asyncpg

from engine.errors import FormatTooNew, StoreDamaged

_LOCK: Final = 375159804675
_TABLE: Final = """CREATE TABLE IF NOT EXISTS wayside_schema (
    version integer PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now()
)"""
_VERSION: Final = "SELECT coalesce(max(version), 0) FROM wayside_schema"


def migrations() -> dict[int, str]:
    """Read the files: number to SQL. They are numbered from 1 on, without a gap."""
    found = {
        int(match[1]): entry.read_text(encoding="utf-8")
        for entry in files(__package__).joinpath("migrations").iterdir()
        if (match := re.fullmatch(r"(\d{4})_[a-z0-9_]+\.sql", entry.name))
    }
    assert sorted(found) == list(range(1, len(found) + 1)), "a migration's number is missing"
    return found


async def prepare(connection: Any) -> None:  # noqa: ANN401 - asyncpg has no types
    """Bring the database to this build's schema; raises `FormatTooNew`, `StoreDamaged` and the driver's errors."""
    encoding = await connection.fetchval("SHOW server_encoding")
    if encoding != "UTF8":
        raise StoreDamaged(
            f"the database's encoding is {encoding}; a store needs UTF8",
            hint="create another: `createdb --encoding UTF8 --template template0 NAME`",
        )
    known = migrations()
    try:
        version = await connection.fetchval(_VERSION)
    except asyncpg.UndefinedTableError:
        version = 0
    if version < len(known):
        version = await _migrate(connection, known)
    if version > len(known):
        raise FormatTooNew(
            f"the database has schema {version}, made by a newer build; this build knows schema {len(known)}",
            hint="start the newer build, or restore a backup from before the upgrade",
        )


async def _migrate(connection: Any, known: dict[int, str]) -> int:  # noqa: ANN401
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        await connection.execute(_TABLE)
        # Another instance may have been first.
        version: int = await connection.fetchval(_VERSION)
        for number in range(version + 1, len(known) + 1):
            await connection.execute(known[number])
            await connection.execute("INSERT INTO wayside_schema (version) VALUES ($1)", number)
        return max(version, len(known))
