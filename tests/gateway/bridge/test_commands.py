"""Commands go out in order and at least once; one that the broker will not take is skipped, and the others go on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest

from engine import outbox
from engine.events import Whose
from engine.limits import OUTBOX_RETENTION_SECONDS
from engine.store.memory import ManualClock, MemoryStore
from gateway.audit import Entry
from gateway.bridge import commands
from gateway.bridge.commands import LOSSES, SPACES_SECONDS, WINDOW, Commands
from gateway.outbox import Outbox
from tests.support.source import HandSource

WHOSE = Whose(workflow="door", run="r" * 26, job="main", step="tell")


class Wire:
    """A connection to a broker that acknowledges every command until one comes that it ends the connection over."""

    def __init__(self, refuses: Callable[[str], bool], largest: int) -> None:
        self.refuses = refuses
        self.largest = largest
        self.ended = asyncio.Event()
        self.published: list[str] = []

    def takes(self, topic: str, payload: bytes) -> bool:
        return len(topic) + len(payload) <= self.largest

    async def publish(self, topic: str, payload: bytes, *, qos: int) -> None:
        self.published.append(topic)
        if self.ended.is_set() or self.refuses(topic):
            self.ended.set()
            # As aiomqtt's does: it is the end of the connection that ends the wait.
            await asyncio.Event().wait()


class Site:
    """A store, its commands, and what was noted of those that were skipped."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.source = HandSource()
        self.noted: list[Entry] = []

    def gateway(self) -> Commands:
        return Commands(self.store, Outbox(self.store, self.source), self.source, self.noted.append)

    async def put(self, *topics: str) -> None:
        for topic in topics:
            await outbox.append(self.store, self.source, topic, b"{}", WHOSE)

    @property
    def reasons(self) -> list[str]:
        return [entry.reason for entry in self.noted]


@contextlib.asynccontextmanager
async def connected(
    gateway: Commands, refuses: Callable[[str], bool] = lambda _: False, *, largest: int = 1_000, caught_up: bool = True
) -> AsyncIterator[Wire]:
    """Let the commands follow a connection, and end it at the end."""
    wire, event = Wire(refuses, largest), asyncio.Event()
    if caught_up:
        event.set()
    following = asyncio.create_task(gateway.follow(wire, event))  # type: ignore[arg-type]
    try:
        yield wire
    finally:
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following


async def lost(gateway: Commands, refuses: Callable[[str], bool]) -> list[str]:
    """Have one connection end over a command; give what was published on it."""
    async with connected(gateway, refuses) as wire:
        await asyncio.wait_for(wire.ended.wait(), 5)
    return wire.published


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not true():
            await asyncio.sleep(0)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(commands, "QUIET_SECONDS", 0.0)
    return Site()


def spaced(topic: str) -> bool:
    return " " in topic


async def test_a_repeat_is_what_was_not_acknowledged_and_nothing_more(site: Site) -> None:
    await site.put("a", "b", "c", "e")
    gateway = site.gateway()
    await gateway.begin(0)
    assert await lost(gateway, lambda topic: topic == "c") == ["a", "b", "c", "e"]
    assert gateway.sent == 2
    async with connected(gateway) as wire:
        await until(lambda: gateway.sent == 4)
        assert wire.published == ["c", "e"]
    assert site.noted == []


async def test_a_command_that_ends_every_connection_is_skipped_and_noted_and_the_others_go_on(site: Site) -> None:
    await site.put("a", "poison", "b", *(f"c{n}" for n in range(WINDOW)))
    gateway = site.gateway()
    await gateway.begin(0)
    first = await lost(gateway, lambda topic: topic == "poison")
    assert first[:3] == ["a", "poison", "b"]
    for _ in range(LOSSES):
        # Alone: what was behind it stays there, and is not blamed.
        assert await lost(gateway, lambda topic: topic == "poison") == ["poison"]
    async with connected(gateway, lambda topic: topic == "poison") as wire:
        await until(lambda: gateway.sent == 3 + WINDOW)
        assert wire.published == ["b", *(f"c{n}" for n in range(WINDOW))]
    assert site.noted == [
        Entry(
            action="command.skipped",
            result="dropped",
            reason="connection_lost",
            workflow="door",
            run="r" * 26,
            job="main",
            step="tell",
            door="bridge",
            bytes=2,
        )
    ]


async def test_a_connection_that_ends_by_itself_costs_no_command(site: Site) -> None:
    await site.put("a", "b", "c")
    gateway = site.gateway()
    await gateway.begin(0)
    for topic in ("a", "a", "a", "b", "b", "c", "c"):
        await lost(gateway, lambda it, topic=topic: it == topic)  # type: ignore[misc]
    async with connected(gateway) as wire:
        await until(lambda: gateway.sent == 3)
        assert wire.published == ["c"]
    assert site.noted == []


async def test_a_suspect_waits_until_the_bridge_has_caught_up(site: Site) -> None:
    await site.put("poison")
    gateway = site.gateway()
    await gateway.begin(0)
    await lost(gateway, lambda _: True)
    async with connected(gateway, caught_up=False) as wire:
        # Nothing but a suspect waits, and what is behind it.
        await until(lambda: gateway._follower._after == "outbox/000000000001")
        for _ in range(20):
            await asyncio.sleep(0)
        assert wire.published == []
    assert gateway.sent == 0


async def test_a_process_that_dies_between_a_skip_and_its_trace_has_the_next_one_skip_it_again(site: Site) -> None:
    await site.put("poison", "b")
    first, second = site.gateway(), site.gateway()
    await first.begin(0)
    for gateway in (first, second):
        # The second begins from the last trace, which is from before the skip.
        await gateway.begin(0)
        for _ in range(1 + LOSSES):
            await lost(gateway, lambda topic: topic == "poison")
        async with connected(gateway) as wire:
            await until(lambda gateway=gateway: gateway.sent == 2)  # type: ignore[misc]
            assert wire.published == ["b"]
    assert site.reasons == ["connection_lost"] * 2


async def test_two_gateways_that_take_turns_each_count_for_themselves_and_both_get_by(site: Site) -> None:
    await site.put("poison", "b")
    one, two = site.gateway(), site.gateway()
    for gateway in (one, two):
        await gateway.begin(0)
    for _ in range(1 + LOSSES):
        for gateway in (one, two):
            await lost(gateway, lambda topic: topic == "poison")
    for gateway in (one, two):
        async with connected(gateway):
            await until(lambda gateway=gateway: gateway.sent == 2)  # type: ignore[misc]
    # One that was not the active bridge for a while begins from a trace, and counts no losses of before.
    await one.begin(1)
    await site.put("c")
    assert await lost(one, lambda topic: topic == "c") == ["b", "c"]


async def test_after_a_topic_with_a_space_was_skipped_others_with_one_end_no_connection_for_a_while(
    site: Site,
) -> None:
    await site.put("a b")
    gateway = site.gateway()
    await gateway.begin(0)
    for _ in range(1 + LOSSES):
        await lost(gateway, spaced)
    await site.put("c d", "e")
    async with connected(gateway, spaced) as wire:
        await until(lambda: gateway.sent == 3)
        assert wire.published == ["e"]
        assert site.reasons == ["connection_lost", "space_in_topic"]
    site.source.advance(SPACES_SECONDS + 1)
    await site.put("f g")
    assert await lost(gateway, spaced) == ["f g"]


async def test_a_broker_that_has_taken_a_space_is_not_thought_to_mind_them(site: Site) -> None:
    await site.put("a b", "poison d", "e f")
    gateway = site.gateway()
    await gateway.begin(0)
    for _ in range(1 + LOSSES):
        await lost(gateway, lambda topic: topic == "poison d")
    async with connected(gateway, lambda topic: topic == "poison d") as wire:
        await until(lambda: gateway.sent == 3)
        assert wire.published == ["e f"]
    assert site.reasons == ["connection_lost"]


async def test_what_is_known_not_to_be_taken_never_goes_out(site: Site) -> None:
    await site.put("a", "x" * 100, "\ufdd0", "b")
    gateway = site.gateway()
    await gateway.begin(0)
    async with connected(gateway, largest=50) as wire:
        await until(lambda: gateway.sent == 4)
        assert wire.published == ["a", "b"]
    assert site.reasons == ["too_large", "bad_topic"]


async def test_the_highest_command_which_is_never_pruned_is_not_sent_once_the_others_of_its_age_are_gone(
    site: Site,
) -> None:
    await site.put("a", "old")
    site.clock.advance(OUTBOX_RETENTION_SECONDS + 1)
    await outbox.prune(site.store)
    gateway = site.gateway()
    await gateway.begin(0)
    async with connected(gateway) as wire:
        await until(lambda: gateway.sent == 2)
        await site.put("new")
        gateway._hint.set()
        await until(lambda: gateway.sent == 3)
        assert wire.published == ["new"]
    assert site.reasons == ["expired"]
