"""Gateways over one store are one: waits and signals meet, clocks an hour off, one is killed, a revocation binds."""

from __future__ import annotations

import sys
from pathlib import Path
from time import monotonic

import pytest

from tests.instances.stores import STORES
from tests.instances.story import together, whole_story

# By how much the hosts' clocks are off. `python -m tests.instances` has two and three gateways over each of the stores.
HOURS = {"sqlite": (1, -1), "postgres": (0, 1, -1), "nats": (-1, 1), "s3": (1, -1)}


@pytest.mark.parametrize("kind", list(HOURS))
async def test_gateways_over_one_store_are_one(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    began = monotonic()
    shifts = [3_600 * hours for hours in HOURS[kind]]
    async with (
        STORES[kind](tmp_path) as url,
        together(tmp_path, url, shifts, WAYSIDE_ENGINE__SWEEP_INTERVAL="1") as all_,
    ):
        await whole_story(all_)
    with capsys.disabled():
        sys.stdout.write(f"\n  {len(shifts)} gateways over {kind}: {monotonic() - began:.1f} s\n")
