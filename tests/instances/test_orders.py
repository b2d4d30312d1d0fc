"""The protocol's races between two processes over one store, in orders that are chosen, and what must come of them."""

from __future__ import annotations

import sys
from pathlib import Path
from time import monotonic

import pytest

from tests.instances.orders import run_race, stage
from tests.instances.races import RACES, SLOW
from tests.instances.stores import STORES


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_two_processes_race_in_chosen_orders(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each tenth order or so; `python -m tests.instances --orders` tries all of them, over every store."""
    began = monotonic()
    async with STORES[kind](tmp_path) as url, stage(tmp_path, url, workflows=100) as on:
        for race in RACES:
            if race.name not in SLOW:
                await run_race(on, race, stride=10)
            elif kind == "sqlite":
                await run_race(on, race, stride=25)
    with capsys.disabled():
        sys.stdout.write(
            f"\n  {kind}: {on.tried.total()} orders of {len(on.tried)} races, {monotonic() - began:.1f} s\n"
        )
