"""Proves that devices behind Mosquitto, NATS and amqtt signal, start runs, ask, are answered and get commands."""

from __future__ import annotations

from tests.support.behind import Behind


async def test_a_device_behind_a_broker_starts_a_run_signals_it_and_the_command_comes_out(bridged: Behind) -> None:
    await bridged.add("camera", "signal:door/verdict", "run:door", "read:door")
    async with bridged.device("camera") as camera, bridged.listener("sirens/#") as siren:
        topic, reply = await camera.ask("d/camera/runs/door/r1", {})
        assert (topic, reply["code"]) == ("d/camera/replies/runs/door/-/accepted", 202)
        run = reply["run"]
        await bridged.status(run, "suspended")

        topic, reply = await camera.ask("d/camera/get/waits/door", b"")
        assert topic == "d/camera/replies/waits/door/-/accepted"
        assert [wait["key"] for wait in reply["waits"]] == ["verdict"]

        topic, reply = await camera.ask("d/camera/signals/door/verdict/s0", {"n": "much"})
        assert (topic, reply["error"]) == ("d/camera/replies/signals/door/verdict/rejected", "invalid_payload")

        topic, reply = await camera.ask("d/camera/signals/door/verdict/s1", {"n": 5})
        assert (topic, reply["id"]) == ("d/camera/replies/signals/door/verdict/accepted", "s1")
        receipt = reply["receipt"]
        assert await siren.next() == ("sirens/door", {"n": 5})

        _, again = await camera.ask("d/camera/signals/door/verdict/s1", {"n": 5})
        assert again["receipt"] == receipt
        await bridged.status(run, "succeeded")
    delivered = await bridged.audited(action="signal.delivered")
    assert [(event["principal"], event["door"]) for event in delivered] == [("device:camera", "bridge")]


async def test_the_short_form_is_from_the_one_device_that_is_granted_exactly_that_key(bridged: Behind) -> None:
    await bridged.add("camera", "signal:porch/verdict")
    await bridged.add("master", "signal:porch")
    async with bridged.device("camera") as camera:
        topic, reply = await camera.ask("signals/porch/verdict/s1", {"n": 1})
        assert (topic, reply["ok"]) == ("d/camera/replies/signals/porch/verdict/accepted", True)

        await bridged.add("twin", "signal:porch/verdict")
        await camera.tell("signals/porch/verdict/s2", {"n": 2})
        topic, reply = await camera.ask("d/camera/signals/porch/verdict/s3", {"n": 3})
        assert (reply["id"], reply["error"]) == ("s3", "early_signal_held")
    refused = await bridged.audited(reason="two_senders")
    assert [(event["workflow"], event["key"]) for event in refused] == [("porch", "verdict")]


async def test_a_device_that_is_unknown_revoked_or_disabled_is_refused_whatever_the_broker_lets_through(
    bridged: Behind,
) -> None:
    await bridged.add("camera", "signal:porch/verdict")
    async with bridged.device("camera") as camera, bridged.device("ghost") as ghost:
        _, reply = await ghost.ask("d/ghost/signals/porch/verdict/s1", {"n": 1})
        assert reply["error"] == "unauthorized"
        async with bridged.api() as api:
            (await api.post("/devices/camera/revoke")).raise_for_status()
        _, reply = await camera.ask("d/camera/signals/porch/verdict/s2", {"n": 1})
        assert reply["error"] == "unauthorized"
        async with bridged.api() as api:
            (await api.post("/devices/camera/rotate")).raise_for_status()
            (await api.post("/devices/camera/disable")).raise_for_status()
        _, reply = await camera.ask("d/camera/runs/porch/r1", {})
        assert reply["error"] == "unauthorized"
        async with bridged.api() as api:
            (await api.post("/devices/camera/enable")).raise_for_status()
        _, reply = await camera.ask("d/camera/signals/porch/verdict/s3", {"n": 1})
        assert reply["ok"]


async def test_grants_and_rates_hold_and_a_topic_off_the_map_is_answered_once(bridged: Behind) -> None:
    await bridged.add("camera", "signal:porch/verdict")
    async with bridged.device("camera") as camera:
        _, reply = await camera.ask("d/camera/signals/door/verdict/s1", {"n": 1})
        assert reply["error"] == "not_found"
        topic, reply = await camera.ask("d/camera/signals/porch", {"n": 1})
        assert (topic, reply["error"]) == ("d/camera/replies/-/-/-/rejected", "bad_topic")
        await camera.tell("d/camera/signals/porch/verdict/a/b/c", {"n": 1})
        for number in range(25):
            await camera.tell(f"d/camera/signals/porch/verdict/f{number}", {"n": 1})
        answers = [(await camera.next())[1] for _ in range(25)]
        assert {reply["id"] for reply in answers} == {f"f{number}" for number in range(25)}
        assert "rate_limited" in {reply.get("error") for reply in answers}


async def test_the_gateway_says_retained_that_it_is_there_and_that_it_has_gone(bridged: Behind) -> None:
    async with bridged.listener("gateway/+/status") as ear:
        assert await ear.next() == ("gateway/wayside-bridge/status", {"v": 1, "state": "online"})
        assert await bridged.gateway.stop() == 0
        assert await ear.next() == ("gateway/wayside-bridge/status", {"v": 1, "state": "offline"})
