"""Proves longer stories: six actors, schedules drawn from seeds, with deaths, lost answers and time."""

from __future__ import annotations

import pytest

from tests.interleavings.explorer import Explored, Explorer
from tests.interleavings.scenarios import CROWDS, Build

WALKS = 40


@pytest.mark.parametrize("build", CROWDS.values(), ids=CROWDS)
def test_schedules_drawn_from_seeds_keep_every_invariant(build: Build, explored: Explored) -> None:
    explorer = Explorer(build())
    for seed in range(WALKS):
        explorer.walk(seed, kill=0.01, lose=0.02, clock=0.01)
    report = explored(explorer.report)
    assert report.schedules == WALKS
    assert report.states > 1_000
