"""Let runs come and go with gc, and print what a store holds after each thousand of them.

    python -m tests.benchmarks.retention --runs 10000

The records of runs stay what they were; chains of identified signals level off after the day for which they are kept.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

from tests.support.bench import bench
from tests.support.churn import WORKFLOW, churn

_STEP = 1_000


async def measure(runs: int) -> None:
    """Print one line a thousand runs."""
    with tempfile.TemporaryDirectory() as directory:
        async with bench(Path(directory), WORKFLOW) as one:
            for first in range(0, runs, _STEP):
                counted = await churn(one, min(_STEP, runs - first), first=first)
                kinds = ", ".join(f"{name} {number}" for name, number in counted.kinds.most_common())
                print(f"{counted.runs:>7} runs: {counted.total:>6} records ({kinds})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    asyncio.run(measure(parser.parse_args().runs))


if __name__ == "__main__":
    main()
