"""Tokens: made once, shown once, kept as a SHA-256 and compared in constant time.

A token is `wsd_` (a device) or `wsu_` (an operator), 43 base62 characters of 256 random bits, and a checksum of 6
characters, which tells a mistyped token from a wrong one without asking anybody. A slow hash would protect a human's
password; these are neither chosen nor guessable, and it would make every reconnect cost what a login may.
"""

from __future__ import annotations

import hmac
import re
import zlib
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from devices.model import MAX_SECRETS, Kind, Secret

ENTROPY_BITS: Final = 256
_ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_BODY: Final = 43
_CHECK: Final = 6
_PREFIXES: Final[dict[Kind, str]] = {"device": "wsd_", "user": "wsu_"}
_SHAPE: Final = re.compile(rf"(wsd_|wsu_)([0-9A-Za-z]{{{_BODY}}})([0-9A-Za-z]{{{_CHECK}}})")
# Compared with where a device has fewer secrets than it may: no token has this digest.
_NOBODY: Final = "0" * 64

assert len(_ALPHABET) ** _BODY >= 2**ENTROPY_BITS
assert len(_ALPHABET) ** _CHECK >= 2**32


def make_token(kind: Kind, number: int) -> str:
    """Write a random number of `ENTROPY_BITS` bits as a token."""
    assert 0 <= number < 1 << ENTROPY_BITS
    start = _PREFIXES[kind] + _base62(number, _BODY)
    return start + _checksum(start)


def kind_of(token: str) -> Kind | None:
    """Tell whose token this can be; None when it has not the shape of one or its checksum is wrong."""
    found = _SHAPE.fullmatch(token)
    if found is None or _checksum(found[1] + found[2]) != found[3]:
        return None
    return "device" if found[1] == _PREFIXES["device"] else "user"


def digest(token: str) -> str:
    """Give the hex SHA-256 under which a token is stored."""
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def matching(secrets: Sequence[Secret], token: str) -> Secret | None:
    """Find the secret that `token` belongs to.

    The work is the same for a right token, a wrong one and no secrets at all, so that an unknown device, for which a
    caller passes none, is not told from a known one by the time that it takes.
    """
    given = digest(token)
    found: Secret | None = None
    for at in range(MAX_SECRETS):
        secret = secrets[at] if at < len(secrets) else None
        if hmac.compare_digest(given, secret.digest if secret else _NOBODY):
            found = secret
    return found


def _base62(number: int, width: int) -> str:
    text = ""
    for _ in range(width):
        number, digit = divmod(number, len(_ALPHABET))
        text = _ALPHABET[digit] + text
    return text


def _checksum(text: str) -> str:
    return _base62(zlib.crc32(text.encode()), _CHECK)
