"""What a conversation needs around it: the wire that carries it, and what all conversations of a listener share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from gateway.listener.codec.packets import Connect
from gateway.listener.endings import Endings
from gateway.listener.limits import ListenerLimits
from gateway.listener.port import Application
from gateway.listener.presences import Presences
from gateway.listener.session import Decision
from gateway.listener.sessions import Sessions
from gateway.listener.strangers import Connects


class Wire(Protocol):
    """What carries a conversation."""

    @property
    def address(self) -> str:
        """The peer's numeric IP address."""
        ...

    def write(self, data: bytes) -> None:
        """Send bytes, soon and in order; does nothing when the transport is gone."""
        ...

    def congested(self) -> bool:
        """Say whether the client is behind in reading what it was sent."""
        ...

    def authenticate(self, connect: Connect) -> None:
        """Ask the application, then call `admitted` or `denied`."""
        ...

    def decide(self, decision: Decision) -> None:
        """Ask the application, then call `settle`."""
        ...

    def close(self) -> None:
        """Close the transport when what was written is sent."""
        ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all conversations of a listener share. `monotonic` is in seconds; `fresh_name` draws a client id's end."""

    application: Application
    limits: ListenerLimits
    sessions: Sessions
    endings: Endings
    presences: Presences
    connects: Connects
    monotonic: Callable[[], float]
    fresh_name: Callable[[], str]
