"""The file's clock: anchored once a boot, so that a step of the host's wall clock times nothing out.

The row of table `clock` says what the wall clock and the boot-time clock said when the first process of this boot
opened the file; every process on the host adds the boot-time clock to it. A new boot is anchored anew, never below the
highest stamp in the file. Stamps are taken while the write lock is held, and never below the last one: they grow in the
order of commits, whoever writes.

Where there is no boot id (not Linux), each process has an anchor of its own, and what keeps them in order is the file
alone: an answer of `now` is written into it (`high_us`) before it is given.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

from engine.clock import SystemSource, wall_clock
from engine.errors import StoreDamaged
from engine.store.sqlite.faults import foreign_boot

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

_READ = """SELECT boot, wall_us, boot_us,
    max(high_us, coalesce((SELECT stored_at FROM records ORDER BY seq DESC LIMIT 1), 0)) FROM clock"""
_HIGHEST = "SELECT coalesce(max(stored_at), 0) FROM (SELECT stored_at FROM records ORDER BY seq DESC LIMIT 1)"
_ANCHOR = "INSERT OR REPLACE INTO clock (id, boot, wall_us, boot_us, high_us) VALUES (1, ?, ?, ?, ?)"
_RAISE = "UPDATE clock SET high_us = max(high_us, ?)"


def to_datetime(microseconds: int) -> datetime:
    """Turn a stamp as it is stored into the time that it stands for."""
    return _EPOCH + timedelta(microseconds=microseconds)


def to_microseconds(moment: datetime) -> int:
    """Turn a time into a stamp, rounded down."""
    return (moment - _EPOCH) // _MICROSECOND


class HostClock(Protocol):
    """What the clock needs of the host. Times are microseconds."""

    def boot(self) -> str:
        """Name this boot, the same for every process of the host; empty where that cannot be told."""
        ...

    def boot_us(self) -> int:
        """Read the clock that runs from the boot on, through sleep, and never steps."""
        ...

    def wall_us(self) -> int:
        """Read the wall clock, which may be stepped at any time."""
        ...


class SystemHostClock:
    """The clocks of this machine."""

    def __init__(self) -> None:
        self._source = SystemSource()

    def boot(self) -> str:
        try:
            boot = _BOOT_ID.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return ""
        try:
            # Two containers of one kernel may have boot-time clocks apart, each in a time namespace of its own.
            return f"{boot} {Path('/proc/self/ns/time').readlink()}"
        except OSError:
            return boot

    def boot_us(self) -> int:
        return int(self._source.monotonic() * 1_000_000)

    def wall_us(self) -> int:
        return to_microseconds(wall_clock())


@dataclass(frozen=True, slots=True)
class Anchor:
    """Where a boot's clock was started."""

    boot: str
    wall_us: int
    boot_us: int


class FileClock:
    """Stamps the records of one file. Its anchor never changes; safe to read from any thread."""

    def __init__(self, host: HostClock, anchor: Anchor, path: Path) -> None:
        self._host = host
        self._anchor = anchor
        self._path = path

    @property
    def shared(self) -> bool:
        """Whether all processes on the host run on one anchor."""
        return bool(self._anchor.boot)

    def local_us(self) -> int:
        """Read the clock without asking the file: a later stamp may turn out higher only."""
        return self._anchor.wall_us + self._host.boot_us() - self._anchor.boot_us

    def stamp_us(self, connection: sqlite3.Connection) -> int:
        """Read the clock inside a write transaction: at or above every stamp and every answer given before.

        Raises `StoreUnavailable` when another boot has anchored the file while this one uses it.
        """
        rows = connection.execute(_READ).fetchall()
        if not rows:
            raise StoreDamaged(f"{self._path} has lost its clock", hint="put a backup in its place")
        boot, wall_us, boot_us, highest_us = rows[0]
        if (boot, wall_us, boot_us) != (self._anchor.boot, self._anchor.wall_us, self._anchor.boot_us) and (
            boot or self._anchor.boot
        ):
            raise foreign_boot(self._path)
        stamp_us: int = max(self.local_us(), highest_us)
        return stamp_us

    def keep(self, connection: sqlite3.Connection, stamp_us: int) -> None:
        """Write down, inside a write transaction, that no later stamp may be below `stamp_us`."""
        connection.execute(_RAISE, (stamp_us,))


def anchored(connection: sqlite3.Connection, host: HostClock, path: Path) -> FileClock:
    """Take the anchor that the file has for this boot, or give it one. Inside a write transaction."""
    boot, now_us = host.boot(), host.boot_us()
    rows = connection.execute(_READ).fetchall()
    highest_us: int = rows[0][3] if rows else connection.execute(_HIGHEST).fetchall()[0][0]
    if rows and boot and rows[0][0] == boot and rows[0][2] <= now_us:
        return FileClock(host, Anchor(*rows[0][:3]), path)
    anchor = Anchor(boot, max(host.wall_us(), highest_us), now_us)
    connection.execute(_ANCHOR, (anchor.boot, anchor.wall_us, anchor.boot_us, highest_us))
    return FileClock(host, anchor, path)
