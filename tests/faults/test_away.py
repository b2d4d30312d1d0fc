"""A store that goes away under a gateway costs no signal: it answers 503 meanwhile, and goes on by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.away import hunt, told


async def test_postgresql_killed_and_restarted_under_a_gateway(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other stores, and with the usual heartbeat: `python -m tests.faults.away`."""
    report, seen = await hunt("postgres", tmp_path, times=1, devices=6, seed=1, WAYSIDE_ENGINE__HEARTBEAT="1")
    with capsys.disabled():
        print("\n" + "\n".join(told("postgres", report, seen)))
    assert report.good
    assert report.told > 12
    assert seen.tally.turned_away.total() >= 4
    assert seen.tally.same.total()
    assert (seen.troubles, seen.unready) == (2, 2)
