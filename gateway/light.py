"""Importing libraries without the optional ones that they would draw in: a start and a command are quicker for it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def without(*names: str) -> Iterator[None]:
    """Have imports in this context go as if `names` were not installed, unless they are imported already.

    For libraries that treat them as optional, and whose use of them is none here.
    """
    hidden = [name for name in names if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        for name in hidden:
            sys.modules.pop(name, None)
