"""The format of the records in a store: an older build refuses a newer one at start."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

import msgspec

from engine import names, records
from engine.clock import Source
from engine.errors import FormatTooNew, UnreadableRecord
from engine.records import Format
from engine.store.base import Record, Store

FORMAT = 1


class _Known(msgspec.Struct):
    format: int
    writer: str


async def check_format(store: Store, source: Source) -> None:
    """Write this build's format into a store that has none or a lower one; raise `FormatTooNew` if it has a higher one.

    A store that a newer build took over bears its number under a name of its own: what was written stays as it is. Only
    starts look: across a higher number the gateways of older builds are to be stopped first.
    """
    found = await _written(store, source, names.FORMAT)
    if (raised := await store.last(names.raised_format())) is not None:
        found = _read(raised)
    if found.format < FORMAT:
        found = await _written(store, source, names.raised_format(FORMAT))
    if found.format > FORMAT:
        raise FormatTooNew(
            f"the store was written by {found.writer} in format {found.format}; this build knows format {FORMAT}",
            hint="start the newer build, or restore a backup from before the upgrade",
        )


async def _written(store: Store, source: Source, key: str) -> _Known:
    value = Format(at=key, nonce=source.nonce(), format=FORMAT, writer=writer())
    return _read(await store.create(*records.encode(value)))


def _read(stored: Record) -> _Known:
    try:
        # A newer build's record may have more in it than this one knows: only these two are read.
        return msgspec.json.decode(stored.value, type=_Known)
    except msgspec.DecodeError:
        raise UnreadableRecord(stored.key, "it has not the shape of its kind") from None


def writer() -> str:
    """Name this build."""
    try:
        return f"wayside {version('wayside')}"
    except PackageNotFoundError:
        return "wayside"
