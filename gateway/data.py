"""The data directory: who may look into it, and the token that the local commands use."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from devices import credentials, operations
from devices.registry import Registry
from engine.clock import encode, secret_number
from engine.errors import WaysideError
from engine.names import is_name
from gateway.files import replacing

ADMIN: Final = "admin"
TOKEN_FILE: Final = "admin.token"  # noqa: S105  a file's name
LOCKS: Final = "locks"


def prepare(data: Path, workflows: Path) -> None:
    """Make the directory (0700) and those in it; raises `WaysideError` that says what is in the way."""
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        (data / LOCKS).mkdir(mode=0o700, exist_ok=True)
        workflows.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as fault:
        raise WaysideError(
            f"the data directory {data} cannot be made or written ({fault.strerror})",
            hint="name another with --data DIR, or give it to the user that runs this",
        ) from None


def exposed(data: Path) -> bool:
    """Tell whether others on this machine can look into the directory."""
    return bool(data.stat().st_mode & 0o077)


LOST: Final = (
    "this data directory was in use, and its store is empty: it may be lost, or another than before; "
    "look at --data, at the setting `store` and at the disk before you go on"
)


async def ensure_admin(registry: Registry, data: Path, *, shared: bool = False) -> bool:
    """See to it that `admin.token` holds a token of an operator with the right `admin`, readable by its owner alone.

    False when there was a token and the store has never known anybody: it is not the one that the directory had.

    Where data directories share a store, each has an operator of its own, whose name the lock's file keeps: a lost
    token is replaced, and it must not be another host's. Whoever can write to the store is an administrator by that:
    one that was revoked has an operator again at its next start. One whose directory is gone stays until it is revoked,
    since nobody can tell that from a host that is away; the doctor names those not seen for long.
    """
    async with _alone(data / LOCKS / "admin") as kept:
        await registry.refresh()
        file = data / TOKEN_FILE
        token = _read(file)
        entry = registry.owner(credentials.digest(token))
        if entry is not None and entry.kind == "user" and entry.active:
            return True
        known = not (token and registry.empty)
        _write(file, await _new_token(registry, _own_name(kept) if shared else ADMIN))
        return known


def is_directory_s_own(name: str) -> bool:
    """Tell whether an operator has a name that data directories give to theirs."""
    return re.fullmatch(rf"{ADMIN}(-[0-9a-z]{{8}})?", name) is not None


def _own_name(kept: int) -> str:
    """Give the name that this directory's operator has, or draw one: hosts may have equal names and paths."""
    name = os.pread(kept, 64, 0).decode("ascii", "replace")
    if not is_name(name):
        name = f"{ADMIN}-{encode(secret_number(40), 8)}"
        os.pwrite(kept, name.encode(), 0)
    return name


async def _new_token(registry: Registry, name: str) -> str:
    operator = registry.operator(name)
    if operator is None or operator.state == "deleted":
        return (await operations.add_operator(registry, name, rights=["admin"], by="user:system")).token
    # Its token is lost: the file was deleted. Nobody else has it to go on with.
    if len(operator.secrets) > 1:
        await operations.finish_operator_rotation(registry, name, by="user:system")
    token = (await operations.rotate_operator(registry, name, by="user:system")).token
    await operations.finish_operator_rotation(registry, name, by="user:system")
    return token


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _write(file: Path, token: str) -> None:
    with replacing(file) as stream:
        stream.write(f"{token}\n".encode())


@contextlib.asynccontextmanager
async def _alone(lock: Path) -> AsyncIterator[int]:
    """Let one process at a time in, and give it the lock's file: two that start together make one token."""
    file = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        await asyncio.to_thread(fcntl.flock, file, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)
