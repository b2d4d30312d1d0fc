"""How a claimed wait stands, and which early signal it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from engine.records import (
    Claim,
    Outcome,
    Pending,
    Registration,
    Seal,
    SlotRecord,
    Stored,
    Unreadable,
    deadline,
    text_of,
)
from engine.workflows.schema import SchemaProblem, compile_schema

Slot = Sequence[Stored[SlotRecord] | Unreadable]


@dataclass(frozen=True, slots=True)
class Settled:
    """The wait has its outcome."""

    outcome: Stored[Outcome] | Unreadable


@dataclass(frozen=True, slots=True)
class Apply:
    """This early signal becomes the outcome."""

    pending: Stored[Pending]


@dataclass(frozen=True, slots=True)
class TimeOut:
    """The deadline has passed and nothing in the slot applies."""


@dataclass(frozen=True, slots=True)
class Open:
    """The wait is open until this moment."""

    until: datetime


Settlement = Settled | Apply | TimeOut | Open


def payload_problems(schema: bytes | None, payload: bytes) -> tuple[SchemaProblem, ...]:
    """Check a payload against a captured schema; no schema allows every object."""
    return () if schema is None else compile_schema(schema).problems(payload)


def in_age(claim: Stored[Claim], pending: Stored[Pending]) -> bool:
    """Tell whether the signal is young enough for the claim: judged by the two stamps, never by a reader's clock.

    A signal stored after the claim (race 1) has a negative age, which is within every limit.
    """
    if claim.value.accept_early is None:
        return False
    limit = timedelta(seconds=min(claim.value.accept_early, pending.value.limit))
    return claim.at - pending.at <= limit


def applicable(claim: Stored[Claim], slot: Slot) -> Stored[Pending] | None:
    """Choose the signal of its slot that the wait of `claim` takes: the lowest number, or under `latest` the highest.

    The answer does not depend on who asks; under `latest` it may change until the outcome is stored.
    """
    if claim.value.accept_early is None:
        return None
    ordered = slot if claim.value.policy == "first" else reversed(slot)
    schema = text_of(claim.value.schema)
    for entry in ordered:
        match entry:
            case Stored(value=Pending() as value, number=number, at=at):
                pending = Stored(value, number, at)
            case _:
                continue
        if at < deadline(claim) and in_age(claim, pending) and not payload_problems(schema, bytes(value.payload)):
            return pending
    return None


def settlement(
    claim: Stored[Claim], slot: Slot, outcome: Stored[Outcome] | Unreadable | None, now: datetime
) -> Settlement:
    """Decide how a claimed wait stands at `now`."""
    if outcome is not None:
        return Settled(outcome)
    if (pending := applicable(claim, slot)) is not None:
        # Before the deadline: a signal received in time wins over a sweep that came late.
        return Apply(pending)
    return TimeOut() if now >= deadline(claim) else Open(deadline(claim))


def keyless_settlement(
    registration: Stored[Registration], outcome: Stored[Outcome] | Unreadable | None, now: datetime
) -> Settled | TimeOut | Open:
    """Decide how a wait without a key stands at `now`: its registration stands for the claim, with an empty slot."""
    if outcome is not None:
        return Settled(outcome)
    return TimeOut() if now >= deadline(registration) else Open(deadline(registration))


def sealed(slot: Slot) -> bool:
    """Tell whether the slot is closed: its highest record is a seal."""
    return bool(slot) and isinstance(slot[-1], Stored) and isinstance(slot[-1].value, Seal)
