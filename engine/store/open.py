"""Turn a URL into a store; the only importer of the backends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from engine.errors import BadInput
from engine.store.base import Store

_FORMS: Final = "`sqlite:///absolute/path`, a path, `postgresql://…`, `nats://…`, `s3://…`, `gs://…`, or `memory:`"
_POSTGRES: Final = frozenset({"postgresql", "postgres"})
_NATS: Final = frozenset({"nats", "tls"})
_OBJECTS: Final = frozenset({"s3", "gs"})


def open_store(url: str, *, create: bool = True) -> Store:
    """Open the store that `url` names.

    `sqlite:///absolute/path` or a plain path to a file; `postgresql://USER:PASSWORD@HOST:PORT/DATABASE?pool=6`, which
    connects at the first call; `nats://HOST:PORT,HOST:PORT/BUCKET?replicas=3`, likewise; `s3://BUCKET` and `gs://BUCKET`,
    likewise; `memory:`.

    With `create` off, a file that is not there is not made.

    Raises `BadInput` for a URL that names none or whose driver is not installed, and what the backend raises when it
    cannot be opened (`StoreUnavailable`, `StoreDamaged`, `FormatTooNew`; those over a network only at the first call).
    """
    scheme, colon, rest = url.partition(":")
    if not colon or "/" in scheme:
        return _sqlite(Path(url), url, create=create)
    match scheme:
        case "memory":
            if rest:
                raise BadInput(f"the store {url} cannot be opened: nothing follows `memory:`")
            return _memory()
        case "sqlite":
            parts = urlsplit(url)
            # Four slashes, as other tools write an absolute path, mean what three do.
            path = Path("/" + unquote(parts.path).lstrip("/")) if parts.path.startswith("/") else Path(parts.path)
            if parts.netloc or parts.query or parts.fragment or not path.is_absolute():
                raise BadInput(f"the store {url} cannot be opened: it has no absolute path", hint=f"use {_FORMS}")
            return _sqlite(path, url, create=create)
        case _ if scheme in _POSTGRES:
            return _postgres(url)
        case _ if scheme in _NATS:
            return _nats(url)
        case _ if scheme in _OBJECTS:
            return _objects(url)
        case _:
            # The rest may hold a password.
            raise BadInput(f"a store of kind {scheme} is not known", hint=f"use {_FORMS}")


def _memory() -> Store:
    from engine.store.memory import MemoryStore, RunningClock  # noqa: PLC0415 - only the chosen backend is loaded

    return MemoryStore(RunningClock())


def _sqlite(path: Path, url: str, *, create: bool) -> Store:
    from engine.store.sqlite import SqliteStore  # noqa: PLC0415 - only the chosen backend is loaded

    if not url:
        raise BadInput("a store has no name", hint=f"use {_FORMS}")
    if not create and not path.exists():
        raise BadInput(f"there is no store {path}")
    return SqliteStore(path)


def _postgres(url: str) -> Store:
    with _driver("asyncpg", "postgres"):
        from engine.store.postgres import PostgresStore, parse  # noqa: PLC0415 - only the chosen backend is loaded

    return PostgresStore(parse(url))


def _nats(url: str) -> Store:
    with _driver("nats", "nats"):
        from engine.store.nats import NatsStore, parse  # noqa: PLC0415 - only the chosen backend is loaded

    return NatsStore(parse(url))


def _objects(url: str) -> Store:
    with _driver("obstore", "objects"):
        from engine.store.objects import ObjectStore, parse  # noqa: PLC0415 - only the chosen backend is loaded

    return ObjectStore(parse(url))


@contextmanager
def _driver(module: str, extra: str) -> Iterator[None]:
    """Say which extra to install when a backend's driver is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module:
            raise
        raise BadInput(
            f"this kind of store needs {module}, which is not installed", hint=f"pip install 'wayside[{extra}]'"
        ) from None
