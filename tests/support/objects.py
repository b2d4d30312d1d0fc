"""Object services of the tests' own on loopback: moto's S3, and a stand-in for Google's."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import cache
from itertools import count
from time import monotonic, sleep

from tests.support.mosquitto import free_port

_NUMBERS = count(1)
_PROGRAMS = {
    "s3": ("-m", "tests.support.s3_server"),
    "gs": ("-m", "tests.support.fake_gcs"),
}


class Service:
    """A service that is running; `kind` is the scheme of its URLs."""

    def __init__(self, kind: str, port: int) -> None:
        self.kind = kind
        self.port = port

    def url(self, bucket: str, *, port: int | None = None, prefix: str = "") -> str:
        region = "region=us-east-1&" if self.kind == "s3" else ""
        return f"{self.kind}://{bucket}{prefix}?{region}endpoint=http://127.0.0.1:{port or self.port}"

    def make(self, bucket: str) -> None:
        self._ask("PUT", bucket)

    def remove(self, bucket: str) -> None:
        """Remove a bucket with what is in it; moto forgets all the others with it."""
        self._ask(*(("POST", "moto-api/reset") if self.kind == "s3" else ("DELETE", bucket)))

    def _ask(self, method: str, path: str) -> None:
        url = f"http://127.0.0.1:{self.port}/{path}"
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=30) as answer:
            answer.read()


@contextmanager
def service(kind: str) -> Iterator[Service]:
    """Run a service until the block ends."""
    # The client looks for credentials there; any will do.
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "tests")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "tests")
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, *_PROGRAMS[kind], str(port)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        made = Service(kind, port)
        give_up_at = monotonic() + 60
        while True:
            try:
                made.make("first-bucket")
                break
            except OSError:
                assert monotonic() < give_up_at, f"the {kind} service did not start"
                assert process.poll() is None, f"the {kind} service ended"
                sleep(0.1)
        yield made
    finally:
        process.kill()
        process.wait()


@asynccontextmanager
async def bucket(of: Service) -> AsyncIterator[str]:
    """Make an empty bucket; give its name. It goes with the service."""
    name = f"records-{os.getpid()}-{next(_NUMBERS)}"
    of.make(name)
    yield name


_RUNNING = ExitStack()
atexit.register(_RUNNING.close)


@cache
def shared_service(kind: str) -> Service:
    """The service that this process's tests share, each with a bucket of its own; it ends with the process."""
    return _RUNNING.enter_context(service(kind))
