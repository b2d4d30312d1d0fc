"""Which gateways serve a data directory: one locked file each in `gateways/`, so that local commands find them.

The file of a gateway that died is told from that of a live one by its lock, which the system lets go with the
process, and by nothing that could be reused or forged by chance (a process id, an age).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

DIRECTORY: Final = "gateways"
MAX_BYTES: Final = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    """A serving gateway: where its doors are, as `HOST:PORT`; `more` has those over TLS and WebSocket."""

    instance: str
    pid: int
    mqtt: str
    http: str
    more: dict[str, str] = field(default_factory=dict)


@contextlib.contextmanager
def announce(data: Path, presence: Presence) -> Iterator[None]:
    """Keep the file of this gateway for as long as the context lasts."""
    directory = data / DIRECTORY
    directory.mkdir(mode=0o700, exist_ok=True)
    file = directory / f"{presence.instance}.json"
    unfinished = directory / f".{presence.instance}.new"
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        # Locked before it has its name: nobody ever finds it unlocked while this process lives.
        fcntl.flock(stream, fcntl.LOCK_EX)
        stream.write(json.dumps(asdict(presence)) + "\n")
        stream.flush()
        unfinished.rename(file)
        try:
            yield
        finally:
            file.unlink(missing_ok=True)


def serving(data: Path) -> list[Presence]:
    """List the gateways that serve `data` right now; what dead ones left is cleared away."""
    files = sorted((data / DIRECTORY).glob("*.json"))
    return [presence for file in files if (presence := _read(file)) is not None]


def _read(file: Path) -> Presence | None:
    try:
        with file.open() as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return Presence(**json.loads(stream.read(MAX_BYTES)))
            file.unlink(missing_ok=True)
    except (OSError, ValueError, TypeError):
        pass  # gone meanwhile, or another build's: not one that this build can talk to
    return None
