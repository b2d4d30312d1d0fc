"""Proves that a gateway killed at random moments, and between commit and PUBACK, loses nothing that it acknowledged."""

from __future__ import annotations

from pathlib import Path

from tests.faults.kill import hunt


async def test_every_acknowledged_signal_is_applied_or_held_and_no_identified_one_twice(tmp_path: Path) -> None:
    """The long form, 200 kills and 50 devices, is a command of its own: `python -m tests.faults.kill`."""
    report = await hunt(tmp_path / "data", kills=10, devices=8, seed=7)
    assert report.good, "\n".join(report.lines())
    assert report.between >= 2
    assert report.told >= 50
    assert report.outcomes >= 0.9 * report.told
