"""Proves the races of three actors: every schedule with at most three preemptions."""

from __future__ import annotations

import pytest

from tests.interleavings.explorer import Explored, Explorer
from tests.interleavings.scenarios import TRIPLES, Build


@pytest.mark.parametrize("build", TRIPLES.values(), ids=TRIPLES)
def test_schedules_of_three_keep_every_invariant(build: Build, explored: Explored) -> None:
    report = explored(Explorer(build(), preemptions=3).explore())
    assert report.states > 1_000
