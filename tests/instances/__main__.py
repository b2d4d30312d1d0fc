"""Two and three gateways over every store, as on hosts of their own, with clocks that are right or an hour off.

    python -m tests.instances [--stores sqlite postgres nats s3 gs]
    python -m tests.instances --orders [--stride 1]

On hosts of their own a dead gateway's runs are taken over after 30 s of silence: each round lasts a minute. `--orders`
has two processes race in every order in which one of them pauses once.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path
from time import monotonic

from tests.instances import story
from tests.instances.orders import run_race, stage
from tests.instances.races import RACES
from tests.instances.stores import STORES

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


async def orders(kind: str, stride: int) -> None:
    """Try every race in every order."""
    with tempfile.TemporaryDirectory(prefix="wayside-instances-") as directory:
        async with STORES[kind](Path(directory)) as url, stage(Path(directory), url) as on:
            for race in RACES:
                began = monotonic()
                tried = await run_race(on, race, stride=stride)
                print(f"{kind:<9} race {race.name}: {tried} orders, {monotonic() - began:.1f} s, well", flush=True)


async def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stores", nargs="+", choices=list(STORES), default=list(STORES))
    parser.add_argument("--rounds", type=int, default=len(ROUNDS), help="how many of the five (the last ones)")
    parser.add_argument("--orders", action="store_true", help="races in chosen orders in place of the gateways")
    parser.add_argument("--stride", type=int, default=1, help="try each so-manieth order")
    chosen = parser.parse_args()
    for kind in chosen.stores:
        if chosen.orders:
            await orders(kind, chosen.stride)
            continue
        for shifts in ROUNDS[-chosen.rounds :]:
            # Several hosts cannot share a file.
            await one(kind, shifts, apart=kind != "sqlite")


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
