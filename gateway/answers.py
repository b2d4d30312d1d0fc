"""Answers: what a request came to, and what each door says about it.

`say` turns every answer into the same few words for everybody, in one exhaustive match: a code, an error's name, and
the details that this caller may know. The doors differ only in how they write them down.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Literal, assert_never

import msgspec

from engine.clock import rfc3339
from engine.limits import MAX_PAYLOAD_BYTES
from engine.payload import PayloadProblem
from engine.records import Sender
from engine.results import (
    AlreadySettled,
    Answer,
    Contended,
    EarlySignalHeld,
    InvalidPayload,
    LastWait,
    NoOpenWait,
    NotDeclared,
    Receipt,
    SignalIdReused,
    SlotFull,
    Taken,
    WaitClosed,
)

ErrorName = Literal[
    "bad_payload",
    "bad_topic",
    "unauthorized",
    "not_found",
    "no_open_wait",
    "early_signal_held",
    "already_settled",
    "wait_closed",
    "stale",
    "payload_too_large",
    "invalid_payload",
    "signal_id_reused",
    "retained_not_allowed",
    "rate_limited",
    "contended",
    "store_unavailable",
    "stopping",
]

MAX_PACKET_BYTES: Final = 256
MAX_WAITS_SHOWN: Final = 3
CONTENDED_RETRY_MS: Final = 250
STORE_RETRY_MS: Final = 2_000
STOPPING_RETRY_MS: Final = 5_000
SLOT_RETRY_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Unauthorized:
    """The credential is unknown, or has ended since it was presented."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimited:
    """Over one of the sender's limits."""

    limit: str
    retry_after_seconds: float


@dataclass(frozen=True, slots=True)
class RetainedNotAllowed:
    """A retained message would settle a wait again whenever somebody subscribes."""


@dataclass(frozen=True, slots=True)
class Stale:
    """The message lay in a broker for too long."""


@dataclass(frozen=True, slots=True)
class BadTopic:
    """Off the map; `hint` is the right form."""

    hint: str


@dataclass(frozen=True, slots=True)
class BadInputs:
    """The workflow's schema of inputs refuses them; `problems` name places and rules."""

    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The run exists, started by this request or by an earlier one with its id."""

    run: str


@dataclass(frozen=True, slots=True)
class WaitsListed:
    """The open waits of a workflow, the one with the nearest deadline first."""

    waits: tuple[Mapping[str, object], ...]


@dataclass(frozen=True, slots=True)
class StoreAway:
    """Nothing durable could be decided; the sender may try again.

    `uncertain`: something of it may be stored all the same. `unreadable`: a record in its way cannot be read, so that
    trying again helps nobody until a person has repaired it.
    """

    uncertain: bool = False
    unreadable: bool = False


@dataclass(frozen=True, slots=True)
class Stopping:
    """This instance takes nothing more."""


DoorAnswer = (
    Answer
    | PayloadProblem
    | Unauthorized
    | RateLimited
    | RetainedNotAllowed
    | Stale
    | BadTopic
    | BadInputs
    | RunStarted
    | WaitsListed
    | StoreAway
    | Stopping
)


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """What every door says. `error` is "" when accepted; `details` come in the order of their weight."""

    code: int
    error: ErrorName | Literal[""] = ""
    receipt: Receipt | None = None
    details: dict[str, object] = {}

    @property
    def ok(self) -> bool:
        return not self.error

    @property
    def retry_after_ms(self) -> int | None:
        value = self.details.get("retry_after_ms")
        return value if isinstance(value, int) else None


def say(answer: DoorAnswer, *, reader: bool, sender: Sender | None = None) -> Words:  # noqa: C901, PLR0911, PLR0912
    """Put an answer into words for a caller: `reader` may read the workflow, `sender` is the caller itself.

    Without `reader`, delivered and held are the same words, and so is everything that is not to be found.
    """
    match answer:
        case Taken():
            return Words(code=202, receipt=answer.receipt, details=_taken(answer) if reader else {})
        case RunStarted(run=run):
            return Words(code=202, details={"run": run})
        case WaitsListed(waits=waits):
            return Words(code=200, details={"waits": [dict(wait) for wait in waits]})
        case PayloadProblem():
            return _payload_problem(answer)
        case Unauthorized():
            return Words(code=401, error="unauthorized")
        case NotDeclared():
            return Words(code=404, error="not_found")
        case NoOpenWait(last=last):
            return Words(code=409, error="no_open_wait", details=_last(last) if reader and last is not None else {})
        case EarlySignalHeld(receipt=receipt, until=until):
            shown = receipt if reader or answer.sender == sender else None
            details: dict[str, object] = {"held_until": rfc3339(until)} if reader else {}
            return Words(code=409, error="early_signal_held", receipt=shown, details=details)
        case AlreadySettled(last=last):
            shown = last.receipt if reader else None
            return Words(code=409, error="already_settled", receipt=shown, details=_last(last) if reader else {})
        case WaitClosed():
            return Words(code=410, error="wait_closed")
        case Stale():
            return Words(code=410, error="stale")
        case RetainedNotAllowed():
            return Words(code=422, error="retained_not_allowed")
        case InvalidPayload(problems=problems):
            shown_problems = [{"pointer": problem.pointer, "rule": problem.rule} for problem in problems]
            return Words(code=422, error="invalid_payload", details={"problems": shown_problems})
        case BadInputs(problems=texts):
            return Words(code=422, error="invalid_payload", details={"problems": list(texts)})
        case SignalIdReused():
            return Words(code=422, error="signal_id_reused")
        case RateLimited(limit=limit, retry_after_seconds=seconds):
            return _limited(limit, math.ceil(seconds * 1000))
        case SlotFull():
            return _limited("early_signals", SLOT_RETRY_MS)
        case BadTopic(hint=hint):
            return Words(code=400, error="bad_topic", details={"hint": hint})
        case Contended():
            return Words(code=503, error="contended", details={"retry_after_ms": CONTENDED_RETRY_MS})
        case StoreAway():
            return Words(code=503, error="store_unavailable", details={"retry_after_ms": STORE_RETRY_MS})
        case Stopping():
            return Words(code=503, error="stopping", details={"retry_after_ms": STOPPING_RETRY_MS})
        case _:
            assert_never(answer)


def _taken(answer: Taken) -> dict[str, object]:
    details: dict[str, object] = {"state": answer.state}
    if answer.held_until is not None:
        details["held_until"] = rfc3339(answer.held_until)
    details["duplicate"] = answer.duplicate
    if (where := answer.where) is not None:
        details |= {"run": where.run, "step": where.step, "wait": where.wait, "job": where.job}
    return details


def _last(last: LastWait) -> dict[str, object]:
    settled: dict[str, object] = {"how": last.how, "at": rfc3339(last.at)}
    if last.receipt is not None:
        settled["receipt"] = last.receipt.id
    return {"last_wait": settled}


def _payload_problem(problem: PayloadProblem) -> Words:
    if problem.code == "payload_too_large":
        details: dict[str, object] = {"max_bytes": MAX_PAYLOAD_BYTES, "bytes": problem.bytes}
        return Words(code=413, error="payload_too_large", details=details)
    where: dict[str, object] = {"pointer": problem.pointer} if problem.pointer else {}
    return Words(code=400, error="bad_payload", details={"reason": problem.reason} | where)


def _limited(limit: str, retry_after_ms: int) -> Words:
    return Words(code=429, error="rate_limited", details={"limit": limit, "retry_after_ms": retry_after_ms})


def body(words: Words, request_id: str) -> dict[str, object]:
    """Give the fields that every door carries, details and all; a door may add to them."""
    return _kept(words, request_id) | words.details


def _kept(words: Words, request_id: str) -> dict[str, object]:
    kept: dict[str, object] = {"v": 1, "ok": words.ok, "code": words.code}
    if words.error:
        kept["error"] = words.error
    kept["id"] = request_id
    if words.receipt is not None:
        kept |= {"receipt": words.receipt.id, "at": rfc3339(words.receipt.at)}
    return kept


# -- MQTT ----------------------------------------------------------------------------------------------------------


def mqtt_payload(words: Words, request_id: str, *, topic: str, correlation_bytes: int = 0) -> bytes:
    """Write a reply for a small client: details go, the least first, until its packet fits `MAX_PACKET_BYTES`.

    `topic` is the longest that the reply is sent on. What is left in the end is never cut.
    """
    kept = _kept(words, request_id)
    if not words.details:
        return _compact(kept)
    room = MAX_PACKET_BYTES - _overhead(topic, correlation_bytes)
    text = b""
    for details in _ever_less(words.details):
        text = _compact(kept | details)
        if len(text) <= room:
            return text
    return text


def _overhead(topic: str, correlation_bytes: int) -> int:
    """Count the bytes of a PUBLISH beside its payload (MQTT 5, 3.3): header, topic, packet id, properties."""
    properties = 1 + (3 + correlation_bytes if correlation_bytes else 0)
    return 1 + 2 + 2 + len(topic.encode()) + 2 + properties


def _ever_less(details: dict[str, object]) -> Iterator[dict[str, object]]:
    if isinstance(waits := details.get("waits"), list):
        yield from _fewer_waits(waits)
        return
    left = dict(details)
    yield left
    while left:
        name = next(reversed(left))
        value = left.pop(name)
        if isinstance(value, list):
            for length in range(min(len(value), 20) - 1, 0, -1):
                yield left | {name: value[:length], "more": len(value) - length}
        yield left


def _fewer_waits(waits: list[object]) -> Iterator[dict[str, object]]:
    shown = [wait for wait in waits if isinstance(wait, dict)][:MAX_WAITS_SHOWN]
    for fields in (("key", "wait", "deadline"), ("key", "deadline"), ("key",)):
        short = [{name: wait[name] for name in fields if wait.get(name) is not None} for wait in shown]
        yield _some_of(short, len(waits))
    for length in range(len(shown) - 1, -1, -1):
        yield _some_of([{"key": wait.get("key")} for wait in shown[:length]], len(waits))


def _some_of(shown: list[dict[str, object]], total: int) -> dict[str, object]:
    return {"waits": shown} | ({"more": total - len(shown)} if total > len(shown) else {})


def _compact(value: dict[str, object]) -> bytes:
    return msgspec.json.encode(value)


def mqtt_reason(words: Words) -> int:
    """Give the reason code of PUBACK and PUBREC (MQTT 5, 3.4.2.1)."""
    match words.code:
        case 200 | 202:
            return 0x00  # Success
        case 401 | 404:
            return 0x87  # Not authorized
        case 413 | 429:
            return 0x97  # Quota exceeded
        case 400:
            return 0x99  # Payload format invalid
        case _:
            return 0x83  # Implementation specific error


# -- HTTP ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HttpReply:
    """A response: its body is JSON, or a problem (RFC 9457) whose type is the error's name."""

    status: int
    headers: dict[str, str]
    body: dict[str, object]


def http_reply(words: Words, request_id: str) -> HttpReply:
    """Write an answer as an HTTP response."""
    fields = body(words, request_id)
    if not words.error:
        return HttpReply(words.code, {"content-type": "application/json"}, fields)
    headers = {"content-type": "application/problem+json"}
    if (wait := words.retry_after_ms) is not None:
        headers["retry-after"] = str(max(1, math.ceil(wait / 1000)))
    if words.code == HTTPStatus.UNAUTHORIZED:
        headers["www-authenticate"] = "Bearer"
    problem: dict[str, object] = {"type": words.error, "title": TITLES[words.error], "status": words.code}
    return HttpReply(words.code, headers, problem | fields)


TITLES: Final[dict[str, str]] = {
    "bad_payload": "The payload is not a JSON object within the limits",
    "bad_topic": "The topic is not on the map",
    "unauthorized": "The credential is not known",
    "not_found": "There is nothing by this name for you",
    "no_open_wait": "No wait is open under the key",
    "early_signal_held": "An early signal is held already",
    "already_settled": "The wait has been settled",
    "wait_closed": "The wait is past its deadline",
    "stale": "The message is too old",
    "payload_too_large": "The payload is too large",
    "invalid_payload": "The schema refuses the payload",
    "signal_id_reused": "The signal id was used for another payload",
    "retained_not_allowed": "A signal may not be a retained message",
    "rate_limited": "Too many at a time",
    "contended": "Others were faster; try again",
    "store_unavailable": "The store does not answer; try again",
    "stopping": "The gateway is stopping; try again",
}
