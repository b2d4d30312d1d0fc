"""The records: frozen, versioned values with one encoding. A record that exists is valid.

Each carries its own address and a nonce, so that a misfiled record is noticed and two writers never write equal
values. Payloads are kept as the JSON text that passed the door, never parsed again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec

from engine.errors import UnreadableRecord
from engine.limits import MAX_RECORD_BYTES, NUMBER_DIGITS
from engine.store.base import Record

Seconds = Annotated[float, msgspec.Meta(gt=0)]
Policy = Literal["first", "latest"]
State = Literal["delivered", "held", "expired", "superseded"]
CancelReason = Literal["key_held", "contended", "replaced", "cancelled", "retried", "ended", "void"]
StepStatus = Literal["pending", "running", "suspended", "succeeded", "failed", "cancelled", "skipped"]


# The JSON text of nothing: an optional text is never absent, since the decoder takes raw text only where it must be.
NOTHING = msgspec.Raw(b"null")


def raw(text: bytes | None) -> msgspec.Raw:
    """Keep a JSON text, or nothing, as it is."""
    return NOTHING if text is None else msgspec.Raw(text)


def text_of(kept: msgspec.Raw) -> bytes | None:
    """Give a kept JSON text back, or None for nothing."""
    text = bytes(kept)
    return None if text == b"null" else text


class Value(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    v: Literal[1] = 1
    at: str
    nonce: str


class Sender(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who sent a signal: a device, an operator, or (the end of a child run, to its parent's wait) a run."""

    kind: Literal["device", "user", "run"]
    id: str


# -- a key's claims and its slots -------------------------------------------------------------------------------


class Claim(Value, frozen=True, kw_only=True, tag="claim"):
    """Says that `wait` holds the key from this record's `stored_at`; takes early signals from the slot `takes`."""

    wait: str
    run: str
    job: str
    step: str
    step_attempt: int
    timeout: Seconds
    accept_early: Seconds | None
    policy: Policy
    schema: msgspec.Raw
    takes: int


class Release(Value, frozen=True, kw_only=True, tag="release"):
    """Supersedes the claim of a removed run; the slot of early signals stays what it was."""

    slot: int
    run: str


class Pending(Value, frozen=True, kw_only=True, tag="pending"):
    """A signal that came before its wait: good for `limit` seconds from its `stored_at`."""

    receipt: str
    sender: Sender
    signal_id: str | None
    payload: msgspec.Raw
    limit: Seconds


class Void(Value, frozen=True, kw_only=True, tag="void"):
    """Takes a number so that nothing else can: an attempt that came too late, or the end of an expired signal."""

    why: Literal["attempt", "expired"]


class Seal(Value, frozen=True, kw_only=True, tag="seal"):
    """Closes a slot before its wait times out: a signal that finds it is not stored there."""

    wait: str


# -- waits ---------------------------------------------------------------------------------------------------


class Registration(Value, frozen=True, kw_only=True, tag="registration"):
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
    schema: msgspec.Raw
    due: str


class Accepted(Value, frozen=True, kw_only=True, tag="accepted"):
    """The wait took a signal. `received` is the pending record's stamp if the signal came early."""

    receipt: str
    sender: Sender
    signal_id: str | None
    payload: msgspec.Raw
    received: datetime | None


class TimedOut(Value, frozen=True, kw_only=True, tag="timed_out"):
    """The wait's deadline passed."""


class Cancelled(Value, frozen=True, kw_only=True, tag="cancelled"):
    """The wait was closed for another reason than a signal or its deadline."""

    why: CancelReason
    by: str


# -- identified signals --------------------------------------------------------------------------------------


class Attempt(Value, frozen=True, kw_only=True, tag="attempt"):
    """Fixes the exact record (`makes`) that the next attempt to deliver an identified signal creates."""

    makes: str
    wait: str | None
    workflow: str
    key: str | None
    receipt: str
    digest: str
    limit: Seconds | None


class Final(Value, frozen=True, kw_only=True, tag="final"):
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


class Created(Value, frozen=True, kw_only=True, tag="created"):
    """The run exists: the definition that it keeps, and its inputs."""

    workflow: str
    definition: msgspec.Raw
    inputs: msgspec.Raw
    by: str
    parent_run: str | None
    parent_wait: str | None
    depth: int


class Resumed(Value, frozen=True, kw_only=True, tag="resumed"):
    """The continuation claim: from here on this driver drives the run."""

    instance: str


class Expanded(Value, frozen=True, kw_only=True, tag="expanded"):
    """A `forEach` step became one step an element."""

    job: str
    step: str
    items: msgspec.Raw


class StepStarted(Value, frozen=True, kw_only=True, tag="step_started"):
    """Precedes any effect of a step."""

    job: str
    step: str
    attempt: int


class Opening(Value, frozen=True, kw_only=True, tag="opening"):
    """Fixes the wait id of a waiting step before anything is claimed for it."""

    job: str
    step: str
    attempt: int
    wait: str


class StepEnded(Value, frozen=True, kw_only=True, tag="step_ended"):
    """How a step ended. `guarded`: it was skipped as already done, which satisfies `succeeded`."""

    job: str
    step: str
    attempt: int
    status: StepStatus
    guarded: bool
    outputs: msgspec.Raw
    error: Error | None


class Suspended(Value, frozen=True, kw_only=True, tag="suspended"):
    """The driver stops until one of these waits has an outcome."""

    waits: tuple[str, ...]


class RunCancelled(Value, frozen=True, kw_only=True, tag="run_cancelled"):
    """An operator, or the parent's end, stopped the run."""

    by: str


class Retried(Value, frozen=True, kw_only=True, tag="retried"):
    """These steps, as (job, step), run again with their next attempt."""

    steps: tuple[tuple[str, str], ...]
    by: str


class Ended(Value, frozen=True, kw_only=True, tag="ended"):
    """The run is over."""

    status: Literal["succeeded", "failed"]


# -- index records that carry something, and bookkeeping ------------------------------------------------------


class Ready(Value, frozen=True, kw_only=True, tag="ready"):
    """`ready/<run>/-/…`: the number of the event that its maker is about to append."""

    event: int


class Format(Value, frozen=True, kw_only=True, tag="format"):
    """The format of the records in this store, and the build that wrote the first of them."""

    format: int
    writer: str


class Beat(Value, frozen=True, kw_only=True, tag="beat"):
    """A heartbeat of an instance, with the head of its audit chain."""

    instance: str
    host: str
    lock: str
    audit: str


class Command(Value, frozen=True, kw_only=True, tag="command"):
    """A message that a `publish` step sends out."""

    topic: str
    payload: bytes
    qos: Literal[0, 1]
    workflow: str = ""
    run: str = ""
    job: str = ""
    step: str = ""


KeyRecord = Claim | Release
SlotRecord = Pending | Void | Seal
Outcome = Accepted | TimedOut | Cancelled
ChainRecord = Attempt | Final
Event = Created | Resumed | Expanded | StepStarted | Opening | StepEnded | Suspended | RunCancelled | Retried | Ended

T_co = TypeVar("T_co", covariant=True)


class Stored(msgspec.Struct, Generic[T_co], frozen=True):
    """A record as it is stored: the value, the number that ends its key (0 if none does), and the store's stamp."""

    value: T_co
    number: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record that is there and does not parse."""

    key: str
    reason: str
    at: datetime


_encode = msgspec.json.Encoder().encode


def encode(value: Value) -> tuple[str, bytes]:
    """Give the key and the bytes under which a value is created."""
    return value.at, _encode(value)


def decoder(of: object) -> Callable[[Record], object]:
    """Make a reader of one kind of record: it answers `Stored`, or `Unreadable` for what does not parse."""
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
        tail = record.key[-NUMBER_DIGITS - 1 :]
        numbered = tail[0] == "/" and tail.isascii() and tail[1:].isdigit() if tail else False
        return Stored(value, int(tail[1:]) if numbered else 0, record.stored_at)

    return read


def _lenient(of: object) -> Callable[[Record], Any]:
    return decoder(of)


def _strict(of: object) -> Callable[[Record], Any]:
    lenient = decoder(of)

    def read(record: Record) -> object:
        found = lenient(record)
        if isinstance(found, Unreadable):
            raise UnreadableRecord(found.key, found.reason)
        return found

    return read


# Readers for what may be damaged and still mean something (a wait that has an outcome, a number that is taken).
slot_record: Callable[[Record], Stored[SlotRecord] | Unreadable] = _lenient(SlotRecord)
outcome: Callable[[Record], Stored[Outcome] | Unreadable] = _lenient(Outcome)
command_or_unreadable: Callable[[Record], Stored[Command] | Unreadable] = _lenient(Command)
# The others raise `UnreadableRecord`: a key whose highest record is damaged, for one, stays shut.
key_record: Callable[[Record], Stored[KeyRecord]] = _strict(KeyRecord)
chain_record: Callable[[Record], Stored[ChainRecord]] = _strict(ChainRecord)
event: Callable[[Record], Stored[Event]] = _strict(Event)
registration: Callable[[Record], Stored[Registration]] = _strict(Registration)
ready: Callable[[Record], Stored[Ready]] = _strict(Ready)
format_record: Callable[[Record], Stored[Format]] = _strict(Format)
beat: Callable[[Record], Stored[Beat]] = _strict(Beat)


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
    """Until when, that moment included, an early signal may still be taken."""
    return pending.at + timedelta(seconds=pending.value.limit)
