"""What scenarios are made of: definitions, a store as it is before, and the players that meet over it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.interleavings.explorer import Scenario
from tests.interleavings.machine import Contents, Machine, Player, Program
from tests.interleavings.programs import KNOWN_ONLY, workflow

START = datetime(2026, 1, 1, tzinfo=UTC)


def prepared(machine: Machine, *stages: tuple[float, Program]) -> tuple[Contents, tuple[Any, ...]]:
    """Let programs run alone, one after another, each at its second; give what the store holds and what was said."""
    contents, said = machine.empty(), ()
    for number, (at, program) in enumerate(stages):
        player = Player(f"before{number}", program)
        node = player.advance(player.root, "start", None, at)
        while not node.ended:
            assert node.request is not None
            answer, contents = machine.perform(contents, node.request, START + timedelta(seconds=at))
            node = player.advance(node, "answer", answer, at)
        assert node.fault is None, node.fault
        said += node.said
    return contents, said


def scenario(
    name: str,
    players: dict[str, Program],
    *,
    before: Sequence[tuple[float, Program]] = (),
    moments: tuple[float, ...] = (0.0,),
    kills: int = 1,
    losses: int = 0,
    prompt: bool = False,
) -> Scenario:
    """Put a scenario together. `before` happens first, alone; the clock then stands at the first of `moments`."""
    machine = Machine(START)
    contents, said = prepared(machine, *before)
    made = [Player(each, program, may_lose=losses > 0) for each, program in players.items()]
    return Scenario(name, machine, contents, made, moments, kills, losses, said=said, prompt=prompt)


PLAIN = workflow()
FIRM = workflow(acceptEarly=None)
LATEST = workflow(earlyPolicy="latest")
REPLACE = workflow(onHeld="replace")
BRIEF = workflow(timeout=5)
KNOWN = workflow(schema=KNOWN_ONLY)
