"""Who holds a key."""

from __future__ import annotations

from msgspec import Struct

from engine.records import Claim, KeyRecord, Outcome, Stored, Unreadable


class Free(Struct, frozen=True):
    """No open wait holds the key."""


class Held(Struct, frozen=True):
    """The wait of this claim holds the key."""

    claim: Stored[Claim]


def holder(top: Stored[KeyRecord] | None, outcome: Stored[Outcome] | Unreadable | None) -> Free | Held:
    """Decide who holds a key, from its highest record and the outcome of that claim's wait.

    Any outcome frees the key, one that cannot be read included: a damaged record must not keep a key for ever.
    """
    if top is None or outcome is not None:
        return Free()
    match top:
        case Stored(value=Claim() as claim):
            return Held(Stored(claim, top.number, top.at))
        case _:
            return Free()
