"""What a step's deed comes to."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from engine.records import Error


@dataclass(frozen=True, slots=True)
class Effect:
    """A step's outputs, as JSON text, and its error if it failed. Both may be there: a failed program has output."""

    outputs: bytes | None
    error: Error | None = None


Deed = Callable[[], Awaitable[Effect]]


def done(outputs: dict[str, Any]) -> Effect:
    """Report a success."""
    return Effect(_text(outputs))


def failed(message: str, outputs: dict[str, Any] | None = None) -> Effect:
    """Report a failure in a sentence that quotes no payload."""
    return Effect(None if outputs is None else _text(outputs), Error(code="task_failed", message=message))


def _text(outputs: dict[str, Any]) -> bytes:
    return json.dumps(outputs, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()
