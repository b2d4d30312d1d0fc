"""The statements that read, and what they are given."""

from __future__ import annotations

from typing import Final

from engine.store.keys import range_end

Rows = list[tuple[str, bytes, int]]

GET: Final = "SELECT key, value, stored_at FROM records WHERE key = ?"
LAST: Final = "SELECT key, value, stored_at FROM records WHERE key >= ? AND key < ? ORDER BY key DESC LIMIT 1"
_FROM: Final = "SELECT key, value, stored_at FROM records WHERE key >= ? AND key < ? ORDER BY key LIMIT ?"
_AFTER: Final = "SELECT key, value, stored_at FROM records WHERE key > ? AND key < ? ORDER BY key LIMIT ?"
# Above every text: SQLite puts all blobs after all texts.
_ABOVE_ALL: Final = b""


def end_of(prefix: str) -> str | bytes:
    """Give what is above every key with `prefix`, and below all others that are."""
    end = range_end(prefix)
    return _ABOVE_ALL if end is None else end


def page(prefix: str, after: str | None) -> tuple[str, str]:
    """Give the statement that lists keys with `prefix` behind `after`, and the first of its three parameters."""
    return (_AFTER, after) if after is not None and after >= prefix else (_FROM, prefix)
