"""What a command prints: JSON when asked, tables and colour on a terminal, plain lines otherwise."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from engine.clock import wall_clock
from gateway.cli.invocation import current
from gateway.cli.streams import takes_all

# Columns that are copied, or read at a glance: never broken into two lines.
_WHOLE: Final = frozenset({"run", "wait", "receipt", "held signal", "time", "started", "ended", "changed", "status"})
STYLES: Final[Mapping[str, str]] = {
    "succeeded": "green",
    "active": "green",
    "accepted": "green",
    "delivered": "green",
    "running": "cyan",
    "pending": "dim",
    "suspended": "yellow",
    "held": "yellow",
    "disabled": "yellow",
    "skipped": "dim",
    "failed": "red",
    "refused": "red",
    "cancelled": "magenta",
    "deleted": "dim",
}

_ACTING: Final = re.compile(r"\x1b(?!\[\d{1,2}m)|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def on_terminal() -> bool:
    return sys.stdout.isatty()


def coloured() -> bool:
    return on_terminal() and not os.environ.get("NO_COLOR")


def emit(document: object) -> None:
    """Print one JSON document on one line, at once."""
    _say(json.dumps(document, ensure_ascii=not takes_all(sys.stdout), separators=(", ", ": ")))


def line(text: str) -> None:
    _say(printable(text))


def _say(text: str) -> None:
    """Write a line in one piece: the audit log may go to standard output, too, from a thread of its own."""
    print(f"{text}\n", end="", flush=True)


def note(text: str) -> None:
    """Say something to a person beside the output proper."""
    with contextlib.suppress(OSError):  # nobody is left to be told
        print(printable(text), file=sys.stderr, flush=True)


def printable(text: str) -> str:
    """Drop what would act on a terminal, but for colours: names and messages may come from elsewhere."""
    return _ACTING.sub("�", text)


def plain(text: str) -> str:
    """Drop colours, too: what somebody wrote has none of ours in it."""
    return printable(text.replace("\x1b", "�"))


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """Print rows as a table on a terminal, else as lines of fields with tabs between them under a header."""
    cells = [[_cell(value) for value in row] for row in rows]
    if not on_terminal():
        print("\t".join(columns))
        for row in cells:
            print("\t".join(cell.replace("\t", " ").replace("\n", " ") for cell in row))
        sys.stdout.flush()
        return
    if not cells:
        line(empty)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        shown.add_column(column, overflow="fold", no_wrap=column in _WHOLE)
    for row in cells:
        shown.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in row))
    Console().print(shown)


def styled(text: str, style: str) -> str:
    """Colour a word on a terminal."""
    codes = {"green": 32, "red": 31, "yellow": 33, "cyan": 36, "magenta": 35, "dim": 2, "bold": 1}
    return f"\x1b[{codes[style]}m{text}\x1b[0m" if style in codes and coloured() else text


def status(word: str) -> str:
    return styled(word, STYLES.get(word, ""))


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return ", ".join(plain(str(item)) for item in value) or "-"
        case _:
            return plain(str(value))


def when(text: str | None) -> str:
    """Show an RFC 3339 time in the reader's own zone; on a terminal, without the day when that is today."""
    if (moment := _time(text)) is None:
        return "-"
    local = moment.astimezone()
    today = on_terminal() and local.date() == wall_clock().astimezone().date()
    return local.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S")


def until(text: str | None, now: datetime | None = None) -> str:
    """Show a moment with how far off it is: `20:31:12 (in 25 s)`."""
    if (moment := _time(text)) is None:
        return "-"
    left = (moment - (now or wall_clock())).total_seconds()
    return f"{when(text)} ({'in ' + span(left) if left >= 0 else span(-left) + ' ago'})"


def span(seconds: float) -> str:
    """Show a time span in its two largest units at most."""
    whole = int(seconds)
    for unit, size, lower, lower_size in (("d", 86_400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // lower_size
            return f"{whole // size} {unit}" + (f" {rest} {lower}" if rest else "")
    return f"{whole} s"


def _time(text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def result(document: Mapping[str, Any], text: str) -> None:
    """Print what was done: the document with `--json`, else the sentence."""
    if current().json:
        emit(document)
    else:
        line(text)
