"""What becomes of a signal that is sent to a key."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from engine.decisions.holder import Free, Held
from engine.names import number_of
from engine.records import KeyRecord, Pending, Seal, SlotRecord, Stored, Unreadable, current_slot, kept_until
from engine.workflows.definition import WaitTask


class Deliver(Struct, frozen=True):
    """A wait holds the key: the signal is for it."""

    held: Held


class Hold(Struct, frozen=True):
    """Store the signal in `slot` under the number `m`, for the wait that opens next."""

    slot: int
    m: int


class AlreadyHeld(Struct, frozen=True):
    """A signal is held already and the policy keeps the first."""

    pending: Stored[Pending]


class SlotBehind(Struct, frozen=True):
    """The slot is sealed: a claim that the reader has not seen takes from it."""


class NoWait(Struct, frozen=True):
    """No wait is open and the step takes no early signals."""


class Undeclared(Struct, frozen=True):
    """Neither the current definition nor an open wait knows the key."""


Admission = Deliver | Hold | AlreadyHeld | SlotBehind | NoWait | Undeclared


def admission(
    state: Free | Held,
    top: Stored[KeyRecord] | None,
    newest: Stored[SlotRecord] | Unreadable | None,
    task: WaitTask | None,
    now: datetime,
) -> Admission:
    """Decide what to do with a signal, from the key's holder and the newest record of its current slot.

    `task` is the step that declares the key in the current definition, if one does.
    """
    if isinstance(state, Held):
        return Deliver(state)
    if task is None:
        return Undeclared()
    if task.accept_early is None:
        return NoWait()
    match newest:
        case None:
            return Hold(current_slot(top), 1)
        case Unreadable(key=key):
            # Its number is taken; what it held, nobody can say. Nothing is written over it.
            return Hold(current_slot(top), number_of(key) + 1)
        case Stored(value=Seal()):
            return SlotBehind()
        case Stored(value=Pending() as value, number=number, at=at):
            pending = Stored(value, number, at)
            if task.early_policy == "first" and now <= kept_until(pending):
                return AlreadyHeld(pending)
            return Hold(current_slot(top), number + 1)
        case Stored(number=number):
            return Hold(current_slot(top), number + 1)
