"""Faults, each with a stable code. None of them can hold a payload or a token.

An expected refusal (a signal that finds no wait, a schema that says no) is a value, see `engine.results`;
what is raised here is something that went wrong.
"""

from __future__ import annotations

from typing import ClassVar


class WaysideError(Exception):
    """A fault with a stable `code`, a message for a person and, where there is one, what to do about it."""

    code: ClassVar[str] = "internal"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class StoreUnavailable(WaysideError):
    """The store did not answer, or could not do what was asked; the caller may try again.

    `uncertain` is true when a write may have landed all the same: read it back before concluding anything.
    """

    code: ClassVar[str] = "store_unavailable"

    def __init__(self, message: str, *, hint: str = "", uncertain: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.uncertain = uncertain


class StoreDamaged(StoreUnavailable):
    """The store's own file or table is damaged or is not Wayside's; trying again does not help."""

    code: ClassVar[str] = "store_damaged"


class FormatTooNew(WaysideError):
    """The store was written by a newer build, which may keep records that this one does not understand."""

    code: ClassVar[str] = "format_too_new"


class UnreadableRecord(WaysideError):
    """A record is there and does not parse. It is never taken for an absent one, and nothing is written over it."""

    code: ClassVar[str] = "record_unreadable"

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"the record {key} cannot be read: {reason}", hint="run `wayside doctor`")
        self.key = key


class NotFound(WaysideError):
    """What was named does not exist, or is not the caller's to see."""

    code: ClassVar[str] = "not_found"


class Conflict(WaysideError):
    """What was asked does not fit the present state (a run that has ended cannot be cancelled)."""

    code: ClassVar[str] = "conflict"


class BadInput(WaysideError):
    """An argument is wrong: what, where, and what would do. `problems` has one line each when there are several."""

    code: ClassVar[str] = "bad_input"

    def __init__(self, message: str, *, hint: str = "", problems: tuple[str, ...] = ()) -> None:
        super().__init__(message, hint=hint)
        self.problems = problems


class LostRace(WaysideError):
    """Another actor moved the same run on; this one stops and leaves it to the other. Never shown to a person."""

    code: ClassVar[str] = "lost_race"
