"""How a value is kept where the service stamps what it stores: as it is, unless it was stored elsewhere before.

A record that was copied from another store bears the stamp that it had there; a service that sets stamps itself cannot
be told it, so it goes in front of the value. So does a mark where a value looks as if it had one.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from engine.store.base import Record
from engine.store.stamps import to_datetime, to_microseconds

_MARK: Final = b"\x00wayside\x00"
_STAMPED: Final = _MARK + b"s"
_PLAIN: Final = _MARK + b"v"
_STAMP_BYTES: Final = 8
ENVELOPE_BYTES: Final = len(_STAMPED) + _STAMP_BYTES


def wrap(value: bytes) -> bytes:
    """Write a new record's value."""
    return _PLAIN + value if value.startswith(_MARK) else value


def wrap_stamped(record: Record) -> bytes:
    """Write a record's value with the stamp that it bears."""
    return _STAMPED + to_microseconds(record.stored_at).to_bytes(_STAMP_BYTES, "big") + record.value


def unwrap(key: str, stored: bytes, stored_at: datetime) -> Record:
    """Read a record from what is stored and the service's stamp of it."""
    if stored.startswith(_STAMPED) and len(stored) >= ENVELOPE_BYTES:
        microseconds = int.from_bytes(stored[len(_STAMPED) : ENVELOPE_BYTES], "big")
        return Record(key, stored[ENVELOPE_BYTES:], to_datetime(microseconds))
    return Record(key, stored.removeprefix(_PLAIN), stored_at)
