"""The protocol's races between two processes over one store, in orders that are chosen, and what must come of them."""

from __future__ import annotations

import sys
from pathlib import Path
from time import monotonic

import pytest

from tests.instances.orders import ANSWERED_IS_STORED, Stage, Violated, run_race, stage
from tests.instances.races import RACES, SLOW
from tests.instances.stores import STORES


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_two_processes_race_in_chosen_orders(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each tenth order or so; `python -m tests.instances --orders` tries all of them, over every store.

    In the end both are broken on purpose, and what is judged here is seen to fail.
    """
    began = monotonic()
    async with STORES[kind](tmp_path) as url, stage(tmp_path, url, workflows=100) as on:
        for race in RACES:
            if race.name not in SLOW:
                await run_race(on, race, stride=10)
            elif kind == "sqlite":
                await run_race(on, race, stride=25)
        if kind == "sqlite":
            await broken_ones_are_found_out(on)
    with capsys.disabled():
        sys.stdout.write(
            f"\n  {kind}: {on.tried.total()} orders of {len(on.tried)} races, {monotonic() - began:.1f} s\n"
        )


async def broken_ones_are_found_out(on: Stage) -> None:
    """An order that goes well until both processes answer by what they attempted, and not by what is stored.

    `python -m tests.instances --wrong` breaks them in other ways, too.
    """
    (race,) = [race for race in RACES if race.name == "3, two early signals"]
    assert await run_race(on, race, begin=2, stride=100) == 2
    await on.goes_wrong("V6")
    with pytest.raises(Violated, match=r"'state': 'held'.* is nowhere") as caught:
        await run_race(on, race, begin=2, stride=100)
    assert caught.value.invariant == ANSWERED_IS_STORED
