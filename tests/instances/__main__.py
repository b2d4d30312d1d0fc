"""Two and three gateways over every store, as on hosts of their own, with clocks that are right or an hour off.

    python -m tests.instances [--stores sqlite postgres nats s3 gs]
    python -m tests.instances --orders [--stride 1]
    python -m tests.instances --wrong

On hosts of their own a dead gateway's runs are taken over after 30 s of silence: each round lasts a minute. `--orders`
has two processes race in every order in which one of them pauses once; `--wrong` does so with both broken on purpose,
in ways that the judges of the races have to find.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path
from time import monotonic

from tests.instances import story
from tests.instances.orders import Violated, run_race, stage
from tests.instances.races import RACES
from tests.instances.stores import STORES
from tests.instances.wrong import WRONG

HOUR = 3_600
ROUNDS = [(0, 0), (HOUR, -HOUR), (-HOUR, 0), (0, 0, 0), (0, HOUR, -HOUR)]


async def one(kind: str, shifts: tuple[int, ...], *, apart: bool) -> None:
    """Tell the whole story once."""
    began = monotonic()
    with tempfile.TemporaryDirectory(prefix="wayside-instances-") as directory:
        async with STORES[kind](Path(directory)) as url:
            hosts = [f"host {at}" for at in range(len(shifts))] if apart else None
            async with story.together(Path(directory), url, shifts, hosts=hosts) as all_:
                await story.whole_story(all_)
    hours = ", ".join(f"{shift // HOUR:+d} h" for shift in shifts)
    where = "hosts of their own" if apart else "one host"
    print(f"{kind:<9} {len(shifts)} gateways ({hours}), {where}: {monotonic() - began:5.1f} s, well", flush=True)


async def orders(kind: str, stride: int) -> int:
    """Try every race in every order; tell in how many something was wrong."""
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="wayside-instances-") as directory:
        async with STORES[kind](Path(directory)) as url, stage(Path(directory), url) as on:
            for race in RACES:
                began, found = monotonic(), list[Violated]()
                tried = await run_race(on, race, stride=stride, found=found)
                how = f"{len(found)} WRONG" if found else "well"
                print(f"{kind:<9} race {race.name}: {tried} orders, {monotonic() - began:.1f} s, {how}", flush=True)
                for violated in found:
                    print(f"          {violated}", flush=True)
                wrong += len(found)
            print(f"{kind:<9} {on.tried.total()} orders of {len(on.tried)} races, {wrong} wrong", flush=True)
    return wrong


async def broken(kind: str) -> int:
    """Break both processes on purpose, in each way anew; tell in how many nobody noticed."""
    unnoticed = 0
    for (how, number), invariants in WRONG.items():
        with tempfile.TemporaryDirectory(prefix="wayside-instances-") as directory:
            async with STORES[kind](Path(directory)) as url, stage(Path(directory), url, workflows=200) as on:
                race = next(race for race in RACES if race.name.startswith(number))
                await on.goes_wrong(how)
                found: list[Violated] = []
                tried = await run_race(on, race, found=found)
        caught = {violated.invariant for violated in found} & invariants
        unnoticed += not caught
        named = " ".join(sorted(caught)) or f"NOT NOTICED: {found[:1]}"
        print(f"{kind:<9} {how}, race {race.name}: {len(found)} of {tried} orders: {named}", flush=True)
    return unnoticed


async def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stores", nargs="+", choices=list(STORES), default=list(STORES))
    parser.add_argument("--rounds", type=int, default=len(ROUNDS), help="how many of the five (the last ones)")
    parser.add_argument("--orders", action="store_true", help="races in chosen orders in place of the gateways")
    parser.add_argument("--wrong", action="store_true", help="races of two that are broken on purpose")
    parser.add_argument("--stride", type=int, default=1, help="try each so-manieth order")
    chosen = parser.parse_args()
    wrong = 0
    for kind in chosen.stores:
        if chosen.orders or chosen.wrong:
            wrong += await (broken(kind) if chosen.wrong else orders(kind, chosen.stride))
            continue
        for shifts in ROUNDS[-chosen.rounds :]:
            # Several hosts cannot share a file.
            await one(kind, shifts, apart=kind != "sqlite")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
