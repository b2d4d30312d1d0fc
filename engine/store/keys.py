"""What a key, a value and a listing may be, the same for every backend."""

from __future__ import annotations

from collections.abc import Sequence

from engine.errors import BadInput
from engine.limits import MAX_KEY_BYTES, MAX_RECORD_BYTES

_BEHIND_SLASH = chr(ord("/") + 1)
_LAST_CODE_POINT = 0x10FFFF
_BEFORE_SURROGATES = 0xD7FF
_AFTER_SURROGATES = 0xE000


def check_key(key: str) -> None:
    """Refuse a key that some backend could not hold: empty, too long, not UTF-8, or with a NUL in it."""
    if not key:
        raise BadInput("a record's key is empty")
    # A code point takes at most four bytes: most keys need no encoding to be known short enough.
    if (not key.isascii() or len(key) > MAX_KEY_BYTES) and (size := len(_encoded(key))) > MAX_KEY_BYTES:
        raise BadInput(f"a record's key has {size} bytes; at most {MAX_KEY_BYTES} are allowed")
    if "\x00" in key:
        raise BadInput("a record's key has a NUL character in it")


def check_item(key: str, value: bytes) -> None:
    """Refuse a record that no store may take: a bad key (`check_key`), or more than `MAX_RECORD_BYTES`."""
    check_key(key)
    if len(value) > MAX_RECORD_BYTES:
        raise BadInput(f"the record {key} has {len(value)} bytes; at most {MAX_RECORD_BYTES} are allowed")


def check_items(items: Sequence[tuple[str, bytes]]) -> None:
    """Refuse a list with a bad record in it, before any of it is stored."""
    for key, value in items:
        # What nearly all records are is told without a call for each.
        usual = 0 < len(key) <= MAX_KEY_BYTES and key.isascii() and "\x00" not in key
        if not usual or len(value) > MAX_RECORD_BYTES:
            check_item(key, value)


def check_range(prefix: str, after: str | None, limit: int | None) -> None:
    """Refuse a range that cannot be asked for: text that is not UTF-8, or a negative limit."""
    for text in (prefix, after):
        if text is not None and not text.isascii():
            _encoded(text)
    if limit is not None and limit < 0:
        raise BadInput(f"a listing's limit is {limit}; it cannot be negative")


def range_end(prefix: str) -> str | None:
    """Compute the lowest text that is above every key with `prefix`; None when there is none (an empty prefix).

    Code point order is UTF-8 byte order, so that the answer holds for every backend that compares either.
    """
    if prefix.endswith("/"):
        return prefix[:-1] + _BEHIND_SLASH
    for at in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[at])
        if code < _LAST_CODE_POINT:
            following = _AFTER_SURROGATES if code == _BEFORE_SURROGATES else code + 1
            return prefix[:at] + chr(following)
    return None


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BadInput(f"a record's key is not UTF-8: a lone surrogate at character {error.start}") from None
