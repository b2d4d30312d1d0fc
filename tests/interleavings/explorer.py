"""The explorer: every schedule of a scenario's players, with kills, lost answers and time, each distinct state once.

States are explored level by level (a level is a number of actions), so that a violation is found by a shortest
schedule. Two schedules that lead to the same state are followed from there as one, and counted as two.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from tests.interleavings.aftermath import Aftermath
from tests.interleavings.invariants import Violation, check, fault_of, stuck
from tests.interleavings.machine import Answer, Contents, Machine, Node, Player, Request

MAX_ACTIONS = 2_000


@dataclass(frozen=True, slots=True)
class State:
    """All that the future depends on: the store, the time, where each player stands, and what may still go wrong."""

    contents: Contents
    moment: int
    nodes: tuple[Node, ...]
    kills: int
    losses: int
    last: int = -1
    preemptions: int = 0

    def key(self) -> tuple[Any, ...]:
        return (self.contents.mark, self.moment, self.nodes, self.kills, self.losses, self.last)


@dataclass(frozen=True, slots=True)
class Action:
    """What the schedule does next: a player's step or death, a step whose answer is lost, or the clock's next move."""

    kind: str  # step, kill, lose, clock
    player: int = -1


@dataclass(frozen=True, slots=True)
class Taken:
    """An action and what came of it, for a trace."""

    action: Action
    request: Request | None
    answer: Answer
    state: State


@dataclass(slots=True)
class Report:
    """What was explored."""

    name: str
    schedules: int = 0
    states: int = 0
    ends: int = 0
    aftermaths: int = 0
    longest: int = 0

    def line(self) -> str:
        schedules = f"{self.schedules:,}" if self.schedules < 10**12 else f"{self.schedules:.1e}"
        return (
            f"{self.name:<44} {schedules:>18} schedules {self.states:>9,} states {self.ends:>7,} ends"
            f" {self.aftermaths:>6,} aftermaths, longest {self.longest}"
        )


Explored: TypeAlias = Callable[[Report], Report]


class ViolationFound(AssertionError):
    """An invariant does not hold; `schedule` leads there from the scenario's start."""

    def __init__(self, scenario: Scenario, violation: Violation, schedule: list[Action]) -> None:
        self.violation = violation
        self.schedule = schedule
        self.scenario = scenario
        super().__init__(f"{scenario.name}: {violation}; {len(schedule)} actions: {shorthand(scenario, schedule)}")


def shorthand(scenario: Scenario, schedule: Sequence[Action]) -> str:
    """Write a schedule in a line: a player's name and how many steps it takes, `†` a death, `?` a lost answer."""
    parts: list[str] = []
    count = 0
    for at, action in enumerate(schedule):
        name = scenario.players[action.player].name if action.player >= 0 else ""
        if action.kind == "step":
            count += 1
            if at + 1 == len(schedule) or schedule[at + 1] != action:
                parts.append(f"{name}*{count}")
                count = 0
        else:
            parts.append({"kill": f"†{name}", "lose": f"?{name}", "clock": "clock"}[action.kind])
    return " ".join(parts)


@dataclass(slots=True)
class Scenario:
    """Players over a store: `contents` is what it holds at first, `moments` the seconds that the clock stops at."""

    name: str
    machine: Machine
    contents: Contents
    players: list[Player]
    moments: tuple[float, ...] = (0.0,)
    kills: int = 1
    losses: int = 0
    title: str = ""
    said: tuple[Any, ...] = ()
    aftermath: bool = True
    # Every player lets go on what it gave a reason to: no run may need a sweep when all have ended in peace.
    prompt: bool = False

    def initial(self) -> State:
        nodes = tuple(player.root for player in self.players)
        return State(self.contents, 0, nodes, self.kills, self.losses)

    def now(self, state: State) -> datetime:
        return self.machine.start + timedelta(seconds=self.moments[state.moment])

    def said_in(self, state: State) -> tuple[Any, ...]:
        return self.said + tuple(said for node in state.nodes for said in node.said)


@dataclass
class Explorer:
    """Explores one scenario. `preemptions` bounds how often a player that could go on is set aside for another."""

    scenario: Scenario
    preemptions: int | None = None
    report: Report = field(init=False)
    _parents: dict[tuple[Any, ...], tuple[tuple[Any, ...] | None, Action | None]] = field(default_factory=dict)
    _checked: set[tuple[Any, ...]] = field(default_factory=set)
    _seen: set[tuple[Any, ...]] = field(default_factory=set)
    _aftermath: Aftermath = field(init=False)

    def __post_init__(self) -> None:
        self.report = Report(self.scenario.name)
        self._aftermath = Aftermath(self.scenario.machine)

    # -- every schedule ----------------------------------------------------------------------------------------

    def explore(self) -> Report:
        """Go through all of them; raises `ViolationFound` with a shortest schedule to the first violation."""
        start = self.scenario.initial()
        level: dict[tuple[Any, ...], tuple[State, int]] = {start.key(): (start, 1)}
        self._parents[start.key()] = (None, None)
        while level:
            following: dict[tuple[Any, ...], tuple[State, int]] = {}
            for key, (state, paths) in level.items():
                actions = self._enabled(state)
                if not actions:
                    self.report.schedules += paths
                for action in actions:
                    self._follow(following, key, state, action, paths)
            self.report.longest += bool(following)
            level = following
        return self.report

    def _follow(
        self,
        following: dict[tuple[Any, ...], tuple[State, int]],
        parent: tuple[Any, ...],
        state: State,
        action: Action,
        paths: int,
    ) -> None:
        after = self.apply(state, action).state
        key = after.key()
        known = following.get(key)
        if known is None:
            self._parents[key] = (parent, action)
            following[key] = (after, paths)
            if (violation := self._look(after)) is not None:
                raise ViolationFound(self.scenario, violation, self._schedule(key))
        else:
            best = after if after.preemptions < known[0].preemptions else known[0]
            following[key] = (best, known[1] + paths)

    def _enabled(self, state: State) -> list[Action]:
        live = [at for at, node in enumerate(state.nodes) if node.live]
        if not live:
            return []
        actions = []
        bounded = self.preemptions is not None and state.preemptions >= self.preemptions
        held = state.last if bounded and state.last in live else None
        for at in live:
            node, player = state.nodes[at], self.scenario.players[at]
            if held is None or held == at:
                actions.append(Action("step", at))
                if state.losses and player.may_lose and node.request and node.request.operation == "create":
                    actions.append(Action("lose", at))
            if state.kills and player.mortal and _worth_killing(node):
                actions.append(Action("kill", at))
        if state.moment + 1 < len(self.scenario.moments):
            actions.append(Action("clock"))
        return actions

    def apply(self, state: State, action: Action) -> Taken:
        """Do one action."""
        match action.kind:
            case "clock":
                return Taken(action, None, None, _with(state, moment=state.moment + 1))
            case "kill":
                node = state.nodes[action.player]
                dead = self.scenario.players[action.player].grave(node.said)
                after = _with(state, nodes=_put(state.nodes, action.player, dead), kills=state.kills - 1)
                return Taken(action, node.request, None, after)
            case _:
                return self._step(state, action)

    def _step(self, state: State, action: Action) -> Taken:
        scenario, at = self.scenario, action.player
        player, node, now = scenario.players[at], state.nodes[at], scenario.moments[state.moment]
        if not node.started:
            node = player.advance(node, "start", None, now)
        request, contents = node.request, state.contents
        if request is None:
            child, answer = node, None
        elif scenario.machine.stale(request, node, now):
            child, answer = player.advance(node, "lost", None, now), None
        else:
            answer, contents = scenario.machine.perform(contents, request, scenario.now(state))
            kind = "lost" if action.kind == "lose" else "answer"
            child = player.advance(node, kind, answer, now)
        preempted = state.last not in (-1, at) and state.nodes[state.last].live
        after = State(
            contents,
            state.moment,
            _put(state.nodes, at, child),
            state.kills,
            state.losses - (action.kind == "lose"),
            at if self.preemptions is not None else -1,
            state.preemptions + (preempted if self.preemptions is not None else 0),
        )
        return Taken(action, request, answer, after)

    # -- looking -----------------------------------------------------------------------------------------------

    def _look(self, state: State) -> Violation | None:
        """Check everything that must hold in a state, and what the sweep makes of it when nobody acts any more."""
        self._seen.add((state.contents.mark, state.moment, state.nodes))
        self.report.states = len(self._seen)
        violation = next((found for node in state.nodes if (found := fault_of(node)) is not None), None)
        said = self.scenario.said_in(state)
        seen = (state.contents.mark, state.moment, said)
        if violation is None and seen not in self._checked:
            self._checked.add(seen)
            violation = check(state.contents.records, state.contents.graves, said)
        if violation is None and not any(node.live for node in state.nodes):
            self.report.ends += 1
            if self.scenario.prompt and all(node.ended for node in state.nodes):
                violation = next((Violation("I6", what) for what in stuck(state.contents.records, driven=True)), None)
            if violation is None and self.scenario.aftermath:
                violation = self._aftermath.check(state.contents, self.scenario.now(state), said)
                self.report.aftermaths = self._aftermath.count
        return violation

    def _schedule(self, key: tuple[Any, ...]) -> list[Action]:
        actions = []
        at: tuple[Any, ...] | None = key
        while at is not None:
            at, action = self._parents[at]
            if action is not None:
                actions.append(action)
        return actions[::-1]

    # -- one schedule ------------------------------------------------------------------------------------------

    def replay(self, schedule: Sequence[Action]) -> Iterator[Taken]:
        """Run one schedule, action by action."""
        state = self.scenario.initial()
        for action in schedule:
            taken = self.apply(state, action)
            state = taken.state
            yield taken

    def walk(self, seed: int, *, kill: float = 0.01, lose: float = 0.02, clock: float = 0.01) -> list[Action]:
        """Run one schedule drawn from `seed`, checked after every action, to its end."""
        chance = random.Random(seed)
        state = self.scenario.initial()
        schedule: list[Action] = []
        while actions := self._enabled(state):
            steps = [action for action in actions if action.kind == "step"]
            odd = [action for action in actions if action.kind != "step"]
            weights = {"kill": kill, "lose": lose, "clock": clock}
            chosen = next((action for action in odd if chance.random() < weights[action.kind]), None)
            if chosen is None:
                # Bursts: a player goes on where it was about as often as it is set aside.
                again = [action for action in steps if schedule and action.player == schedule[-1].player]
                chosen = again[0] if again and chance.random() < 0.5 else chance.choice(steps)
            schedule.append(chosen)
            state = self.apply(state, chosen).state
            assert len(schedule) < MAX_ACTIONS
            if (violation := self._look(state)) is not None:
                raise ViolationFound(self.scenario, violation, schedule)
        self.report.schedules += 1
        self.report.longest = max(self.report.longest, len(schedule))
        return schedule


def _worth_killing(node: Node) -> bool:
    """Tell whether a death here differs from an earlier one: the last step wrote, or said something.

    The dead have no influence: a death between two reads is a death after the last write, whoever acts in between.
    """
    before = node.parent
    if before is None or before.request is None:
        return False
    return before.request.operation in ("create", "delete") or before.said != node.said


def _put(nodes: tuple[Node, ...], at: int, node: Node) -> tuple[Node, ...]:
    return (*nodes[:at], node, *nodes[at + 1 :])


def _with(state: State, **changes: Any) -> State:
    values = {name: getattr(state, name) for name in State.__dataclass_fields__}
    return State(**{**values, **changes})
