"""The one place where a payload's bytes become a value: strict JSON within the limits of protocol section 7.

A `Payload` that exists has passed every limit. Neither it nor a `PayloadProblem` shows what a payload says: their
texts name rules and byte offsets, never a value and never a member's name.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import Final, Literal, NoReturn

from engine.limits import FORBIDDEN_MEMBER_NAMES, MAX_PAYLOAD_BYTES, MAX_PAYLOAD_DEPTH

# The largest double has 309 digits: a longer integer is out of range as 1e400 is. (RFC 8259, section 6)
_MAX_INTEGER_DIGITS: Final = 308
_SHORT_ID_DIGITS: Final = 16
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_BLANK: Final = " \t\n\r"
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"')
# Every bracket as a square one and every digit as 0, so that depth and runs of digits are found by plain searches.
_SHAPE: Final = bytes.maketrans(b"{}", b"[]")
_DIGITS: Final = bytes.maketrans(b"123456789", b"000000000")
_NOT_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")
_LONG_RUN: Final = b"0" * (_MAX_INTEGER_DIGITS + 1)


@dataclass(frozen=True, slots=True)
class Payload:
    """A payload within every limit. `text` is what is stored; `digest` tells two payloads under one signal id apart."""

    text: bytes = field(repr=False)  # compact JSON, members in the order sent
    digest: str = field(repr=False)  # hex SHA-256 of the same with sorted members
    sent_bytes: int
    short_id: str = field(repr=False)  # first 16 hex digits of the SHA-256 of the bytes as sent

    def value(self) -> dict[str, object]:
        """Decode the payload anew; the caller may change what it gets."""
        decoded: dict[str, object] = json.loads(self.text)
        return decoded


@dataclass(frozen=True, slots=True)
class PayloadProblem:
    """Why bytes are no payload: a rule, and where as far as that reveals nothing."""

    code: Literal["bad_payload", "payload_too_large"]
    reason: str
    pointer: str  # JSON pointer; "" where one would hold names that no schema declares
    bytes: int  # as sent


class _Refused(Exception):
    """Leave the decoder's call-backs with the rule that was broken."""


def parse_payload(raw: bytes) -> Payload | PayloadProblem:
    """Check `raw` against every limit and decode it; around a millisecond at worst, microseconds for a usual one.

    Byte offsets in a reason count from 0.
    """
    if len(raw) > MAX_PAYLOAD_BYTES:
        return PayloadProblem("payload_too_large", f"more than {MAX_PAYLOAD_BYTES} bytes", "", len(raw))
    try:
        value = _decode(raw)
        text = _encode(value)
        _check_depth(text)
    except _Refused as refused:
        return PayloadProblem("bad_payload", str(refused), "", len(raw))
    if len(text) > MAX_PAYLOAD_BYTES:
        reason = f"more than {MAX_PAYLOAD_BYTES} bytes when written again"
        return PayloadProblem("payload_too_large", reason, "", len(raw))
    digest = hashlib.sha256(_SORTED.encode(value).encode()).hexdigest()
    return Payload(text, digest, len(raw), hashlib.sha256(raw).hexdigest()[:_SHORT_ID_DIGITS])


def _decode(raw: bytes) -> dict[str, object]:
    if raw.startswith(_BYTE_ORDER_MARK):
        raise _Refused("not JSON: starts with a byte order mark")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise _Refused(f"not UTF-8 at byte {error.start}") from None
    if not text.strip(_BLANK):
        raise _Refused("not JSON: empty")
    careful = _LONG_RUN in raw.translate(_DIGITS)
    try:
        value: object = (_CAREFUL if careful else _STRICT).decode(text)
    except json.JSONDecodeError as error:
        raise _Refused(_where(text, error.pos)) from None
    except RecursionError:
        raise _Refused(_TOO_DEEP) from None
    if not isinstance(value, dict):
        raise _Refused("not an object")
    return value


def _where(text: str, position: int) -> str:
    if position >= len(text):
        return "not JSON: ends too early"
    return f"not JSON: unexpected character at byte {len(text[:position].encode())}"


def _encode(value: dict[str, object]) -> bytes:
    try:
        return _COMPACT.encode(value).encode()
    except ValueError as error:  # UnicodeEncodeError is one
        surrogate = isinstance(error, UnicodeEncodeError)
        raise _Refused("a lone surrogate" if surrogate else "a number is out of range") from None
    except RecursionError:
        raise _Refused(_TOO_DEEP) from None


_TOO_DEEP: Final = f"nested more than {MAX_PAYLOAD_DEPTH} levels deep"


def _check_depth(text: bytes) -> None:
    """Take the innermost brackets away once a level; what is left is too deep. `text` is valid JSON."""
    if text.count(b"[") + text.count(b"{") <= MAX_PAYLOAD_DEPTH:
        return
    brackets = _STRING.sub(b"", text).translate(_SHAPE, _NOT_BRACKETS)
    for _ in range(MAX_PAYLOAD_DEPTH):
        if not (brackets := brackets.replace(b"[]", b"")):
            return
    raise _Refused(_TOO_DEEP)


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _Refused("a name occurs twice in one object")
    for name in FORBIDDEN_MEMBER_NAMES:
        if name in members:
            raise _Refused("a name is not allowed: __proto__, constructor and prototype never are")
    return members


def _constant(_: str) -> NoReturn:
    raise _Refused("not JSON: NaN or Infinity")


def _integer(digits: str) -> int:
    # Asked only when a run of digits is long: int() takes quadratic time, or refuses in its own words.
    if len(digits.lstrip("-")) > _MAX_INTEGER_DIGITS:
        raise _Refused("a number is out of range")
    return int(digits)


_STRICT: Final = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)
_CAREFUL: Final = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, parse_int=_integer)
_COMPACT: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False)
_SORTED: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False, sort_keys=True)
