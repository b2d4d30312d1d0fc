"""Instances: each process's heartbeat, and how the others learn that one has died."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from dataclasses import dataclass, field
from pathlib import Path

from engine import names, records
from engine.clock import Source
from engine.limits import STALE_AFTER_SECONDS
from engine.records import Beat
from engine.store.base import Store

_KEPT_BEATS = 2


class Lock:
    """A file that this process holds locked for as long as it lives, so that others on the host see it die at once."""

    def __init__(self, directory: Path, instance: str) -> None:
        self.path = directory / f"{instance}.lock"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def release(self) -> None:
        """Let go; the file goes too."""
        with contextlib.suppress(OSError):
            self.path.unlink()
        os.close(self._file)


def is_free(path: Path) -> bool:
    """Tell whether the process that held this lock is gone. False when that cannot be told."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(file)
    return True


def remove_lock(lock: str) -> None:
    """Remove the lock file of an instance that is gone."""
    with contextlib.suppress(OSError):
        Path(lock).unlink()


def place_of(directory: Path) -> str:
    """Name this boot and a directory of locks: two processes that agree see each other's. Empty when it is not there.

    A path alone would not do: containers of one host have directories of their own under the same path.
    """
    with contextlib.suppress(OSError):
        found = directory.stat()
        return f"{_boot()} {found.st_dev:x}:{found.st_ino:x}"
    return ""


def _boot() -> str:
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return socket.gethostname()


def _is_seen(beat: Beat) -> bool:
    """Tell whether the lock of the instance that beats can be looked at from here."""
    return bool(beat.lock) and beat.host == place_of(Path(beat.lock).parent)


@dataclass(slots=True)
class _Seen:
    beat: str
    since: float
    own_beats: int


@dataclass(slots=True)
class Pulse:
    """This instance's own beats, and what it has seen of the others'."""

    store: Store
    source: Source
    instance: str
    lock: Lock | None
    number: int = 0
    _seen: dict[str, _Seen] = field(default_factory=dict)

    async def beat(self, audit_head: str = "") -> None:
        """Write the next heartbeat, and clear away all but the last of the earlier ones."""
        try:
            await self._beat(audit_head)
        except BaseException:
            # A time in which the own beats did not succeed says nothing about the others'.
            self._seen.clear()
            raise

    async def _beat(self, audit_head: str) -> None:
        self.number += 1
        value = Beat(
            at=names.beat(self.instance, self.number),
            nonce=self.source.nonce(),
            instance=self.instance,
            host=place_of(self.lock.path.parent) if self.lock else _boot(),
            lock=str(self.lock.path) if self.lock else "",
            audit=audit_head,
        )
        await self.store.create(*records.encode(value))
        if self.number > _KEPT_BEATS:
            await self.store.delete([names.beat(self.instance, self.number - _KEPT_BEATS)])

    async def is_dead(self, instance: str) -> bool:
        """Tell whether another instance has died.

        On the same host at once, by its lock file; elsewhere when no new beat of it appeared for `STALE_AFTER_SECONDS`
        in which this instance's own beats succeeded.
        """
        if instance == self.instance:
            return False
        record = await self.store.last(names.beats(instance))
        if record is not None:
            beat = records.beat(record).value
            if _is_seen(beat):
                return is_free(Path(beat.lock))
        key = record.key if record is not None else ""
        now = self.source.monotonic()
        seen = self._seen.get(instance)
        if seen is None or seen.beat != key:
            self._seen[instance] = _Seen(key, now, self.number)
            return False
        return now - seen.since >= STALE_AFTER_SECONDS and self.number > seen.own_beats + 1

    async def is_gone(self, instance: str) -> bool:
        """Tell whether another instance that has beaten once has died or left.

        One whose beats are gone has left, or was found dead by somebody: they come before anything else that it stores.
        """
        if instance != self.instance and await self.store.last(names.beats(instance)) is None:
            return True
        return await self.is_dead(instance)

    async def others(self) -> list[str]:
        """Name the other instances that have left beats."""
        found = await self.store.list(names.INSTANCES)
        return sorted({names.instance_of(record.key) for record in found} - {self.instance})

    async def forget(self, instance: str) -> None:
        """Delete a dead instance's beats, once nothing is left that it drove."""
        self._seen.pop(instance, None)
        beats = await self.store.list(names.beats(instance))
        if beats:
            await self.store.delete([record.key for record in beats])
            read = records.beat(beats[-1])
            if _is_seen(read.value):
                remove_lock(read.value.lock)
