"""The one place where a payload's bytes become a value: strict JSON within the limits of protocol section 7.

A `Payload` that exists has passed every limit. Neither it nor a `PayloadProblem` shows what a payload says: their
texts name rules and byte offsets, never a value and never a member's name.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Final, Literal, NoReturn

import msgspec
from msgspec import Struct

from engine.limits import FORBIDDEN_MEMBER_NAMES, MAX_PAYLOAD_BYTES, MAX_PAYLOAD_DEPTH

# The largest double has 309 digits: a longer integer is out of range as 1e400 is (RFC 8259, section 6), and int() would
# take quadratic time over it, or refuse it in its own words.
_MAX_INTEGER_DIGITS: Final = 308
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_BLANK: Final = " \t\n\r"

_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_BETWEEN_NUMBERS: Final = re.compile(rb"[^-+.0-9eE]+")
# In compact JSON a quote after { or , opens a name or a value, and never stands inside a string, where it is escaped.
_FORBIDDEN_NAMES: Final = tuple(name.encode() for name in sorted(FORBIDDEN_MEMBER_NAMES))
_FORBIDDEN: Final = re.compile(b'[{,]"(?:' + b"|".join(map(re.escape, _FORBIDDEN_NAMES)) + b')":')
# Every bracket as a square one and every digit as 0, so that depth and runs of digits are found by plain searches.
_SHAPE: Final = bytes.maketrans(b"{}", b"[]")
_DIGITS: Final = bytes.maketrans(b"123456789", b"000000000")
_NOT_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")
_LONG_RUN: Final = b"0" * (_MAX_INTEGER_DIGITS + 1)

_TOO_DEEP: Final = f"nested more than {MAX_PAYLOAD_DEPTH} levels deep"
_OUT_OF_RANGE: Final = "a number is out of range"


class Payload(Struct, frozen=True):
    """A payload within every limit. `text` is what is stored; `digest` tells two payloads under one signal id apart."""

    text: bytes  # compact JSON, members in the order sent
    digest: str  # hex SHA-256 of the same with sorted members
    sent_bytes: int

    def __repr__(self) -> str:
        """Show sizes only: a payload may not reach a log."""
        return f"Payload(sent_bytes={self.sent_bytes})"

    def value(self) -> dict[str, object]:
        """Decode the payload anew; the caller may change what it gets."""
        decoded: dict[str, object] = msgspec.json.decode(self.text)
        return decoded


@dataclass(frozen=True, slots=True)
class PayloadProblem:
    """Why bytes are no payload: a rule, and where as far as that reveals nothing."""

    code: Literal["bad_payload", "payload_too_large"]
    reason: str
    pointer: str  # JSON pointer; "" where one would hold names that no schema declares
    bytes: int  # as sent


class _Refused(Exception):
    """Carry the rule that was broken out of the checks."""


def parse_payload(raw: bytes) -> Payload | PayloadProblem:
    """Check `raw` against every limit and decode it; around a millisecond at worst, microseconds for a usual one.

    Byte offsets in a reason count from 0.
    """
    if len(raw) > MAX_PAYLOAD_BYTES:
        return PayloadProblem("payload_too_large", f"more than {MAX_PAYLOAD_BYTES} bytes", "", len(raw))
    try:
        value = _decode(raw)
        text = msgspec.json.encode(value)
        _check_depth(text)
        _check_names(raw, text)
        digest = hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()
    except _Refused as refused:
        return PayloadProblem("bad_payload", str(refused), "", len(raw))
    except RecursionError:
        return PayloadProblem("bad_payload", _TOO_DEEP, "", len(raw))
    if len(text) > MAX_PAYLOAD_BYTES:
        reason = f"more than {MAX_PAYLOAD_BYTES} bytes when written again"
        return PayloadProblem("payload_too_large", reason, "", len(raw))
    return Payload(text, digest, len(raw))


def _decode(raw: bytes) -> dict[str, object]:
    if _LONG_RUN in raw.translate(_DIGITS):
        _check_integers(raw)
    try:
        value: object = msgspec.json.decode(raw)
    except (msgspec.DecodeError, ValueError):
        raise _Refused(_explain(raw)) from None
    if not isinstance(value, dict):
        raise _Refused("not an object")
    return value


def _check_integers(raw: bytes) -> None:
    for number in _BETWEEN_NUMBERS.split(_STRING.sub(b"", raw)):
        digits = number.removeprefix(b"-")
        if len(digits) > _MAX_INTEGER_DIGITS and digits.isdigit():
            raise _Refused(_OUT_OF_RANGE)


def _check_depth(text: bytes) -> None:
    """Take the innermost brackets away once a level; what is left is too deep. `text` is valid JSON."""
    if text.count(b"[") + text.count(b"{") <= MAX_PAYLOAD_DEPTH:
        return
    brackets = _STRING.sub(b"", text).translate(_SHAPE, _NOT_BRACKETS)
    for _ in range(MAX_PAYLOAD_DEPTH):
        if not (brackets := brackets.replace(b"[]", b"")):
            return
    raise _Refused(_TOO_DEEP)


def _check_names(raw: bytes, text: bytes) -> None:
    """Refuse repeated and forbidden names. `text` is `raw` decoded, where the last of equal names won, and encoded."""
    # Each member has one colon outside strings, so one that was dropped is missed. Without escapes the strings that
    # are left hold as many colons as before, and a plain count tells.
    if (b"\\" in raw or raw.count(b":") != text.count(b":")) and _members(raw) != _members(text):
        raise _Refused("a name occurs twice in one object")
    for name in _FORBIDDEN_NAMES:
        if name in text and _FORBIDDEN.search(text):
            raise _Refused("a name is not allowed: __proto__, constructor and prototype never are")


def _members(text: bytes) -> int:
    return _STRING.sub(b"", text).count(b":")


def _explain(raw: bytes) -> str:
    """Say why `raw` is refused, in words that hold nothing of it. What this finds right stays refused."""
    if raw.startswith(_BYTE_ORDER_MARK):
        return "not JSON: starts with a byte order mark"
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8 at byte {error.start}"
    if not text.strip(_BLANK):
        return "not JSON: empty"
    try:
        json.dumps(json.loads(text, parse_constant=_constant), ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        return "a lone surrogate"
    except json.JSONDecodeError as error:
        if error.pos >= len(text):
            return "not JSON: ends too early"
        return f"not JSON: unexpected character at byte {len(text[: error.pos].encode())}"
    except _Refused as refused:
        return str(refused)
    except ValueError:
        return _OUT_OF_RANGE
    return "not JSON"


def _constant(_: str) -> NoReturn:
    raise _Refused("not JSON: NaN or Infinity")
