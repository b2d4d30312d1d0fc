"""Proves the races of two actors: every schedule, with a death or a lost answer at each operation."""

from __future__ import annotations

import pytest

from tests.interleavings.explorer import Explored, Explorer
from tests.interleavings.scenarios import LONG, PAIRS, Build


@pytest.mark.parametrize("build", PAIRS.values(), ids=PAIRS)
def test_every_schedule_of_two_keeps_every_invariant(build: Build, explored: Explored) -> None:
    report = explored(Explorer(build()).explore())
    assert report.states > 100


@pytest.mark.parametrize("build", LONG.values(), ids=LONG)
def test_schedules_of_two_long_stories_keep_every_invariant(build: Build, explored: Explored) -> None:
    report = explored(Explorer(build(), preemptions=2).explore())
    assert report.states > 1_000
