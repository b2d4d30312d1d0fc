"""Proves what becomes of messages that lay in the broker while no gateway was there: applied once, or stale."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.bridge.backlog import Backlog
from tests.support.behind import behind, workflow
from tests.support.brokers import Broker, Kind
from tests.support.proxy import Mode, proxy

KEEPING: tuple[Kind, ...] = ("mosquitto", "nats")  # amqtt keeps nothing for a client that is away for long


@pytest.mark.parametrize("kind", KEEPING)
async def test_what_was_published_during_a_short_outage_is_applied_once(kind: Kind, tmp_path: Path) -> None:
    async with behind(tmp_path, Broker(kind, tmp_path / "broker")) as bridged:
        await bridged.add("camera", "signal:porch/verdict", "run:porch")
        async with bridged.device("camera") as camera, bridged.listener("sirens/#") as siren:
            _, started = await camera.ask("d/camera/runs/porch/r1", {})
            await bridged.status(started["run"], "suspended")
            await bridged.gateway.kill()
            await camera.tell("d/camera/signals/porch/verdict/s1", {"n": 1})
            await bridged.start()
            topic, reply = await camera.next()
            assert (topic, reply["id"]) == ("d/camera/replies/signals/porch/verdict/accepted", "s1")
            assert await siren.next() == ("sirens/porch", {"n": 1})
            await bridged.status(started["run"], "succeeded")
            # The next one finds nothing of it: it was applied, and only once.
            _, reply = await camera.ask("d/camera/signals/porch/verdict/s2", {"n": 2})
            assert (reply["id"], reply["ok"]) == ("s2", True)
        delivered = await bridged.audited(action="signal.delivered")
        assert len(delivered) == 1


@pytest.mark.parametrize("kind", KEEPING)
async def test_what_lay_there_for_longer_than_the_bound_is_refused_as_stale_and_what_comes_after_is_not(
    kind: Kind, tmp_path: Path
) -> None:
    async with behind(tmp_path, Broker(kind, tmp_path / "broker"), WAYSIDE_BRIDGE__MAX_BACKLOG="0") as bridged:
        await bridged.add("camera", "signal:porch/verdict", "run:porch")
        async with bridged.device("camera") as camera:
            await bridged.gateway.kill()
            for number in range(30):
                await camera.tell(f"d/camera/signals/porch/verdict/s{number}", {"n": 1})
            await bridged.start()
            answers = [(await camera.next())[1] for _ in range(30)]
            assert {reply["id"] for reply in answers} == {f"s{number}" for number in range(30)}
            assert {reply["error"] for reply in answers} <= {"stale", "rate_limited"}
            assert "stale" in {reply["error"] for reply in answers}
            _, reply = await camera.ask("d/camera/runs/porch/r1", {})
            assert reply["ok"]
        assert not [it for it in await bridged.audited(door="bridge") if it["action"] == "signal.held"]


@pytest.mark.parametrize("kind", KEEPING)
async def test_what_lay_there_for_longer_than_its_step_takes_early_signals_settles_a_wait_and_is_not_held(
    kind: Kind, tmp_path: Path
) -> None:
    broker = Broker(kind, tmp_path / "broker")
    async with proxy(broker.port) as between:
        url = f"mqtt://127.0.0.1:{between.port}"
        async with behind(tmp_path, broker, start=False, WAYSIDE_BRIDGE__URL=url) as bridged:
            (tmp_path / "data" / "workflows" / "attic.yaml").write_text(workflow("attic", early_seconds=1))
            await bridged.start()
            await bridged.add("camera", "signal:attic/verdict", "signal:porch/verdict", "signal:door/verdict")
            async with bridged.api() as api:
                run = (await api.post("/workflows/door/runs", json={})).raise_for_status().json()["run"]
            await bridged.status(run, "suspended")
            between.set(Mode.REFUSE)
            between.cut()
            await bridged.logged("bridge is not connected")
            async with bridged.device("camera") as camera:
                for name in ("attic", "porch", "door"):
                    await camera.tell(f"d/camera/signals/{name}/verdict/old", {"n": 1})
                # The second that attic's step takes early signals for is over, and porch's minute is not.
                await asyncio.sleep(1.2)
                between.set(Mode.PASS)
                answers = {}
                for _ in range(3):
                    topic, reply = await camera.next()
                    answers[topic.split("/")[4]] = reply.get("error", "accepted")
                assert answers == {"attic": "no_open_wait", "porch": "accepted", "door": "accepted"}
                await bridged.status(run, "succeeded")
                await bridged.ready()
                # What comes behind the marker is fresh.
                _, reply = await camera.ask("d/camera/signals/attic/verdict/new", {"n": 1})
                assert (reply["id"], reply["ok"]) == ("new", True)


def test_before_a_filters_marker_everything_is_backlog_and_after_it_only_what_is_sent_again() -> None:
    backlog = Backlog(gap_seconds=40.0, max_seconds=30.0)
    backlog.expect(["a/#", "b/#"])
    assert backlog.age_seconds("a/#", dup=False) == 40.0
    assert backlog.is_stale(40.0)
    backlog.marked("a/#")
    assert backlog.age_seconds("a/#", dup=False) == 0.0
    assert backlog.age_seconds("a/#", dup=True) == 40.0
    assert backlog.age_seconds("b/#", dup=False) == 40.0
    over = [backlog.over]
    backlog.marked("b/#")
    assert [*over, backlog.over] == [False, True]
    assert not backlog.is_stale(30.0)


def test_without_a_gap_nothing_is_backlog() -> None:
    backlog = Backlog(gap_seconds=0.0, max_seconds=30.0)
    backlog.expect(["a/#"])
    assert backlog.over
    assert backlog.age_seconds("a/#", dup=True) == 0.0
