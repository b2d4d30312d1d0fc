"""As much of the engine as the doors use; see `engine.service`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from engine.results import Answer, SignalRequest


class Addressed(Protocol):
    """Where a wait lives."""

    @property
    def workflow(self) -> str: ...

    @property
    def key(self) -> str | None: ...


class Triggered(Protocol):
    """As much of a definition as is asked here."""

    @property
    def trigger_topic(self) -> bool: ...


class Definitions(Protocol):
    """The definitions in force."""

    def get(self, name: str) -> Triggered | None: ...


class Engine(Protocol):
    """As much of the engine as is used here; see `engine.service`."""

    @property
    def catalog(self) -> Definitions: ...

    async def signal_key(
        self, workflow: str, key: str, request: SignalRequest, *, told: Callable[[Answer], None] | None = None
    ) -> Answer: ...

    async def signal_wait(
        self, wait: str, request: SignalRequest, *, told: Callable[[Answer], None] | None = None
    ) -> Answer: ...

    async def address_of(self, wait: str, request: SignalRequest | None = None) -> Addressed | None: ...

    async def start_run(
        self, workflow: str, inputs: Mapping[str, object], *, by: str, run: str | None = None
    ) -> str: ...

    async def waits(self, *, workflow: str | None = None, key: str | None = None) -> Mapping[str, object]: ...
