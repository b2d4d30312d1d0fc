"""Proves that exported users and rules, on the brokers themselves, let each device do its own and nothing of others."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from devices import operations
from devices.exports import emqx, mosquitto, nats
from devices.exports.access import BridgeUser, Export, access
from devices.exports.verifiers import maker
from devices.registry import Registry
from engine.clock import SystemSource
from engine.store.memory import MemoryStore
from gateway.cli.exports import Target
from tests.support.behind import Ear, ear
from tests.support.brokers import Broker
from tests.support.plain_mqtt import SUBSCRIBE, PlainClient, Refused, packet, text

BRIDGE = BridgeUser(
    "wayside-bridge", verifiers=maker(["mosquitto", "nats"])("the bridge's own"), digest="", maps=("stat/+/POWER",)
)


async def registry() -> tuple[Registry, dict[str, str]]:
    """Make two devices with tokens, one of which may listen and one of which has been disabled."""
    store = MemoryStore()
    made = Registry(store, SystemSource(), verify=maker(["mosquitto", "nats"]))
    tokens = {}
    for name, grants in {
        "camera": ["signal:door/verdict", "listen:sirens/+", "listen:d/+/status"],
        "lock": [],
        "gone": [],
    }.items():
        tokens[name] = (await operations.add(made, name, grants=grants, by="user:admin")).token
    await operations.disable(made, "gone", by="user:admin")
    return made, tokens


@dataclass
class Guarded:
    broker: Broker
    tokens: dict[str, str]

    def device(self, name: str, listen: str) -> contextlib.AbstractAsyncContextManager[Ear]:
        return ear(self.broker.port, name, listen, password=self.tokens[name])

    def bridge(self, listen: str) -> contextlib.AbstractAsyncContextManager[Ear]:
        return ear(self.broker.port, BRIDGE.name, listen, password="the bridge's own")


def on_mosquitto(directory: Path, export: Export) -> Broker:
    directory.mkdir(parents=True)
    for file in export.files:
        (directory / file.name).write_text(file.text)
        (directory / file.name).chmod(0o600 if file.secret else 0o644)
    settings = next(file.text for file in export.files if file.name == "wayside.conf")
    # The one rule that the export cannot have is that of the listener, which Broker's file begins with.
    return Broker("mosquitto", directory, settings=f"use_username_as_clientid true\n{_without_doubles(settings)}")


def _without_doubles(settings: str) -> str:
    """Leave out what the tests' own configuration says too."""
    return settings.replace("persistence true\n", "").replace("max_queued_messages 100000\n", "")


def on_nats(directory: Path, export: Export) -> Broker:
    return Broker("nats", directory, settings=export.files[0].text)


@pytest.fixture(params=["mosquitto", "nats"])
async def guarded(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Guarded]:
    made, tokens = await registry()
    directory = tmp_path / "broker"
    if request.param == "mosquitto":
        broker = on_mosquitto(directory, mosquitto.export(made.devices(), BRIDGE, directory=str(directory)))
    else:
        broker = on_nats(directory, nats.export(made.devices(), BRIDGE))
    async with broker:
        yield Guarded(broker, tokens)


async def test_a_device_does_its_own_and_the_bridge_hears_it_and_answers(guarded: Guarded) -> None:
    own = ["d/camera/signals/door/verdict/s1", "d/camera/runs/door/r1", "d/camera/get/waits/door"]
    for topic, listen in zip(own, ["d/+/signals/#", "d/+/runs/#", "d/+/get/#"], strict=True):
        async with guarded.bridge(listen) as bridge, guarded.device("camera", "d/camera/replies/#") as camera:
            await camera.tell(topic, {"n": 1})
            assert await bridge.next() == (topic, {"n": 1})
            await bridge.tell("d/camera/replies/signals/door/verdict/accepted", {"ok": True})
            assert (await camera.next())[1] == {"ok": True}
    async with guarded.bridge("signals/#") as bridge, guarded.device("camera", "sirens/hall") as camera:
        await camera.tell("signals/door/verdict", {"n": 2})
        assert await bridge.next() == ("signals/door/verdict", {"n": 2})
        await bridge.tell("sirens/hall", {"on": True})
        assert await camera.next() == ("sirens/hall", {"on": True})
    async with guarded.device("camera", "d/+/status") as camera, guarded.device("lock", "d/lock/replies/#") as lock:
        await lock.tell("d/lock/status", {"online": True})
        assert await camera.next() == ("d/lock/status", {"online": True})


@pytest.mark.parametrize(
    "topic",
    [
        "d/camera/signals/door/verdict/s1",
        "d/camera/runs/door/r1",
        "d/camera/replies/signals/door/verdict/accepted",
        "d/lock/replies/signals/door/verdict/accepted",
        "signals/door/verdict",
        "sirens/hall",
        "gateway/wayside-bridge/status",
        "gateway/wayside-bridge/marker/x",
    ],
)
async def test_nothing_that_a_device_publishes_elsewhere_comes_through(guarded: Guarded, topic: str) -> None:
    # Two who hear it: the bridge under its own filters, and for what it does not hear, the camera's replies.
    async with guarded.bridge("d/+/signals/#") as bridge:
        heard: list[str] = []
        async with guarded.device("camera", "d/camera/replies/#") as camera:
            lock = await PlainClient.connect(
                guarded.broker.port,
                "lock",
                guarded.tokens["lock"],
                client_id="lock",
                heard=lambda at, _: heard.append(at),
                replies="d/lock/replies/#",
            )
            for wanted in ("d/+/runs/#", "signals/#", "gateway/+/marker/+"):
                bridge.client.writer.write(packet(SUBSCRIBE, struct.pack("!H", 9) + text(wanted) + b"\x01"))
            with contextlib.suppress(AssertionError, TimeoutError):
                async with asyncio.timeout(5):
                    await lock.publish(topic, b'{"n":1}')
            await lock.close()
            await camera.tell("d/camera/signals/door/verdict/last", {})
            assert await bridge.next() == ("d/camera/signals/door/verdict/last", {})
            await bridge.tell("d/camera/replies/-/-/-/last", {})
            assert (await camera.next())[0] == "d/camera/replies/-/-/-/last"
            assert not heard


@pytest.mark.parametrize(
    "listen",
    ["d/camera/replies/#", "d/+/replies/#", "d/#", "#", "signals/#", "sirens/hall", "d/+/status", "$MQTT/sub/#"],
)
async def test_nothing_that_is_anothers_is_heard(guarded: Guarded, listen: str) -> None:
    try:
        spying = guarded.device("lock", listen)
        async with spying as lock, guarded.bridge("d/+/signals/#") as bridge:
            await bridge.tell("d/camera/replies/signals/door/verdict/accepted", {"secret": 1})
            await bridge.tell("sirens/hall", {"on": True})
            await bridge.tell("d/camera/status", {"online": True})
            await lock.tell("d/lock/signals/door/verdict/last", {})
            assert await bridge.next() == ("d/lock/signals/door/verdict/last", {})
            await bridge.tell("d/lock/replies/-/-/-/rejected", {})
            with contextlib.suppress(TimeoutError):
                topic, _ = await asyncio.wait_for(lock.next(), 0.5)
                assert topic.startswith("d/lock/")
    except (Refused, asyncio.IncompleteReadError):
        pass  # refused outright: as well


async def test_nobody_gets_in_without_the_right_token_and_no_session_is_taken_by_its_name(guarded: Guarded) -> None:
    with pytest.raises((Refused, asyncio.IncompleteReadError)):
        async with ear(guarded.broker.port, "camera", "x", password=guarded.tokens["lock"]):
            pass
    with pytest.raises((Refused, asyncio.IncompleteReadError)):
        async with ear(guarded.broker.port, "gone", "x", password=guarded.tokens["gone"]):
            pass


async def test_on_nats_who_connects_by_anothers_client_id_gets_nothing_that_waits_for_it(tmp_path: Path) -> None:
    made, tokens = await registry()
    async with on_nats(tmp_path / "broker", nats.export(made.devices(), BRIDGE)) as broker:

        def camera() -> contextlib.AbstractAsyncContextManager[Ear]:
            return ear(broker.port, "camera", "sirens/hall", password=tokens["camera"], clean=False)

        async with camera():
            pass
        async with ear(broker.port, BRIDGE.name, "d/+/signals/#", password="the bridge's own") as bridge:
            await bridge.tell("sirens/hall", {"n": 1})
            async with ear(
                broker.port, "camera", "d/lock/replies/#", user="lock", password=tokens["lock"], clean=False
            ) as thief:
                await bridge.tell("sirens/hall", {"n": 2})
                await bridge.tell("d/lock/replies/-/-/-/last", {})
                assert (await thief.next())[0] == "d/lock/replies/-/-/-/last"
                assert thief.heard.empty()
            async with camera() as again:
                assert [(await again.next())[1] for _ in range(2)] == [{"n": 1}, {"n": 2}]


async def test_on_mosquitto_a_client_id_takes_nobodys_session(tmp_path: Path) -> None:
    made, tokens = await registry()
    directory = tmp_path / "broker"
    export = mosquitto.export(made.devices(), BRIDGE, directory=str(directory))
    async with on_mosquitto(directory, export) as broker:
        guarded = Guarded(broker, tokens)
        async with guarded.device("camera", "d/camera/replies/#") as camera, guarded.bridge("d/+/signals/#") as bridge:
            async with ear(broker.port, "camera", "d/lock/replies/#", user="lock", password=tokens["lock"]):
                pass
            await bridge.tell("d/camera/replies/-/-/-/still", {})
            assert (await camera.next())[0] == "d/camera/replies/-/-/-/still"
        # A deleted device goes, at SIGHUP, with its connection.
        async with guarded.device("lock", "d/lock/replies/#") as lock:
            await operations.delete(made, "lock", by="user:admin")
            for file in mosquitto.export(made.devices(), BRIDGE, directory=str(directory)).files:
                (directory / file.name).write_text(file.text)
            assert broker.process is not None
            import signal

            broker.process.send_signal(signal.SIGHUP)
            await asyncio.wait_for(lock.client.lost.wait(), 10)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
async def test_written_by_root_a_new_file_belongs_to_whom_its_directory_does_and_keeps_whom_it_is_given_to(
    tmp_path: Path,
) -> None:
    os.chown(tmp_path, 101, 102)
    target, file = Target(tmp_path, None), tmp_path / "passwd"

    async def written(text: str) -> tuple[int, int, int]:
        await target.write({"files": [{"name": "passwd", "text": text, "secret": True}]})
        assert file.read_text() == text
        return file.stat().st_uid, file.stat().st_gid, file.stat().st_mode & 0o777

    assert await written("one") == (101, 102, 0o600)
    os.chown(file, 0, 103)
    file.chmod(0o640)
    assert await written("two") == (0, 103, 0o640)


async def test_an_export_names_who_lacks_a_verifier_and_who_has_two_tokens() -> None:
    store = MemoryStore()
    plain, verified = Registry(store, SystemSource()), Registry(store, SystemSource(), verify=maker(["mosquitto"]))
    await operations.add(plain, "old", by="user:admin")
    await operations.add(verified, "new", by="user:admin")
    await operations.rotate(verified, "new", by="user:admin")
    await plain.refresh()
    made = mosquitto.export(plain.devices(), BRIDGE)
    assert "old" not in made.files[0].text
    assert [line.split(":")[0] for line in made.files[0].text.splitlines()] == ["wayside-bridge", "new"]
    assert any("old" in warning and "rotate" in warning for warning in made.warnings)
    assert any("newer token alone of: new" in warning for warning in made.warnings)


async def test_emqx_gets_the_digest_that_is_stored_and_rules_that_end_in_deny() -> None:
    made, _ = await registry()
    export = emqx.export(made.devices(), BRIDGE)
    users, rules = export.files[0].text.splitlines(), export.files[1].text.splitlines()
    camera = made.device("camera")
    assert camera is not None
    assert f"camera,{camera.secrets[0].digest},,false" in users
    assert not [line for line in users if line.startswith("gone,")]
    assert all(rule.endswith(".") and rule.count("{") == rule.count("}") for rule in rules)
    assert rules[-1] == "{deny, all}."
    assert json.loads(rules[4].split("publish, ")[1].removesuffix("}.")) == [
        "signals/door/verdict",
        "signals/door/verdict/+",
    ]


async def test_what_a_device_may_do_is_said_the_same_to_brokers_that_ask() -> None:
    made, _ = await registry()
    camera = made.device("camera")
    assert camera is not None
    allowed = access(camera)
    assert allowed.may_publish("d/camera/signals/a/b/c")
    assert allowed.may_publish("signals/door/verdict/s1")
    assert not allowed.may_publish("signals/door/other")
    assert not allowed.may_publish("d/lock/signals/a/b")
    assert not allowed.may_publish("d/camera/replies/x")
    assert allowed.may_subscribe("d/camera/replies/#")
    assert allowed.may_subscribe("sirens/hall")
    for topic_filter in ("#", "d/#", "d/+/replies/#", "sirens/#", "$share/x/d/camera/replies/#", "d/lock/replies/#"):
        assert not allowed.may_subscribe(topic_filter)
