"""Runs that come and go: early signals, signals in time, time-outs, repeats, with gc; and what is left of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from engine.results import Taken
from tests.support.bench import Bench

WORKFLOW = """
name: door
inputs: { type: object }
jobs:
  - name: main
    steps:
      - name: look
        allowFailure: true
        task: { type: wait_for_signal, key: verdict, acceptEarly: 30, timeout: 60 }
      - name: ask
        dependsOn: [ { step: look, condition: { type: completed } } ]
        allowFailure: true
        task: { type: wait_for_signal, timeout: 30 }
"""


@dataclass(slots=True)
class Counted:
    """How many records of each kind a store holds, after so many runs."""

    runs: int
    total: int
    kinds: Counter[str] = field(default_factory=Counter)


async def one_round(one: Bench, turn: int) -> None:
    """Let one run come and go, in one of four ways."""
    if turn % 2:
        await one.signal("door", "verdict", {"turn": turn}, signal_id=f"s{turn}")
    run = await one.start("door")
    if turn % 4 == 0:
        await one.signal("door", "verdict", {"turn": turn}, signal_id=f"s{turn}")
    if turn % 4 == 1:
        again = await one.signal("door", "verdict", {"turn": turn}, signal_id=f"s{turn}")
        assert isinstance(again, Taken)
        assert again.duplicate
    for seconds in (61, 31, 0):
        await one.after(seconds)
    assert await one.status(run) == "succeeded", await one.view(run)


async def churn(one: Bench, rounds: int, *, first: int = 0, keep_seconds: float = 3_600) -> Counted:
    """Let `rounds` runs come and go, removing what ended longer than `keep_seconds` ago now and then."""
    for turn in range(first, first + rounds):
        await one_round(one, turn)
        if turn % 25 == 24:
            await one.engine.gc(keep_seconds, by="test")
    keys = await one.keys()
    return Counted(first + rounds, len(keys), Counter(key.split("/", 1)[0] for key in keys))
