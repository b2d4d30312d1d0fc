"""Names that nobody else has drawn, in a process that was forked too."""

from __future__ import annotations

import os

import pytest

from engine.clock import SystemSource

DRAWN = 250


def test_names_drawn_from_stock_are_all_different() -> None:
    source = SystemSource()
    assert len({source.nonce() for _ in range(DRAWN)} | {source.sortable_id() for _ in range(DRAWN)}) == 2 * DRAWN


# The child does nothing but draw: threads of the runner, of which Python 3.12 warns, are no harm to it.
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_draws_from_a_stock_of_its_own() -> None:
    source = SystemSource()
    source.nonce()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, " ".join(source.nonce() for _ in range(50)).encode())
        finally:
            # Whatever happens, the child runs no more of the tests.
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as heard:
        theirs = heard.read().split()
    os.waitpid(child, 0)
    assert len(theirs) == 50
    assert not set(theirs) & {source.nonce() for _ in range(50)}
