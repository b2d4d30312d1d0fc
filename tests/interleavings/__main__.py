"""Explores every scenario to its end, the long ones too: `python -m tests.interleavings [SCENARIO …]`; some minutes."""

from __future__ import annotations

import sys

from tests.interleavings.explorer import Explorer
from tests.interleavings.scenarios import LONG, PAIRS, TRIPLES


def main() -> None:
    """Print a line for each scenario, and the sum."""
    wanted = sys.argv[1:]
    bounds = {**dict.fromkeys(PAIRS), **dict.fromkeys(LONG), **dict.fromkeys(TRIPLES, 3)}
    unknown = [name for name in wanted if name not in bounds]
    if unknown:
        sys.exit(f"there is no scenario {unknown[0]}; there are {', '.join(bounds)}")
    states = 0
    for name in wanted or bounds:
        report = Explorer({**PAIRS, **LONG, **TRIPLES}[name](), preemptions=bounds[name]).explore()
        print(report.line(), flush=True)
        states += report.states
    print(f"{states:,} distinct states, no violation")


if __name__ == "__main__":
    main()
