"""Proves what is acknowledged, carried over to the next connection, and read on when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from gateway.bridge.backlog import Backlog
from gateway.bridge.handling import Handling, Outgoing
from gateway.bridge.heard import Heard
from gateway.bridge.intake import Intake


@dataclass
class Line:
    """As much of a connection as the intake sees."""

    version: int = 5
    session_present: bool = True
    acknowledged: list[int] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    reading: bool = True

    def pause(self) -> None:
        self.reading = False

    def resume(self) -> None:
        self.reading = True

    def send(self, topic: str, _payload: bytes, **_: object) -> None:
        self.sent.append(topic)

    def acknowledge(self, mids: list[int]) -> None:
        self.acknowledged += mids


@dataclass
class Decider:
    """Decides when it is told to, and remembers what it was asked."""

    decided: list[int] = field(default_factory=list)
    gates: dict[int, asyncio.Event] = field(default_factory=dict)

    async def decide(self, heard: Heard, *, is_stale: Callable[[float], bool], **_: object) -> list[Outgoing]:
        if heard.mid in self.gates:
            await self.gates[heard.mid].wait()
        is_stale(0.0)
        self.decided.append(heard.mid)
        return [Outgoing("answer", b"")]


def message(mid: int, *, dup: bool = False, key: str = "k", user: tuple[tuple[str, str], ...] = ()) -> Heard:
    return Heard(f"d/a/signals/w/{key}", b"{}", mid, retain=False, dup=dup, user_properties=user)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Site:
    """An intake, and one connection after the other."""

    def __init__(self, in_flight: int = 10) -> None:
        self.decider = Decider()
        self.intake = Intake(cast("Handling", self.decider), in_flight)
        self.line = Line()

    def attach(self, *, session: bool = True) -> Line:
        self.line = Line(session_present=session)
        self.intake.attach(cast("Any", self.line), Backlog(1.0, 30.0), "nonce")
        return self.line


async def with_one_decided_and_unacknowledged() -> Site:
    """Give a site whose message 2 is decided while message 1, which came first, is not; then its connection is lost."""
    site = Site()
    site.attach()
    site.decider.gates[1] = gate = asyncio.Event()
    site.intake.heard(message(1))
    site.intake.heard(message(2, user=(("signal-id", "s1"),)))
    await turns()
    assert (site.decider.decided, site.line.acknowledged) == ([2], [])
    ending = asyncio.create_task(site.intake.detach())
    await turns()
    gate.set()
    await ending
    site.decider.decided.clear()
    return site


async def test_what_was_decided_is_answered_and_not_decided_again_on_the_next_connection() -> None:
    site = await with_one_decided_and_unacknowledged()
    line = site.attach()
    site.intake.heard(message(2, dup=True, user=(("signal-id", "s1"),)))
    assert (site.decider.decided, line.acknowledged, line.sent) == ([], [2], ["answer"])


async def test_attempts_that_never_came_to_a_connection_lose_nothing_of_it() -> None:
    site = await with_one_decided_and_unacknowledged()
    for _ in range(3):
        await site.intake.detach()
    line = site.attach()
    site.intake.heard(message(2, dup=True, user=(("signal-id", "s1"),)))
    assert (site.decider.decided, line.acknowledged) == ([], [2])


@pytest.mark.parametrize("other", ["key", "id", "first", "forgotten", "session"])
async def test_another_message_under_its_number_is_decided(other: str) -> None:
    site = await with_one_decided_and_unacknowledged()
    if other == "forgotten":
        site.intake.forget()
    line = site.attach(session=other != "session")
    site.intake.heard(
        message(
            2,
            dup=other != "first",
            key="other" if other == "key" else "k",
            user=(("signal-id", "s2" if other == "id" else "s1"),),
        )
    )
    await turns()
    assert (site.decider.decided, line.acknowledged) == ([2], [2])


@pytest.mark.parametrize("in_flight", [1, 2, 3])
async def test_however_few_may_be_in_flight_it_reads_on(in_flight: int) -> None:
    site = Site(in_flight)
    line = site.attach()
    for mid in range(1, 10):
        assert line.reading
        site.intake.heard(message(mid))
        await turns()
    assert line.acknowledged == list(range(1, 10))


async def test_acknowledgements_keep_the_order_in_which_messages_came() -> None:
    site = Site()
    line = site.attach()
    gates = site.decider.gates = {mid: asyncio.Event() for mid in (1, 2, 3)}
    for mid in (1, 2, 3):
        site.intake.heard(message(mid))
    for mid in (3, 1, 2):
        gates[mid].set()
        await turns()
    assert (site.decider.decided, line.acknowledged) == ([3, 1, 2], [1, 2, 3])
