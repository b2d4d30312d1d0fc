"""Logging: structlog on standard error, for a person on a terminal and as JSON lines otherwise.

A line is an event's name and named fields. Only short plain values pass: bytes, and anything else that could carry
a payload or a token, are replaced by their type's name, and text that looks like a token is masked.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import MutableMapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePath
from typing import Final, Literal, TextIO

import msgspec

from gateway.light import without

# rich is for tracebacks, which are never printed here: a tenth of the time that a gateway has for its start, and 4 MB.
with without("rich"):
    import structlog

MAX_TEXT: Final = 500
REPEAT_SECONDS: Final = 10.0
_MAX_SAID: Final = 200
_TOKEN: Final = re.compile(r"ws[du]_[0-9A-Za-z]{8,}")
_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}
# What parts that log by the standard library fill in is ids, names and the store's faults.
_OURS: Final = ("engine.", "gateway.")
# Names that a payload or a secret would be logged under; nothing under them is ever written.
_REFUSED: Final = frozenset({"payload", "token", "password", "secret", "body", "authorization", "outputs", "inputs"})


def configure(
    *, level: Literal["debug", "info", "warning", "error"] = "info", console: bool, stream: TextIO | None = None
) -> None:
    """Send every log line, the standard library's included, to `stream` (standard error)."""
    out = stream or sys.stderr
    last: list[structlog.typing.Processor] = (
        [structlog.dev.ConsoleRenderer(colors=out.isatty(), exception_formatter=structlog.dev.plain_traceback)]
        if console
        else [structlog.processors.JSONRenderer(serializer=_json)]
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _fault,
            _plain,
            *last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers[:] = [_Forward()]
    root.setLevel(max(_LEVELS[level], logging.WARNING))


Logger = structlog.typing.FilteringBoundLogger


def get_logger(name: str) -> Logger:
    """Give the logger of a part, which is named in each of its lines."""
    logger: Logger = structlog.get_logger(part=name)
    return logger


@dataclass(slots=True)
class _Said:
    """When a line was last written, and how often it has come since."""

    since: float
    more: int = 0


class _Forward(logging.Handler):
    """Takes the lines of libraries; what they say of a fault is left out but for its kind.

    One that comes again within `REPEAT_SECONDS` is counted: a stranger can have some of them written at will.
    """

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[tuple[str, str], _Said] = {}

    def _is_told(self, record: logging.LogRecord, fields: dict[str, object]) -> bool:
        at = (record.name, str(record.msg))
        said = self._said.pop(at, None)
        if said is not None and 0 <= record.created - said.since < REPEAT_SECONDS:
            said.more += 1
            self._said[at] = said
            return False
        if said is not None and said.more:
            fields["more"] = said.more
        self._said[at] = _Said(record.created)
        if len(self._said) > _MAX_SAID:
            del self._said[next(iter(self._said))]
        return True

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, object] = {"part": record.name}
        if not record.name.startswith(_OURS) and not self._is_told(record, fields):
            return
        if record.exc_info and record.exc_info[0]:
            fields["fault"] = record.exc_info[0].__name__
        # Of others the template, never the arguments: those may be anything.
        text = record.getMessage() if record.name.startswith(_OURS) else str(record.msg)
        structlog.get_logger().log(record.levelno, text, **fields)


def _fault(_: object, __: str, event: MutableMapping[str, object]) -> MutableMapping[str, object]:
    """Write an exception as its kind and the place it was raised: its own words may quote what it choked on."""
    raised = event.pop("exc_info", None)
    if raised is True:
        raised = sys.exc_info()[1]
    if isinstance(raised, BaseException):
        event["fault"] = type(raised).__name__
        trace = raised.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        if trace is not None:
            event["at"] = f"{PurePath(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
    return event


def _plain(_: object, __: str, event: MutableMapping[str, object]) -> MutableMapping[str, object]:
    for name in list(event):
        event[name] = "…" if name in _REFUSED else _harmless(event[name])
    return event


def _harmless(value: object) -> object:
    match value:
        case bool() | int() | float() | None:
            return value
        case str():
            masked = _TOKEN.sub(lambda found: found[0][:4] + "…", value)
            return masked if len(masked) <= MAX_TEXT else masked[:MAX_TEXT] + "…"
        case datetime() | PurePath():
            return str(value)
        case list() | tuple() if len(value) <= 50 and all(isinstance(item, (str, int, float)) for item in value):
            return [_harmless(item) for item in value]
        case _:
            return type(value).__name__


def _json(value: object, **_: object) -> str:
    return msgspec.json.encode(value).decode()
