"""A PostgreSQL server of the tests' own, on a free loopback port, in a directory of its own."""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import cache
from itertools import count
from pathlib import Path

import asyncpg

from tests.support.mosquitto import free_port

_NUMBERS = count(1)


class Server:
    """A cluster that can be started, stopped, killed and started again. Its superuser is `wayside`."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.port = port
        self._programs = programs()

    def url(
        self, database: str = "postgres", *, user: str = "wayside", password: str = "secret", more: str = ""
    ) -> str:
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def make(self) -> None:
        secret = self.directory / "secret"
        secret.write_text("secret")
        secret.chmod(0o644)
        self._run(
            "initdb", "--no-sync", "--username=wayside", "--auth=scram-sha-256", f"--pwfile={secret}",
            "--locale=C.UTF-8", "--encoding=UTF8", f"--pgdata={self._data}",
        )  # fmt: skip

    def start(self, *settings: str) -> None:
        """Start and wait until it answers; each of `settings` is `name=value`."""
        options = [
            f"port={self.port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={self.directory}",
            "max_connections=200", "shared_buffers=32MB", *settings,
        ]  # fmt: skip
        self._run(
            "pg_ctl", "start", "--wait", "--silent", f"--pgdata={self._data}", f"--log={self.directory / 'log'}",
            "--options=" + " ".join(f"-c {option}" for option in options),
        )  # fmt: skip

    def stop(self, mode: str = "fast") -> None:
        """Stop; `immediate` is what a crash leaves behind, recovery at the next start included."""
        self._run("pg_ctl", "stop", "--wait", "--silent", f"--mode={mode}", f"--pgdata={self._data}")

    def running(self) -> bool:
        return (self._data / "postmaster.pid").exists()

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [*_as_nobody_special(), str(self._programs / program), *arguments],
            cwd=self.directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )  # fmt: skip
        log = self.directory / "log"
        said = log.read_text(errors="replace")[-2_000:] if log.exists() else ""
        assert done.returncode == 0, f"{program}: {done.stdout.decode(errors='replace')}{said}"


@contextmanager
def server(*settings: str) -> Iterator[Server]:
    """Make a server and run it."""
    directory = Path(tempfile.mkdtemp(prefix="wayside-postgres-"))
    try:
        if os.geteuid() == 0:
            account = pwd.getpwnam(_ACCOUNT)
            os.chown(directory, account.pw_uid, account.pw_gid)
        made = Server(directory, free_port())
        made.make()
        made.start(*settings)
        try:
            yield made
        finally:
            if made.running():
                made.stop("immediate")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@asynccontextmanager
async def database(of: Server) -> AsyncIterator[str]:
    """Make an empty database; give its URL."""
    name = f"records_{os.getpid()}_{next(_NUMBERS)}"
    await administer(of, f"CREATE DATABASE {name}")
    try:
        yield of.url(name)
    finally:
        await administer(of, f"DROP DATABASE {name} WITH (FORCE)")


async def administer(of: Server, *statements: str, database: str = "postgres") -> None:
    """Do something as the superuser."""
    connection = await asyncpg.connect(of.url(database))
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


def programs() -> Path:
    """Find the newest server that is installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("initdb")
    assert found or on_path, "PostgreSQL's server is not installed; deploy/test installs it"
    return found[-1].parent if found else Path(str(on_path)).parent


_ACCOUNT = "nobody"


def _as_nobody_special() -> Sequence[str]:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return ()
    account = pwd.getpwnam(_ACCOUNT)
    return ("setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups")


_RUNNING = ExitStack()
atexit.register(_RUNNING.close)


@cache
def shared_server() -> Server:
    """The server that this process's tests share, each with a database of its own; it ends with the process."""
    # What is lost with the machine is not what these tests are about, and each makes a database.
    return _RUNNING.enter_context(server("fsync=off"))
