"""The records: frozen, versioned values with one encoding. A record that exists is valid.

Each carries its own address and a nonce, so that a misfiled record is noticed and two writers never write equal
values. Payloads are kept as the JSON text that passed the door, never parsed again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Generic, Literal, TypeVar

import msgspec

from engine import names
from engine.errors import UnreadableRecord
from engine.limits import MAX_RECORD_BYTES
from engine.store.base import Record

Seconds = Annotated[float, msgspec.Meta(gt=0)]
Policy = Literal["first", "latest"]
State = Literal["delivered", "held", "expired", "superseded"]
CancelReason = Literal["key_held", "contended", "replaced", "cancelled", "retried", "ended", "void"]
StepStatus = Literal["pending", "running", "suspended", "succeeded", "failed", "cancelled", "skipped"]


class _Value(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    v: Literal[1] = 1
    at: str
    nonce: str


class Sender(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who sent a signal: a device, an operator, or (the end of a child run, to its parent's wait) a run."""

    kind: Literal["device", "user", "run"]
    id: str


# -- a key's claims and its slots -------------------------------------------------------------------------------


class Claim(_Value, frozen=True, kw_only=True, tag="claim"):
    """Says that `wait` holds the key from this record's `stored_at`; takes early signals from the slot `takes`."""

    wait: str
    run: str
    job: str
    step: str
    step_attempt: int
    timeout: Seconds
    accept_early: Seconds | None
    policy: Policy
    schema: msgspec.Raw | None
    takes: int


class Release(_Value, frozen=True, kw_only=True, tag="release"):
    """Supersedes the claim of a removed run; the slot of early signals stays what it was."""

    slot: int
    run: str


class Pending(_Value, frozen=True, kw_only=True, tag="pending"):
    """A signal that came before its wait: good for `limit` seconds from its `stored_at`."""

    receipt: str
    sender: Sender
    signal_id: str | None
    payload: msgspec.Raw
    limit: Seconds


class Void(_Value, frozen=True, kw_only=True, tag="void"):
    """Takes a number so that nothing else can: an attempt that came too late, or the end of an expired signal."""

    why: Literal["attempt", "expired"]


class Seal(_Value, frozen=True, kw_only=True, tag="seal"):
    """Closes a slot before its wait times out: a signal that finds it is not stored there."""

    wait: str


# -- waits ---------------------------------------------------------------------------------------------------


class Registration(_Value, frozen=True, kw_only=True, tag="registration"):
    """Where an open wait lives and what it accepts. `claim` is the number of its claim if it has a key."""

    wait: str
    run: str
    workflow: str
    job: str
    step: str
    step_attempt: int
    key: str | None
    claim: int | None
    timeout: Seconds
    schema: msgspec.Raw | None
    due: str


class Accepted(_Value, frozen=True, kw_only=True, tag="accepted"):
    """The wait took a signal. `received` is the pending record's stamp if the signal came early."""

    receipt: str
    sender: Sender
    signal_id: str | None
    payload: msgspec.Raw
    received: datetime | None


class TimedOut(_Value, frozen=True, kw_only=True, tag="timed_out"):
    """The wait's deadline passed."""


class Cancelled(_Value, frozen=True, kw_only=True, tag="cancelled"):
    """The wait was closed for another reason than a signal or its deadline."""

    why: CancelReason
    by: str


# -- identified signals --------------------------------------------------------------------------------------


class Attempt(_Value, frozen=True, kw_only=True, tag="attempt"):
    """Fixes the exact record (`makes`) that the next attempt to deliver an identified signal creates."""

    makes: str
    wait: str | None
    workflow: str
    key: str | None
    receipt: str
    digest: str
    limit: Seconds | None


class Final(_Value, frozen=True, kw_only=True, tag="final"):
    """The answer to every later repeat of an identified signal."""

    state: State
    workflow: str
    key: str | None
    receipt: str
    received: datetime
    digest: str


# -- a run's log ---------------------------------------------------------------------------------------------


class Error(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a step failed: a stable code and a sentence without payloads."""

    code: str
    message: str


class Created(_Value, frozen=True, kw_only=True, tag="created"):
    """The run exists: the definition that it keeps, and its inputs."""

    workflow: str
    definition: msgspec.Raw
    inputs: msgspec.Raw
    by: str
    parent_run: str | None
    parent_wait: str | None
    depth: int


class Resumed(_Value, frozen=True, kw_only=True, tag="resumed"):
    """The continuation claim: from here on this driver drives the run."""

    instance: str


class Expanded(_Value, frozen=True, kw_only=True, tag="expanded"):
    """A `forEach` step became one step an element."""

    job: str
    step: str
    items: msgspec.Raw


class StepStarted(_Value, frozen=True, kw_only=True, tag="step_started"):
    """Precedes any effect of a step."""

    job: str
    step: str
    attempt: int


class Opening(_Value, frozen=True, kw_only=True, tag="opening"):
    """Fixes the wait id of a waiting step before anything is claimed for it."""

    job: str
    step: str
    attempt: int
    wait: str


class StepEnded(_Value, frozen=True, kw_only=True, tag="step_ended"):
    """How a step ended. `guarded`: it was skipped as already done, which satisfies `succeeded`."""

    job: str
    step: str
    attempt: int
    status: StepStatus
    guarded: bool
    outputs: msgspec.Raw | None
    error: Error | None


class Suspended(_Value, frozen=True, kw_only=True, tag="suspended"):
    """The driver stops until one of these waits has an outcome."""

    waits: tuple[str, ...]


class RunCancelled(_Value, frozen=True, kw_only=True, tag="run_cancelled"):
    """An operator, or the parent's end, stopped the run."""

    by: str


class Retried(_Value, frozen=True, kw_only=True, tag="retried"):
    """These steps, as (job, step), run again with their next attempt."""

    steps: tuple[tuple[str, str], ...]
    by: str


class Ended(_Value, frozen=True, kw_only=True, tag="ended"):
    """The run is over."""

    status: Literal["succeeded", "failed"]


# -- index records that carry something, and bookkeeping ------------------------------------------------------


class Ready(_Value, frozen=True, kw_only=True, tag="ready"):
    """`ready/<run>/-/…`: the number of the event that its maker is about to append."""

    event: int


class Format(_Value, frozen=True, kw_only=True, tag="format"):
    """The format of the records in this store, and the build that wrote the first of them."""

    format: int
    writer: str


class Beat(_Value, frozen=True, kw_only=True, tag="beat"):
    """A heartbeat of an instance, with the head of its audit chain."""

    instance: str
    host: str
    lock: str
    audit: str


class Command(_Value, frozen=True, kw_only=True, tag="command"):
    """A message that a `publish` step sends out."""

    topic: str
    payload: bytes
    qos: Literal[0, 1]


KeyRecord = Claim | Release
SlotRecord = Pending | Void | Seal
Outcome = Accepted | TimedOut | Cancelled
ChainRecord = Attempt | Final
Event = (
    Created
    | Resumed
    | Expanded
    | StepStarted
    | Opening
    | StepEnded
    | Suspended
    | RunCancelled
    | Retried
    | Ended
)

T = TypeVar("T", covariant=True)


@dataclass(frozen=True, slots=True)
class Stored(Generic[T]):
    """A record as it is stored: the value, the number that ends its key (0 if none does), and the store's stamp."""

    value: T
    number: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record that is there and does not parse."""

    key: str
    reason: str
    at: datetime


_encode = msgspec.json.Encoder().encode


def encode(value: _Value) -> tuple[str, bytes]:
    """Give the key and the bytes under which a value is created."""
    return value.at, _encode(value)


def _decoder(of: object) -> Callable[[Record], object]:
    parse = msgspec.json.Decoder(of).decode

    def read(record: Record) -> object:
        if len(record.value) > MAX_RECORD_BYTES:
            return Unreadable(record.key, "it is too large", record.stored_at)
        try:
            value = parse(record.value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # The decoder's own words may quote the record, and records hold payloads.
            return Unreadable(record.key, "it has not the shape of its kind", record.stored_at)
        if value.at != record.key:
            return Unreadable(record.key, "it was written for another key", record.stored_at)
        tail = record.key.rsplit("/", 1)[-1]
        return Stored(value, int(tail) if tail.isdigit() and len(tail) == names.NUMBER_DIGITS else 0, record.stored_at)

    return read


_KEY, _SLOT, _OUTCOME = _decoder(KeyRecord), _decoder(SlotRecord), _decoder(Outcome)
_CHAIN, _EVENT, _REGISTRATION = _decoder(ChainRecord), _decoder(Event), _decoder(Registration)
_READY, _FORMAT, _BEAT, _COMMAND = _decoder(Ready), _decoder(Format), _decoder(Beat), _decoder(Command)


def _sure(found: object) -> object:
    if isinstance(found, Unreadable):
        raise UnreadableRecord(found.key, found.reason)
    return found


def key_record(record: Record) -> Stored[KeyRecord]:
    """Read a claim or a release; raises `UnreadableRecord`: a key whose highest record is damaged stays shut."""
    return _sure(_KEY(record))  # type: ignore[return-value]


def slot_record(record: Record) -> Stored[SlotRecord] | Unreadable:
    return _SLOT(record)  # type: ignore[return-value]


def outcome(record: Record) -> Stored[Outcome] | Unreadable:
    return _OUTCOME(record)  # type: ignore[return-value]


def chain_record(record: Record) -> Stored[ChainRecord]:
    return _sure(_CHAIN(record))  # type: ignore[return-value]


def event(record: Record) -> Stored[Event]:
    return _sure(_EVENT(record))  # type: ignore[return-value]


def registration(record: Record) -> Stored[Registration]:
    return _sure(_REGISTRATION(record))  # type: ignore[return-value]


def ready(record: Record) -> Stored[Ready]:
    return _sure(_READY(record))  # type: ignore[return-value]


def format_record(record: Record) -> Stored[Format]:
    return _sure(_FORMAT(record))  # type: ignore[return-value]


def beat(record: Record) -> Stored[Beat]:
    return _sure(_BEAT(record))  # type: ignore[return-value]


def command_or_unreadable(record: Record) -> Stored[Command] | Unreadable:
    return _COMMAND(record)  # type: ignore[return-value]


def deadline(claim: Stored[Claim] | Stored[Registration]) -> datetime:
    """When the wait stops taking signals: the store's stamp plus the timeout, never a host's clock."""
    return claim.at + timedelta(seconds=claim.value.timeout)


def current_slot(top: Stored[KeyRecord] | None) -> int:
    """The slot that the highest record of a key leaves: where the next early signal goes."""
    match top:
        case None:
            return 0
        case Stored(value=Release(slot=slot)):
            return slot
        case _:
            return top.number


def kept_until(pending: Stored[Pending]) -> datetime:
    """Until when an early signal may still be taken."""
    return pending.at + timedelta(seconds=pending.value.limit)


# The registry's and the audit log's records are made and read in the same way, in packages above this one.
Value = _Value
decoder = _decoder
