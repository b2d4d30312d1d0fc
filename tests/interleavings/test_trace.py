"""Proves that a schedule can be shown step by step, and that those of the protocol's page still run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interleavings.explorer import Explorer, shorthand
from tests.interleavings.ledger import Told
from tests.interleavings.scenarios import TRACES
from tests.interleavings.scenarios.arrivals import signal_and_wait
from tests.interleavings.trace import schedule_of, shown, trace


def test_a_trace_shows_each_operation_its_result_and_what_the_sender_is_told() -> None:
    scenario = signal_and_wait()
    schedule = schedule_of(scenario, "S*6 W*11 S*9 W S")
    shown = trace(scenario, schedule).splitlines()
    assert len(shown) == len(schedule) + 2
    assert any("create pending (signal s)" in line and "stored" in line for line in shown)
    assert sum("**S is told: " in line for line in shown) == 1
    assert schedule_of(signal_and_wait(), shorthand(scenario, schedule)) == schedule


@pytest.mark.parametrize("race", TRACES)
def test_the_schedule_of_each_race_runs_to_the_end_of_all(race: str) -> None:
    build, text = TRACES[race]
    scenario = build()
    *_, last = Explorer(scenario).replay(schedule_of(scenario, text))
    assert all(node.ended for node in last.state.nodes)
    assert all(isinstance(each.answer, object) for each in scenario.said_in(last.state) if isinstance(each, Told))


@pytest.mark.parametrize("race", TRACES)
def test_the_page_of_the_protocol_shows_what_the_command_prints(race: str) -> None:
    page = Path("engine/PROTOCOL.md").read_text()
    assert shown(race).strip() in page, f"python -m tests.interleavings.trace {race} prints something else"
