"""Deciding a signal: step by step, or at one moment where the store can; and who hears of it when."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from engine.actor import Actor, Owed
from engine.errors import WaysideError
from engine.events import EngineEvent, Observer, TwiceTold
from engine.names import Key
from engine.results import Answer
from engine.store.base import AtOnce, Store
from engine.turns import Turns

Operation = Callable[[Actor], Coroutine[Any, Any, Answer]]
Told = Callable[[Answer], None]


@dataclass(slots=True)
class _Events:
    """Keeps what happens until it is known to be durable."""

    heard: list[EngineEvent] = field(default_factory=list)

    def note(self, event: EngineEvent) -> None:
        self.heard.append(event)


class Deciding:
    """Decides signals over one store. `actor` makes the hands of one; `goes_on` hears which runs may go on."""

    def __init__(
        self, store: Store, actor: Callable[[], Actor], observer: Observer, goes_on: Callable[[list[Owed]], None]
    ) -> None:
        self._at_once = store if isinstance(store, AtOnce) else None
        self._actor = actor
        self._observer = observer
        self._twice_told = observer if isinstance(observer, TwiceTold) else None
        self._goes_on = goes_on
        self._turns = Turns()

    async def decide(self, operation: Operation, key: Key | None, told: Told | None) -> Answer:
        """Do an operation on `key`, if it has one, and give its answer; `told` hears that first."""
        if self._at_once is not None:
            return await self._decide_at_once(self._at_once, operation, told)
        if key is None:
            return await self._decide_in_steps(operation, told)
        async with self._turns.of(key):
            return await self._decide_in_steps(operation, told)

    async def _decide_in_steps(self, operation: Operation, told: Told | None) -> Answer:
        actor = self._actor()
        try:
            answer = await operation(actor)
        finally:
            self._goes_on(actor.owed)
        if told is not None:
            told(answer)
        return answer

    async def _decide_at_once(self, store: AtOnce, operation: Operation, told: Told | None) -> Answer:
        """Decide within a moment of the store; what happened in it is told of, and goes on, once it is durable."""
        actor, events = self._actor(), _Events()
        actor.observer = events

        async def decide(view: Store) -> Answer | WaysideError:
            actor.store = view
            answer: Answer | WaysideError
            try:
                answer = await operation(actor)
            except WaysideError as fault:
                answer = fault
            if self._twice_told is not None:
                for event in events.heard:
                    self._twice_told.note_within(event)
            if told is not None and not isinstance(answer, WaysideError):
                told(answer)
            return answer

        try:
            answer = await store.at_once(decide)
            note = self._observer.note if self._twice_told is None else self._twice_told.note_after
            for event in events.heard:
                note(event)
        finally:
            self._goes_on(actor.owed)
        if isinstance(answer, WaysideError):
            raise answer
        return answer
