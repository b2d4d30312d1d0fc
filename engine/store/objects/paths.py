"""Keys as object names that sort exactly as the keys do, and back.

A service lists names in the order of their bytes and can start after any of them; so no key is looked for in vain when
names are in the order of keys. Most characters stand for themselves. What a name cannot hold (control characters, a
segment that is empty, `.` or `..`) is written in two characters, the first of which sorts where the one that it stands
for would; so are the three characters that such pairs begin with.
"""

from __future__ import annotations

from typing import Final

_SEGMENT_END: Final = " !"  # an empty last segment: before anything that could follow
_SEGMENT_GAP: Final = ".~"  # an empty segment: where the slash after it would be, between `.` and `0`
_PAIRS: Final = {
    **{chr(code): " " + chr(0x40 + code) for code in range(0x20)},
    " ": " ~",
    ".": ".!",
    "~": "~!",
    "\x7f": "~~",
}
_SINGLES: Final = {pair: character for character, pair in _PAIRS.items()}
_ENCODE: Final = str.maketrans(_PAIRS)
# No key is encoded like these: what begins so is the store's own.
CLOCK: Final = "~clock"
HINT: Final = "~hint"
CHECK: Final = "~check"


def encode(key: str) -> str:
    """Write a key as an object's name."""
    segments = [segment.translate(_ENCODE) or _SEGMENT_GAP for segment in key.split("/")]
    if segments[-1] == _SEGMENT_GAP:
        segments[-1] = _SEGMENT_END
    return "/".join(segments)


def decode(path: str) -> str | None:
    """Read a key back; None for what is not one."""
    if path.isascii() and not any(first in path for first in " .~"):
        return path
    segments = []
    for segment in path.split("/"):
        if segment in {_SEGMENT_END, _SEGMENT_GAP}:
            segments.append("")
            continue
        plain = _plain(segment)
        if plain is None:
            return None
        segments.append(plain)
    key = "/".join(segments)
    return key if encode(key) == path else None


def folder(prefix: str) -> str | None:
    """Name the whole segments that every key with `prefix` begins with; None when there are none."""
    whole, slash, _ = prefix.rpartition("/")
    if not slash:
        return None
    return "/".join(segment.translate(_ENCODE) or _SEGMENT_GAP for segment in whole.split("/"))


def _plain(segment: str) -> str | None:
    plain = []
    at = 0
    while at < len(segment):
        if segment[at] not in " .~":
            plain.append(segment[at])
            at += 1
            continue
        character = _SINGLES.get(segment[at : at + 2])
        if character is None:
            return None
        plain.append(character)
        at += 2
    return "".join(plain)
