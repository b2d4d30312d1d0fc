"""Templates, and how values are written in them. Everything that is filled in is escaped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import jinja2

from engine.clock import rfc3339

_HERE: Final = Path(__file__).parent
STATIC: Final = _HERE / "static"
_SHORT: Final = 8
# What a state is to a person: the class that gives it a colour, beside the icon and the word.
TONES: Final[Mapping[str, str]] = {
    "succeeded": "good",
    "accepted": "good",
    "active": "good",
    "delivered": "good",
    "taken": "good",
    "online": "good",
    "running": "busy",
    "pending": "idle",
    "skipped": "idle",
    "deleted": "idle",
    "offline": "idle",
    "expired": "idle",
    "superseded": "idle",
    "suspended": "wait",
    "held": "held",
    "disabled": "wait",
    "failed": "bad",
    "refused": "bad",
    "timed_out": "bad",
    "cancelled": "stop",
}
WORDS: Final[Mapping[str, str]] = {"suspended": "waiting", "timed_out": "timed out", "good": "fine"}


@cache
def environment() -> jinja2.Environment:
    """Make the environment of all templates, once."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"pretty": pretty, "short": short, "tone": tone, "word": word, "plural": plural, "span": span}
    made.globals["asset"] = asset
    return made


def render(template: str, context: Mapping[str, Any]) -> str:
    """Fill in a template."""
    return environment().get_template(template).render(context)


@cache
def static_files() -> Mapping[str, bytes]:
    """Read the style sheet, the script and the icon, once."""
    return {file.name: file.read_bytes() for file in sorted(STATIC.iterdir()) if file.is_file()}


@cache
def asset(name: str) -> str:
    """Give an asset's address, which changes with its content."""
    return f"/static/{name}?{sha256(static_files()[name]).hexdigest()[:12]}"


def pretty(value: object) -> str:
    """Write a JSON value over several lines."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def short(identity: str | None) -> str:
    """Show the end of an id, which differs most between two."""
    return identity[-_SHORT:] if identity else ""


def tone(state: str) -> str:
    return TONES.get(state, "bad" if state else "idle")


def word(state: str) -> str:
    return WORDS.get(state, state)


def plural(number: int, one: str, many: str = "") -> str:
    """Count something: `1 run`, `2 runs`."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def span(seconds: float) -> str:
    """Write a span of time with one or two units."""
    if seconds < 1:
        return f"{round(seconds * 1000)} ms"
    if seconds < 60:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    for unit, size, below in (("min", 60, 3_600), ("h", 3_600, 86_400), ("d", 86_400, 0)):
        if seconds < below or not below:
            whole, rest = divmod(round(seconds), size)
            smaller, of = {"min": ("s", 1), "h": ("min", 60), "d": ("h", 3_600)}[unit]
            return f"{whole} {unit}" + (f" {rest // of} {smaller}" if rest // of else "")
    raise AssertionError(seconds)


def between(start: str | None, end: str | None) -> str:
    """Write the span between two RFC 3339 times; "" unless both are there."""
    if not start or not end:
        return ""
    return span(max(0.0, (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()))


def moment(value: datetime | None) -> str | None:
    return rfc3339(value) if value is not None else None
