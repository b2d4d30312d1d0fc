"""What holds for every test: how Hypothesis explores on a busy machine, how garbage is found, what a run says last."""

from __future__ import annotations

import gc
import os

import pytest
from hypothesis import HealthCheck, settings

# A slow moment of a shared machine is no failure. On a build server examples are the same each time, so that a red
# build is due to a change; at a desk they are new ones.
settings.register_profile(
    "wayside",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
    print_blob=True,
)
settings.load_profile("wayside")


def pytest_collection_finish() -> None:
    """Set what was imported and collected aside: looking through it for garbage, again and again, takes a fifth."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how much of the protocol was explored; the tests may have run in several processes."""
    found = [dict(report.user_properties) for report in terminalreporter.getreports("passed")]
    explored = [properties for properties in found if "states explored" in properties]
    if explored:
        states = sum(int(str(properties["states explored"])) for properties in explored)
        schedules = sum(int(str(properties["schedules explored"])) for properties in explored)
        terminalreporter.write_line(
            f"explored {len(explored)} races: {states:,} distinct states, {schedules:.1e} schedules, no violation"
        )
