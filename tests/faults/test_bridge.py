"""Proves that killing the gateway behind a broker, and restarting the broker, loses nothing that a device was told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.bridge import hunt
from tests.support.brokers import Kind


@pytest.mark.parametrize("kind", ["mosquitto"])
async def test_every_accepted_signal_is_applied_once_and_every_identified_one_is_answered(
    kind: Kind, tmp_path: Path
) -> None:
    """The long form, 10,000 signals and 20 kills, is a command of its own: `python -m tests.faults.bridge`."""
    found = await hunt(tmp_path, kind=kind, signals=60, devices=8, kills=2, restarts=1, seed=11)
    assert found.good, "\n".join(found.lines())
    assert found.restarts == 1
    assert found.report.told >= 30
