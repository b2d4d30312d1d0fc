"""The command line: `wayside`."""

from __future__ import annotations


def main() -> None:
    """Run the command that was typed, and end the process: 0 done, 1 refused or failed, 2 wrong usage."""
    import gc

    # Importing makes many objects and next to no garbage: collecting while it goes on costs a quarter of the time.
    gc.disable()
    from gateway.cli.main import run

    run()
