"""The format of the records in a store: an older build refuses a newer one at start."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

import msgspec

from engine import names, records
from engine.clock import Source
from engine.errors import FormatTooNew, UnreadableRecord
from engine.records import Format
from engine.store.base import Store

FORMAT = 1


class _Known(msgspec.Struct):
    format: int
    writer: str


async def check_format(store: Store, source: Source) -> None:
    """Write this build's format into an empty store; raise `FormatTooNew` over one that a newer build has written."""
    value = Format(at=names.FORMAT, nonce=source.nonce(), format=FORMAT, writer=writer())
    stored = await store.create(*records.encode(value))
    try:
        # A newer build's record may have more in it than this one knows: only these two are read.
        found = msgspec.json.decode(stored.value, type=_Known)
    except msgspec.DecodeError:
        raise UnreadableRecord(stored.key, "it has not the shape of its kind") from None
    if found.format > FORMAT:
        raise FormatTooNew(
            f"the store was written by {found.writer} in format {found.format}; this build knows format {FORMAT}",
            hint="start the newer build, or restore a backup from before the upgrade",
        )


def writer() -> str:
    """Name this build."""
    try:
        return f"wayside {version('wayside')}"
    except PackageNotFoundError:
        return "wayside"
