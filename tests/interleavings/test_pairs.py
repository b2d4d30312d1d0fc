"""Proves the races of two actors: every schedule, with a death or a lost answer at each operation."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.interleavings.explorer import Explorer, Scenario
from tests.interleavings.scenarios import PAIRS


@pytest.mark.parametrize("build", PAIRS.values(), ids=PAIRS)
def test_every_schedule_of_two_keeps_every_invariant(build: Callable[..., Scenario]) -> None:
    report = Explorer(build()).explore()
    print(report.line())
    assert report.states > 100
