"""What was explored is printed at the end of the run, also when the tests ran in several processes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.interleavings.explorer import Report


@pytest.fixture
def explored(record_property: Callable[[str, object], None]) -> Callable[[Report], Report]:
    """Note a report for the summary, and give it back."""

    def note(report: Report) -> Report:
        print(report.line())
        record_property("schedules explored", str(report.schedules))
        record_property("states explored", str(report.states))
        return report

    return note
