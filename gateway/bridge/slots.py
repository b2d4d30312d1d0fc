"""Whose each of the broker's sessions is where every instance subscribes for itself (`share`).

A broker gives a member of a shared subscription that is away its turn for as long as its session lasts, and drops what
a session holds as it ends, instead of giving it to another member (so Mosquitto 2.0, and MQTT 5 asks for no more).
Therefore no session is left alone for long. Client ids are numbered, with a claim each: an instance takes the lowest
that nobody holds, with the session that may be there; one whose holder has died or let go is drained by another.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from engine.clock import Source
from engine.errors import UnreadableRecord
from engine.store.base import Store
from gateway.bridge.claim import Claims


@dataclass(frozen=True, slots=True)
class Slot:
    """A client id that one instance at a time may use."""

    client_id: str
    claims: Claims


class Slots:
    """The slots of one bridge, numbered without a gap: a number that was ever used has a record for good."""

    def __init__(
        self,
        store: Store,
        source: Source,
        *,
        client_id: str,
        instance: str,
        is_dead: Callable[[str], Awaitable[bool]],
    ) -> None:
        self._store = store
        self._source = source
        self._client_id = client_id
        self._instance = instance
        self._is_dead = is_dead

    def _slot(self, number: int) -> Slot:
        client_id = f"{self._client_id}-{number}"
        return Slot(
            client_id,
            Claims(self._store, self._source, client_id=client_id, instance=self._instance, is_dead=self._is_dead),
        )

    async def take(self) -> Slot:
        """Hold the lowest slot that nobody else does. Raises `StoreUnavailable`."""
        for number in itertools.count(1):
            slot = self._slot(number)
            with contextlib.suppress(UnreadableRecord):
                if await slot.claims.take():
                    return slot
        raise AssertionError

    async def loose(self, own: Slot) -> list[Slot]:
        """List the slots that may have a session and have no living holder, the caller's own aside.

        One that this instance holds beside its own is one that it began to drain and could not let go.
        """
        found: list[Slot] = []
        for number in itertools.count(1):
            slot = self._slot(number)
            try:
                standing = await slot.claims.standing()
            except UnreadableRecord:
                continue
            if standing == "unknown":
                break
            if standing == "loose" and slot.client_id != own.client_id:
                found.append(slot)
        return found
