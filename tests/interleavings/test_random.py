"""Proves longer stories: six actors, schedules drawn from seeds, with deaths, lost answers and time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.interleavings.explorer import Explorer, Scenario
from tests.interleavings.scenarios import CROWDS

WALKS = 40


@pytest.mark.parametrize("build", CROWDS.values(), ids=CROWDS)
def test_schedules_drawn_from_seeds_keep_every_invariant(build: Callable[..., Scenario]) -> None:
    explorer = Explorer(build())
    for seed in range(WALKS):
        explorer.walk(seed, kill=0.01, lose=0.02, clock=0.01)
    print(explorer.report.line())
    assert explorer.report.schedules == WALKS
    assert explorer.report.states > 1_000
