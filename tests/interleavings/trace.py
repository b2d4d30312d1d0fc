"""Prints schedules step by step: `python -m tests.interleavings.trace [RACE …]` shows one a race, in Markdown."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime

import msgspec

from engine.store.base import Record
from tests.interleavings.explorer import Action, Explorer, Scenario, Taken
from tests.interleavings.ledger import Told
from tests.interleavings.machine import Answer, Request
from tests.interleavings.programs import run_id
from tests.interleavings.scenarios import TRACES


class Words:
    """Short words for ids, in the order in which they are met: `run w` and `wait 1` for 26 characters each."""

    def __init__(self, known: dict[str, str]) -> None:
        self._known = dict(known)
        self._waits = 0

    def key(self, text: str) -> str:
        parts = []
        for part in text.split("/"):
            if len(part) == 26 and part.isalnum() and part not in self._known:
                self._waits += 1
                self._known[part] = f"wait{self._waits}"
            parts.append(self._known.get(part, part.lstrip("0") or "0" if part.isdigit() else part))
        return "/".join(parts)


def _value(data: bytes) -> str:
    if not data.startswith(b"{"):
        return "an index record"
    value = msgspec.json.decode(data)
    kind = str(value.get("type"))
    shown = [str(value[name]) for name in ("why", "status", "state") if value.get(name)]
    if isinstance(value.get("payload"), dict):
        shown.append(f"signal {value['payload'].get('n', '')}")
    if kind == "device" and not value.get("secrets"):
        shown = ["revoked"]
    if "takes" in value:
        shown.append(f"takes slot {value['takes']}")
    return f"{kind} ({', '.join(shown)})" if shown else kind


def _result(request: Request, answer: Answer) -> str:
    match answer:
        case Record() if request.operation == "create":
            return "stored" if answer.value == request.value else f"there is {_value(answer.value)}"
        case Record():
            number = answer.key.rsplit("/", 1)[1].lstrip("0")
            return f"{number}: {_value(answer.value)}" if number.isdigit() else _value(answer.value)
        case list():
            return ", ".join(_value(each.value) for each in answer) or "nothing"
        case datetime():
            return f"{answer:%H:%M:%S}"
        case None if request.operation in ("get", "last"):
            return "nothing"
        case _:
            return ""


def rows(scenario: Scenario, taken: Sequence[Taken], words: Words) -> list[tuple[str, ...]]:
    """Give one row an action: number, actor, operation, key, result, and what the actor said."""
    found: list[tuple[str, ...]] = []
    said: dict[int, int] = {}
    for number, each in enumerate(taken, 1):
        at, request = each.action.player, each.request
        name = scenario.players[at].name if at >= 0 else ""
        if each.action.kind == "clock":
            found.append((str(number), "", "clock", "", f"{scenario.now(each.state):%H:%M:%S}"))
            continue
        if each.action.kind == "kill":
            found.append((str(number), name, "dies", "", ""))
            continue
        result = "" if request is None else _result(request, each.answer)
        if each.action.kind == "lose":
            result += ", and the answer is lost"
        told = [each for each in each.state.nodes[at].said if isinstance(each, Told)]
        for answer in told[said.get(at, 0) :]:
            state = answer.state or type(answer.answer).__name__
            result += f"; **{name} is told: {state}**"
        said[at] = len(told)
        operation, key = ("", "") if request is None else (request.operation, words.key(request.key))
        if request is not None and request.operation == "create" and request.value:
            operation = f"create {_value(request.value)}"
        found.append((str(number), name, operation, f"`{key}`" if key else "", result))
    return found


def markdown(table: Sequence[Sequence[str]]) -> str:
    """Write rows as a Markdown table."""
    head = ["| # | actor | operation | key | result |", "|---|---|---|---|---|"]
    return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in table)])


def trace(scenario: Scenario, schedule: Sequence[Action]) -> str:
    """Write one schedule of a scenario as a Markdown table."""
    words = Words({run_id(name): f"run-{name}" for name in "vwx"})
    return markdown(rows(scenario, list(Explorer(scenario).replay(schedule)), words))


def schedule_of(scenario: Scenario, text: str) -> list[Action]:
    """Read a schedule from its shorthand, `W*7 S*1 †W ?S clock`; a player without a number goes on to its end."""
    names = [player.name for player in scenario.players]
    explorer, state = Explorer(scenario), scenario.initial()
    found: list[Action] = []
    for word in text.split():
        if word == "clock":
            actions = [Action("clock")]
        elif word[0] in "†?":
            actions = [Action({"†": "kill", "?": "lose"}[word[0]], names.index(word[1:]))]
        else:
            name, _, count = word.partition("*")
            actions = [Action("step", names.index(name))] * int(count or 10_000)
        for action in actions:
            if action.kind != "clock" and not state.nodes[action.player].live:
                break
            found.append(action)
            state = explorer.apply(state, action).state
    return found


def shown(race: str) -> str:
    """Write a race's schedule as the protocol's page shows it."""
    build, text = TRACES[race]
    scenario = build()
    about = (build.__doc__ or "").strip()
    return f"#### Race {race}: {about}\n\nSchedule: `{text}`\n\n{trace(scenario, schedule_of(scenario, text))}\n"


def main() -> None:
    """Print the traces that are asked for, or all."""
    unknown = [race for race in sys.argv[1:] if race not in TRACES]
    if unknown:
        sys.exit(f"there is no race {unknown[0]}; there are {', '.join(TRACES)}")
    for race in sys.argv[1:] or TRACES:
        print(shown(race))


if __name__ == "__main__":
    main()
