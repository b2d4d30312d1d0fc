"""Proves the races of three actors: every schedule with at most three preemptions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.interleavings.explorer import Explorer, Scenario
from tests.interleavings.scenarios import TRIPLES


@pytest.mark.parametrize("build", TRIPLES.values(), ids=TRIPLES)
def test_schedules_of_three_keep_every_invariant(build: Callable[..., Scenario]) -> None:
    report = Explorer(build(), preemptions=3).explore()
    print(report.line())
    assert report.states > 1_000
