"""Turn a URL into a store; the only importer of the backends."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from engine.errors import BadInput
from engine.store.base import Store

_FORMS = "`sqlite:///absolute/path`, a path, or `memory:`"


def open_store(url: str) -> Store:
    """Open the store that `url` names: `sqlite:///absolute/path`, a plain path to a file, or `memory:`.

    Raises `BadInput` for a URL that names none, and what the backend raises when it cannot be opened
    (`StoreUnavailable`, `StoreDamaged`, `FormatTooNew`).
    """
    scheme, colon, rest = url.partition(":")
    if not colon or "/" in scheme:
        return _sqlite(Path(url), url)
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
            return _sqlite(path, url)
        case _:
            # The rest may hold a password.
            raise BadInput(f"a store of kind {scheme} is not known", hint=f"use {_FORMS}")


def _memory() -> Store:
    from engine.store.memory import MemoryStore, RunningClock  # noqa: PLC0415 - only the chosen backend is loaded

    return MemoryStore(RunningClock())


def _sqlite(path: Path, url: str) -> Store:
    from engine.store.sqlite import SqliteStore  # noqa: PLC0415 - only the chosen backend is loaded

    if not url:
        raise BadInput("a store has no name", hint=f"use {_FORMS}")
    return SqliteStore(path)
