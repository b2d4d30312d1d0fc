"""Keys as subjects, and back.

A key's segments, between slashes, are the subject's tokens. What a token may not hold is written `=XX`, a byte of UTF-8
in hexadecimal, `=` itself included; an empty segment is `=-`. So a prefix that ends in a slash is a wildcard, and any
other prefix is the wildcard of its whole segments, with the rest told apart afterwards. Subjects are not in key order.
"""

from __future__ import annotations

import re
from typing import Final

_EMPTY: Final = "=-"
_UNSAFE: Final = re.compile(rb"[^-_a-zA-Z0-9]")
_ESCAPED: Final = re.compile(rb"=([0-9A-F]{2})")
# No key is encoded like this: the subject of messages that ask for the time.
CLOCK: Final = "=clock"


def encode(key: str) -> str:
    """Write a key as the part of a subject after the bucket's name."""
    return ".".join(_token(segment) for segment in key.split("/"))


def decode(subject: str) -> str | None:
    """Read a key back; None for what is not one."""
    segments = []
    for token in subject.split("."):
        text = b"" if token == _EMPTY else _ESCAPED.sub(lambda found: bytes([int(found[1], 16)]), token.encode())
        try:
            segments.append(text.decode())
        except UnicodeDecodeError:
            return None
    key = "/".join(segments)
    return key if encode(key) == subject else None


def wildcard(prefix: str) -> str:
    """Name all subjects whose key starts with `prefix`, and as few others as a wildcard can."""
    whole, slash, _ = prefix.rpartition("/")
    return f"{encode(whole)}.>" if slash else ">"


def _token(segment: str) -> str:
    if not segment:
        return _EMPTY
    return _UNSAFE.sub(lambda found: b"=%02X" % found[0][0], segment.encode()).decode()
