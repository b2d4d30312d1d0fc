"""`wayside` on a host of its own: its clock is off by `SHIFT` seconds, and with `HOST` no lock is seen from elsewhere.

Only `engine.clock` reads a clock, which the architecture's tests see to, so that is where the host's time is made.
"""

from __future__ import annotations

import os
import time
from datetime import datetime, timedelta, tzinfo

import engine.clock
import engine.instances
from gateway.cli import main


class Shifted(datetime):
    """The host's clock, off by some seconds."""

    seconds = float(os.environ.get("SHIFT", "0"))

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return datetime.now(tz) + timedelta(seconds=cls.seconds)


def apply() -> None:
    """Be on that host from now on."""
    read = time.time
    engine.clock.datetime = Shifted  # type: ignore[attr-defined]
    time.time = lambda: read() + Shifted.seconds
    if host := os.environ.get("HOST"):
        engine.instances._boot = lambda: host


if __name__ == "__main__":
    apply()
    main()
