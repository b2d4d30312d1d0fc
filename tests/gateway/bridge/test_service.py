"""Proves what the bridge does when a connection goes wrong, against a server that goes wrong as it is told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.clock import SystemSource
from engine.store.memory import MemoryStore, RunningClock
from gateway.bridge import handshake, service
from gateway.bridge.handling import Handling, Outgoing
from gateway.bridge.heard import Heard
from gateway.bridge.service import Bridge, BridgeOptions
from gateway.bridge.url import parse_url
from gateway.outbox import Outbox
from tests.support.plain_mqtt import packet
from tests.support.stub_broker import CONNACK, DISCONNECT, HANG_UP, UNSUPPORTED, Answer, StubBroker, message

SIGNAL = "d/camera/signals/porch/verdict/s1"


@dataclass
class Decider:
    """Decides at once; remembers how old each message was said to be, and whether that was too old."""

    ages: list[tuple[float, bool]] = field(default_factory=list)

    async def decide(
        self, _heard: Heard, *, age_seconds: float, is_stale: Callable[[float], bool], **_: object
    ) -> list[Outgoing]:
        self.ages.append((age_seconds, is_stale(age_seconds)))
        return []


@dataclass
class Clock(SystemSource):
    """The machine's clock, set forward: as after a sleep, in which nothing ran."""

    slept: float = 0.0

    def __post_init__(self) -> None:
        super().__init__()

    def monotonic(self) -> float:
        return super().monotonic() + self.slept


@dataclass
class Site:
    """What the instances share, and which of them are dead."""

    port: int
    store: MemoryStore = field(default_factory=lambda: MemoryStore(RunningClock()))
    dead: set[str] = field(default_factory=set)
    clock: Clock = field(default_factory=Clock)

    @contextlib.asynccontextmanager
    async def bridge(self, instance: str = "one") -> AsyncIterator[tuple[Bridge, Decider]]:
        async def is_dead(other: str) -> bool:
            return other in self.dead

        engine: Any = SimpleNamespace(store=self.store, instance=instance, instance_is_dead=is_dead)
        decider = Decider()
        options = BridgeOptions(
            url=parse_url(f"mqtt://127.0.0.1:{self.port}"),
            client_id="bridge",
            in_flight=10,
            max_backlog_seconds=30.0,
            session_expiry_seconds=600,
            reconnect_max_seconds=0.01,
            short_form=False,
            share="",
            map_filters=(),
        )
        bridge = Bridge(options, cast("Handling", decider), engine, Outbox(self.store, self.clock), self.clock)
        running = asyncio.create_task(bridge.run())
        try:
            yield bridge, decider
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await bridge.close()


async def until(broker: StubBroker, bridge: Bridge, state: str, *, connects: int = 1) -> None:
    """Wait for a state that stays, at the `connects`-th CONNECT or a later one."""
    await broker.until(lambda: len(broker.levels) >= connects)
    async with asyncio.timeout(20):
        while bridge.state != state:
            await asyncio.sleep(0.005)


async def test_a_broker_that_hangs_up_behind_its_connack_is_tried_again_and_ends_nothing() -> None:
    goodbye = packet(CONNACK, b"\0\0\0") + packet(DISCONNECT, b"\x89\0")
    async with (
        StubBroker(connecting=lambda n, _: goodbye if n < 4 else None) as broker,
        Site(broker.port).bridge() as (bridge, _),
    ):
        await until(broker, bridge, "connected")
        assert len(broker.levels) == 4


async def test_a_message_in_one_burst_with_the_connack_is_heard_and_acknowledged() -> None:
    burst = packet(CONNACK, b"\1\0\0") + message(SIGNAL, 7, dup=True)
    async with (
        StubBroker(connecting=lambda n, _: burst if n == 1 else None) as broker,
        Site(broker.port).bridge() as (_, decider),
    ):
        await broker.until(lambda: broker.acknowledged == [7])
        assert len(decider.ages) == 1
        assert len(broker.levels) == 1


async def test_a_connection_lost_before_the_suback_is_made_again_at_once() -> None:
    async with (
        StubBroker(subscribing=lambda n: HANG_UP if n < 3 else None) as broker,
        Site(broker.port).bridge() as (bridge, _),
    ):
        await until(broker, bridge, "connected")
        assert broker.levels == [5, 5, 5]


async def test_what_no_packet_is_ends_the_connection_and_not_the_bridge() -> None:
    nonsense = bytes.fromhex("900100")  # a SUBACK too short for its packet id
    async with (
        StubBroker(subscribing=lambda n: nonsense if n == 1 else None) as broker,
        Site(broker.port).bridge() as (bridge, _),
    ):
        await until(broker, bridge, "connected")
        assert len(broker.levels) == 2


# -- which version -----------------------------------------------------------------------------------------------------


def only_3(_: int, level: int) -> Answer:
    return HANG_UP if level == 5 else None


async def test_a_broker_that_hangs_up_on_mqtt_5_is_spoken_to_in_3_1_1_and_asked_again_at_each_connection() -> None:
    async with StubBroker(connecting=only_3) as broker, Site(broker.port).bridge() as (bridge, _):
        await until(broker, bridge, "connected")
        assert broker.levels == [5, 4]
        broker.cut()
        await until(broker, bridge, "connected", connects=4)
        assert broker.levels == [5, 4, 5, 4]


async def test_a_broker_that_has_spoken_mqtt_5_is_not_left_for_a_proxy_that_hangs_up() -> None:
    async with (
        StubBroker(connecting=lambda n, _: HANG_UP if n in {2, 3} else None) as broker,
        Site(broker.port).bridge() as (bridge, _),
    ):
        await until(broker, bridge, "connected")
        broker.cut()
        await until(broker, bridge, "connected", connects=4)
        assert broker.levels == [5, 5, 5, 5]


async def test_it_is_left_when_it_says_that_it_speaks_it_no_more() -> None:
    def connecting(n: int, level: int) -> Answer:
        return packet(CONNACK, bytes((0, UNSUPPORTED[5], 0))) if n > 1 and level == 5 else None

    async with StubBroker(connecting=connecting) as broker, Site(broker.port).bridge() as (bridge, _):
        await until(broker, bridge, "connected")
        broker.cut()
        await until(broker, bridge, "connected", connects=3)
        assert broker.levels == [5, 5, 4]


# -- how old what the session held is ----------------------------------------------------------------------------------


async def age_after(
    broker: StubBroker, bridge: Bridge, decider: Decider, lose: Callable[[], None]
) -> tuple[float, bool]:
    """Lose the connection, and give the age of what the session held meanwhile."""
    await until(broker, bridge, "connected")
    broker.held = [message(SIGNAL, 7)]
    lose()
    await broker.until(lambda: 7 in broker.acknowledged)
    return decider.ages[-1]


async def test_what_came_while_the_broker_was_away_for_a_moment_is_young() -> None:
    async with StubBroker() as broker, Site(broker.port).bridge() as (bridge, decider):
        age, stale = await age_after(broker, bridge, decider, broker.cut)
        assert 0 < age < 5
        assert not stale


async def test_a_connection_that_was_closed_while_the_machine_slept_is_lost_since_it_fell_asleep() -> None:
    async with StubBroker() as broker:
        site = Site(broker.port)
        async with site.bridge() as (bridge, decider):

            def sleep() -> None:
                site.clock.slept += 3600
                broker.cut()

            age, stale = await age_after(broker, bridge, decider, sleep)
            assert 3595 < age < 3605
            assert stale


async def test_a_connection_that_fell_silent_is_lost_since_its_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "KEEP_ALIVE_SECONDS", 1)
    async with StubBroker() as broker:
        site = Site(broker.port)
        async with site.bridge() as (bridge, decider):
            await until(broker, bridge, "connected")
            broker.silent = 1
            # As if the silence had lasted for longer than a test may: paho notices by its own clock.
            site.clock.slept += 40
            broker.held = [message(SIGNAL, 7)]
            await broker.until(lambda: 7 in broker.acknowledged)
            age, stale = decider.ages[-1]
            assert 40 < age < 50
            assert stale


async def test_who_takes_the_session_back_knows_no_more_of_it_than_the_last_holder_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "STANDBY_SECONDS", 0.01)
    async with StubBroker() as broker:
        site = Site(broker.port)
        async with site.bridge("one") as (one, decider):
            await until(broker, one, "connected")
            # It is taken for dead, as while it is suspended, and wakes up to a broken connection.
            site.dead.add("one")
            async with site.bridge("two") as (two, _):
                await until(broker, two, "connected")
                broker.cut()
                await until(broker, one, "standby")
                site.dead.discard("one")
                site.clock.slept += 3600
                await until(broker, two, "connected")
                await two._trace()
                broker.held = [message(SIGNAL, 7)]
            await broker.until(lambda: 7 in broker.acknowledged)
            age, stale = decider.ages[-1]
            assert age < 30
            assert not stale
