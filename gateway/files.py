"""Files that are replaced in one step, so that whoever reads one finds the old or the new, whole."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def replacing(file: Path, *, mode: int = 0o600) -> Iterator[BinaryIO]:
    """Give a new file to write into; it takes the place of `file`, durable, when the context ends without a fault.

    `mode` is what the process's umask leaves of it.
    """
    unfinished = file.with_name(f".{file.name}.new")
    unfinished.unlink(missing_ok=True)
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())
    unfinished.replace(file)
