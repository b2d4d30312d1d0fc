"""Proves that over a shared subscription no signal is lost with an instance, a connection or a drain that ends."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.clock import SystemSource
from engine.names import number_of
from engine.store.memory import ManualClock, MemoryStore
from gateway.bridge.connection import BrokerFault, Connection, Subscription, connect
from gateway.bridge.drain import Drain
from gateway.bridge.handshake import Options
from gateway.bridge.heard import Heard
from gateway.bridge.intake import Intake
from gateway.bridge.service import Bridge, BridgeOptions
from gateway.bridge.slots import Slot, Slots
from gateway.bridge.url import parse_url
from gateway.outbox import Outbox
from tests.support.behind import Behind, Ear, behind
from tests.support.brokers import Broker
from tests.support.proxy import Mode, proxy
from tests.support.serving import Gateway

SIGNALS = 10
SHARED = "$share/g/d/+/signals/#"
LIMITS = {f"WAYSIDE_LIMITS__SIGNALS_{what}": "1000" for what in ("PER_SECOND", "BURST")}
# Sessions of MQTT 3.1.1 have no end but a client's that asks for it.
PROTOCOLS = ["", "?protocol=3.1.1"]


def shared(url: str) -> dict[str, str]:
    return {"WAYSIDE_BRIDGE__SHARE": "wayside", "WAYSIDE_BRIDGE__URL": url}


@contextlib.asynccontextmanager
async def two(directory: Path, broker: Broker, query: str = "") -> AsyncIterator[tuple[Behind, Gateway]]:
    """Run two gateways that share a subscription, and a device that may signal."""
    settings = LIMITS | shared(broker.url + query)
    async with behind(directory, broker, start=False, **settings) as bridged:
        await bridged.start()
        await bridged.add("camera", "signal:porch/verdict")
        second = Gateway(bridged.gateway.data, environment=dict(bridged.settings))
        try:
            await second.start()
            await bridged.logged("bridge connected", 2)
            yield bridged, second
        finally:
            if second.process is not None and second.process.returncode is None:
                await second.kill()


@contextlib.contextmanager
def store_held(bridged: Behind) -> Iterator[None]:
    """Have nothing decided, so that whatever the broker has is on its way to a gateway."""
    connection = sqlite3.connect(bridged.gateway.data / "wayside.db", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


async def signals(camera: Ear, label: str) -> set[str]:
    """Send signals that the broker acknowledges; give their ids."""
    ids = {f"{label}{number}" for number in range(SIGNALS)}
    for each in ids:
        await camera.tell(f"d/camera/signals/porch/verdict/{each}", {"n": 1})
    return ids


async def answered(camera: Ear, ids: set[str]) -> None:
    """Wait until all of them have been answered, none of them as too old."""
    missing = set(ids)
    while missing:
        _, reply = await camera.next()
        assert reply.get("error") in {None, "early_signal_held"}, reply
        missing.discard(reply["id"])


@pytest.mark.parametrize("query", PROTOCOLS)
async def test_what_was_on_its_way_to_an_instance_that_dies_is_answered_by_another_and_so_is_all_that_follows(
    query: str, tmp_path: Path, mosquitto: Broker
) -> None:
    async with two(tmp_path, mosquitto, query) as (bridged, _), bridged.device("camera") as camera:
        with store_held(bridged):
            ids = await signals(camera, "a")
            await bridged.gateway.kill()
        await answered(camera, ids)
        await bridged.logged("bridge drained a session that nobody held")
        # The dead one's session is gone: it is given nothing more.
        await answered(camera, await signals(camera, "b"))


@pytest.mark.parametrize("query", PROTOCOLS)
async def test_what_was_on_its_way_to_instances_that_all_die_is_answered_by_the_one_that_starts_again(
    query: str, tmp_path: Path, mosquitto: Broker
) -> None:
    async with two(tmp_path, mosquitto, query) as (bridged, second), bridged.device("camera") as camera:
        with store_held(bridged):
            ids = await signals(camera, "a")
            await bridged.gateway.kill()
            await second.kill()
        ids |= await signals(camera, "b")
        await bridged.gateway.start(**bridged.settings)
        await answered(camera, ids)
        await bridged.logged("bridge drained a session that nobody held")
        await answered(camera, await signals(camera, "c"))


async def test_an_instance_that_stops_leaves_its_session_to_the_others(tmp_path: Path, mosquitto: Broker) -> None:
    async with two(tmp_path, mosquitto) as (bridged, _), bridged.device("camera") as camera:
        assert await bridged.gateway.stop() == 0
        await answered(camera, await signals(camera, "a"))
        await bridged.logged("bridge drained a session that nobody held")


@pytest.mark.parametrize("query", PROTOCOLS)
async def test_a_session_outlives_the_loss_of_its_connection(query: str, tmp_path: Path, mosquitto: Broker) -> None:
    async with proxy(mosquitto.port) as between:
        settings = LIMITS | shared(f"mqtt://127.0.0.1:{between.port}{query}")
        async with behind(tmp_path, mosquitto, start=False, **settings) as bridged, bridged.device("camera") as camera:
            await bridged.start()
            await bridged.add("camera", "signal:porch/verdict")
            with store_held(bridged):
                ids = await signals(camera, "a")
                between.set(Mode.REFUSE)
                between.cut()
            await bridged.logged("bridge is not connected")
            ids |= await signals(camera, "b")
            between.set(Mode.PASS)
            await answered(camera, ids)


# -- slots and drains ------------------------------------------------------------------------------------------------


class Site:
    """Instances over one store, some of them dead, and what they have decided."""

    def __init__(self) -> None:
        self.store = MemoryStore(ManualClock())
        self.dead: set[str] = set()
        self.decided: list[str] = []

    async def is_dead(self, instance: str) -> bool:
        return instance in self.dead

    def slots(self, instance: str) -> Slots:
        return Slots(self.store, SystemSource(), client_id="bridge", instance=instance, is_dead=self.is_dead)

    def bridge(self, instance: str, port: int) -> Bridge:
        source, engine = SystemSource(), SimpleNamespace(store=self.store, instance=instance)
        engine.instance_is_dead = self.is_dead
        wanted = BridgeOptions(
            url=parse_url(f"mqtt://127.0.0.1:{port}"),
            client_id="bridge",
            in_flight=5,
            max_backlog_seconds=60.0,
            session_expiry_seconds=600,
            reconnect_max_seconds=1.0,
            short_form=False,
            share="g",
            map_filters=(),
        )
        return Bridge(wanted, Deciding(self), engine, Outbox(self.store, source), source)  # type: ignore[arg-type]


async def test_an_instance_holds_the_lowest_slot_that_nobody_else_does() -> None:
    site = Site()
    one, two = await site.slots("one").take(), await site.slots("two").take()
    assert (one.client_id, two.client_id) == ("bridge-1", "bridge-2")
    assert (await site.slots("one").take()).client_id == "bridge-1"
    assert await site.slots("two").loose(two) == []
    site.dead.add("one")
    assert [it.client_id for it in await site.slots("two").loose(two)] == ["bridge-1"]
    assert (await site.slots("three").take()).client_id == "bridge-1"
    assert await site.slots("two").loose(two) == []


async def test_a_slot_that_was_let_go_is_drained_once_and_then_free() -> None:
    site = Site()
    one, two = await site.slots("one").take(), await site.slots("two").take()
    await one.claims.release()
    (loose,) = await site.slots("two").loose(two)
    assert await loose.claims.take()
    # One that is not let go, because the store was away, is found again.
    assert [it.client_id for it in await site.slots("two").loose(two)] == ["bridge-1"]
    await loose.claims.release(drained=True)
    assert await site.slots("two").loose(two) == []
    assert (await site.slots("three").take()).client_id == "bridge-1"
    assert await one.claims.standing() == "held"


async def test_many_that_start_at_once_get_a_slot_each() -> None:
    site = Site()
    taken = await asyncio.gather(*(site.slots(f"i{number}").take() for number in range(10)))
    assert sorted(it.client_id for it in taken) == sorted(f"bridge-{number}" for number in range(1, 11))


class Deciding:
    """Decides every message, and notes which."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.cut_at = -1
        self.cut: Callable[[], None] = site.decided.clear

    async def decide(self, heard: Heard, **_: Any) -> list[Any]:
        self.site.decided.append(heard.topic)
        if len(self.site.decided) == self.cut_at:
            self.cut()
        return []


def options(port: int, client_id: str) -> Options:
    return Options(url=parse_url(f"mqtt://127.0.0.1:{port}"), client_id=client_id, version=5, in_flight=5)


def drain(site: Site, handling: Deciding, port: int) -> Drain:
    intake = Intake(handling, 5)  # type: ignore[arg-type]
    return Drain(
        options=options(port, "any"),
        intake=intake,
        topic_filters=[SHARED],
        max_backlog_seconds=60.0,
        nonce=SystemSource().nonce,
    )


async def test_a_drain_that_is_cut_off_leaves_the_rest_and_the_next_one_ends_it(
    tmp_path: Path, mosquitto: Broker
) -> None:
    site = Site()
    slot, sent = await site.slots("dead").take(), [f"d/camera/signals/w/k/{number}" for number in range(30)]
    await slot.claims.trace(0)
    own = await site.slots("two").take()
    site.dead.add("dead")
    async with mosquitto, proxy(mosquitto.port) as between:
        async with connect(options(mosquitto.port, slot.client_id), lambda _: None) as connection:
            assert await connection.subscribe([Subscription(SHARED)]) == []
        async with connect(options(mosquitto.port, "camera"), lambda _: None) as connection:
            for topic in sent:
                await connection.publish(topic, b"{}")
        (loose,) = await site.slots("two").loose(own)
        handling = Deciding(site)
        handling.cut_at, handling.cut = 12, between.cut
        with pytest.raises(BrokerFault):
            await drain(site, handling, between.port).drain(loose)
        assert await loose.claims.standing() == "loose"
        assert await drain(site, handling, mosquitto.port).drain(loose)
        assert set(site.decided) == set(sent)
        assert await loose.claims.standing() == "drained"
        async with connect(options(mosquitto.port, slot.client_id), lambda _: None) as connection:
            assert not connection.session_present


async def test_what_comes_while_a_session_is_drained_goes_to_it_or_to_another_member_and_is_not_lost(
    mosquitto: Broker,
) -> None:
    site = Site()
    slot = await site.slots("dead").take()
    await slot.claims.trace(0)
    site.dead.add("dead")
    others, sent = list[str](), list[str]()
    async with mosquitto:
        async with connect(options(mosquitto.port, slot.client_id), lambda _: None) as connection:
            assert await connection.subscribe([Subscription(SHARED)]) == []

        def hear(heard: Heard) -> None:
            others.append(heard.topic)
            other.acknowledge([heard.mid])

        other: Connection
        async with (
            connect(options(mosquitto.port, "other"), hear) as other,
            connect(options(mosquitto.port, "camera"), lambda _: None) as camera,
        ):
            assert await other.subscribe([Subscription(SHARED)]) == []

            async def send() -> None:
                for number in itertools.count():
                    if enough.is_set():
                        break
                    topic = f"d/camera/signals/w/k/{number}"
                    await camera.publish(topic, b"{}")
                    sent.append(topic)

            enough = asyncio.Event()
            sending = asyncio.create_task(send())
            async with asyncio.timeout(20):
                while len(sent) < 50:
                    await asyncio.sleep(0.01)
                handling = Deciding(site)
                assert await drain(site, handling, mosquitto.port).drain(slot)
                before = len(others)
                # From now on all of them go to the other.
                while len(others) < before + 50:
                    await asyncio.sleep(0.01)
                enough.set()
                await sending
                while not set(sent) <= {*others, *site.decided}:
                    await asyncio.sleep(0.01)
        assert site.decided


async def test_an_instance_that_was_thought_to_be_dead_takes_another_session_and_nothing_is_lost(
    mosquitto: Broker,
) -> None:
    site, sent = Site(), [f"d/camera/signals/w/k/{number}" for number in range(60)]
    async with mosquitto:
        one, two = site.bridge("one", mosquitto.port), site.bridge("two", mosquitto.port)
        tasks = [asyncio.create_task(it.run()) for it in (one, two)]
        try:
            async with asyncio.timeout(30), connect(options(mosquitto.port, "camera"), lambda _: None) as camera:
                while not (one.state == two.state == "connected"):
                    await asyncio.sleep(0.01)
                held = one._client_id
                for topic in sent[:30]:
                    await camera.publish(topic, b"{}")
                site.dead.add("one")
                # Taken, taken to be drained, and let go; whoever comes next may have it already.
                while (top := await site.store.last(f"bridge/holder/{held}/")) is None or number_of(top.key) < 3:
                    await asyncio.sleep(0.01)
                site.dead.clear()
                for topic in sent[30:]:
                    await camera.publish(topic, b"{}")
                while set(site.decided) != set(sent) or one.state != "connected":
                    await asyncio.sleep(0.01)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_slot_that_another_instance_has_taken_is_not_drained(mosquitto: Broker) -> None:
    site = Site()
    slot = await site.slots("one").take()
    mine = site.slots("two")
    await mine.take()
    assert not await drain(site, Deciding(site), 1).drain(Slot(slot.client_id, mine._slot(1).claims))
