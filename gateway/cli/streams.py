"""The standard streams: made fit to be used at the start, and what is said when the output cannot be written."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any, ClassVar, Final

from engine.errors import WaysideError

_UNWRITABLE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})


class NotWritten(WaysideError):
    """The output did not get where it was sent; what it tells of may have been done."""

    code: ClassVar[str] = "not_written"

    def __init__(self, fault: OSError) -> None:
        super().__init__(
            f"the output cannot be written ({fault.strerror})",
            hint="what was asked for may have been done all the same: look before you try again",
        )


def prepare() -> None:
    """Put nothing in the place of a closed stream, lest a file take its number; replace what none can encode."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115  for good
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def takes_all(stream: Any) -> bool:  # noqa: ANN401  what a test puts there, too
    """Tell whether a stream can say every character."""
    return str(getattr(stream, "encoding", None) or "utf-8").lower().startswith("utf")


def is_of_output(fault: OSError) -> bool:
    """Tell whether what failed is a write to the output: to what has no name here, for want of room."""
    return fault.filename is None and fault.errno in _UNWRITABLE


def let_go() -> None:
    """Send what is left of the output nowhere, so that the end of the process does not fail over it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
