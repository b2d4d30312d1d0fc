"""Hypothesis strategies for records that are valid by construction, and for what a key can hold."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from hypothesis import strategies as st

from engine import names
from engine.names import Key
from engine.records import (
    Accepted,
    Cancelled,
    Claim,
    Outcome,
    Pending,
    Release,
    Seal,
    Sender,
    SlotRecord,
    Stored,
    TimedOut,
    Unreadable,
    Void,
    raw,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
KEY = Key("door", "verdict")
WAIT = "w" * 26
SENDER = Sender(kind="device", id="camera")
KNOWN_ONLY = b'{"properties":{"n":{"minimum":0}},"type":"object"}'

seconds = st.floats(0.001, 3_600, allow_nan=False).map(lambda value: round(value, 6))
moments = st.integers(0, 4_000_000_000).map(lambda micros: START + timedelta(microseconds=micros))
nonces = st.text("0123456789abcdef", min_size=4, max_size=4)
payloads = st.integers(-3, 3).map(lambda n: b'{"n":%d}' % n)


@st.composite
def claims(draw: st.DrawFn, *, number: int | None = None, wait: str = WAIT) -> Stored[Claim]:
    """A claim of any number, with or without early signals."""
    n = number or draw(st.integers(1, 5))
    value = Claim(
        at=KEY.claim(n),
        nonce=draw(nonces),
        wait=wait,
        run="r" * 26,
        job="main",
        step="look",
        step_attempt=1,
        timeout=draw(seconds),
        accept_early=draw(st.none() | seconds),
        policy=draw(st.sampled_from(["first", "latest"])),
        schema=raw(draw(st.none() | st.just(KNOWN_ONLY))),
        takes=draw(st.integers(0, n - 1)),
    )
    return Stored(value, n, draw(moments))


@st.composite
def releases(draw: st.DrawFn) -> Stored[Release]:
    n = draw(st.integers(2, 5))
    value = Release(at=KEY.claim(n), nonce=draw(nonces), slot=draw(st.integers(0, n - 1)), run="r" * 26)
    return Stored(value, n, draw(moments))


@st.composite
def pendings(draw: st.DrawFn, slot: int, m: int) -> Stored[Pending]:
    value = Pending(
        at=KEY.pending(slot, m),
        nonce=draw(nonces),
        receipt=f"{m:026d}",
        sender=SENDER,
        signal_id=None,
        payload=raw(draw(payloads)),
        limit=draw(seconds),
    )
    return Stored(value, m, draw(moments))


def unreadable(key: str) -> Unreadable:
    return Unreadable(key, "it has not the shape of its kind", START)


@st.composite
def slots(draw: st.DrawFn, slot: int = 0, *, size: int = 5) -> list[Stored[SlotRecord] | Unreadable]:
    """What a slot can hold, by number: signals, voids, damaged records, and a seal only at its end."""
    found: list[Stored[SlotRecord] | Unreadable] = []
    for m in range(1, draw(st.integers(0, size)) + 1):
        match draw(st.sampled_from(["pending", "pending", "pending", "void", "unreadable"])):
            case "pending":
                found.append(draw(pendings(slot, m)))
            case "void":
                void = Void(at=KEY.pending(slot, m), nonce=draw(nonces), why="expired")
                found.append(Stored(void, m, draw(moments)))
            case _:
                found.append(unreadable(KEY.pending(slot, m)))
    if draw(st.booleans()):
        m = len(found) + 1
        found.append(Stored(Seal(at=KEY.pending(slot, m), nonce=draw(nonces), wait=WAIT), m, draw(moments)))
    return found


@st.composite
def outcomes(draw: st.DrawFn, wait: str = WAIT) -> Stored[Outcome] | Unreadable:
    at = names.outcome(wait)
    match draw(st.sampled_from(["accepted", "timed_out", "cancelled", "unreadable"])):
        case "accepted":
            value: Outcome = Accepted(
                at=at,
                nonce=draw(nonces),
                receipt="c" * 26,
                sender=SENDER,
                signal_id=None,
                payload=raw(draw(payloads)),
                received=draw(st.none() | moments),
            )
        case "timed_out":
            value = TimedOut(at=at, nonce=draw(nonces))
        case "cancelled":
            why: Any = draw(st.sampled_from(["key_held", "replaced", "cancelled", "ended", "void"]))
            value = Cancelled(at=at, nonce=draw(nonces), why=why, by="")
        case _:
            return unreadable(at)
    return Stored(value, 0, draw(moments))


def payload_of(entry: Stored[Pending]) -> dict[str, Any]:
    value: dict[str, Any] = msgspec.json.decode(entry.value.payload)
    return value
