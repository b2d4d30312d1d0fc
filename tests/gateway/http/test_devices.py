"""Proves that devices are kept over HTTP: tokens are shown once, changes are in force at once and in the audit log."""

from __future__ import annotations

import asyncio

from tests.gateway.http.conftest import Door

DEVICES = "/api/v1/devices"
SIGNAL = "/api/v1/signals/front-door/verdict"


async def test_a_device_is_added_and_its_token_is_shown_once(door: Door) -> None:
    async with door.admin() as admin:
        added = await admin.post(DEVICES, json={"device": "camera", "grants": ["signal:front-door/verdict"]})
        token = added.json()["token"]
        async with door.client(token) as camera:
            assert (await camera.post(SIGNAL, json={"who": "known"})).status_code == 202
        others = [await admin.get(path) for path in (DEVICES, f"{DEVICES}/camera", "/api/v1/audit")]
    assert added.status_code == 201
    assert token.startswith("wsd_")
    assert all(token not in answer.text for answer in others)
    listed = others[0].json()["devices"]
    assert [(it["device"], it["state"], it["tokens"]) for it in listed] == [("camera", "active", 1)]
    assert others[1].json()["secrets"][0]["made"].endswith("Z")


async def test_a_second_device_of_the_name_and_a_bad_name_and_grant_are_refused(door: Door) -> None:
    async with door.admin() as admin:
        await admin.post(DEVICES, json={"device": "camera"})
        again = await admin.post(DEVICES, json={"device": "camera"})
        name = await admin.post(DEVICES, json={"device": "a/b"})
        grant = await admin.post(DEVICES, json={"device": "other", "grants": ["anything"]})
    assert (again.status_code, name.status_code, grant.status_code) == (409, 422, 422)
    assert again.json()["hint"]
    assert "signal:" in grant.json()["hint"]


async def test_a_grant_that_is_no_text_is_refused_by_saying_so(door: Door) -> None:
    content, headers = rb'{"device":"other","grants":["listen:\ud800"]}', {"content-type": "application/json"}
    async with door.admin() as admin:
        answer = await admin.post(DEVICES, content=content, headers=headers)
    assert answer.status_code == 422
    assert "no character" in answer.json()["detail"]


async def test_a_grant_that_is_taken_back_is_out_of_force_at_once(door: Door) -> None:
    async with door.admin() as admin, await door.device() as camera:
        before = await camera.post(SIGNAL, json={"who": "known"})
        granted = await admin.post(f"{DEVICES}/camera/grants", json={"grant": "signal:front-door"})
        with_it = await camera.post(SIGNAL, json={"who": "known"})
        taken = await admin.delete(f"{DEVICES}/camera/grants", params={"grant": "signal:front-door"})
        after = await camera.post(SIGNAL, json={"who": "known"})
        missing = await admin.delete(f"{DEVICES}/camera/grants", params={"grant": "signal:front-door"})
    assert (before.status_code, with_it.status_code, after.status_code) == (404, 202, 404)
    assert (granted.json()["grants"], taken.json()["grants"]) == (["signal:front-door"], [])
    assert missing.status_code == 404


async def test_a_rotation_has_two_tokens_until_it_is_finished(door: Door) -> None:
    async with door.admin() as admin:
        old = (await admin.post(DEVICES, json={"device": "camera", "grants": ["read:quick"]})).json()["token"]
        new = (await admin.post(f"{DEVICES}/camera/rotate")).json()["token"]
        async with door.client(old) as before, door.client(new) as after:
            both = [(await it.get("/api/v1/waits")).status_code for it in (before, after)]
            finished = await admin.post(f"{DEVICES}/camera/rotate/finish")
            one = [(await it.get("/api/v1/waits")).status_code for it in (before, after)]
    assert (both, one) == ([200, 200], [401, 200])
    assert finished.json()["tokens"] == 1


async def test_of_two_tokens_it_is_told_which_are_in_use(door: Door) -> None:
    async def uses() -> list[tuple[bool, bool]]:
        secrets = (await admin.get(f"{DEVICES}/camera")).json()["secrets"]
        return [(it["first_used"] is not None, it["used_since"] is not None) for it in secrets]

    async def use(token: str) -> None:
        async with door.client(token) as camera:
            assert (await camera.get("/api/v1/waits")).status_code == 200

    async with door.admin() as admin:
        old = (await admin.post(DEVICES, json={"device": "camera", "grants": ["read:quick"]})).json()["token"]
        await use(old)
        assert await uses() == [(False, False)]  # nothing is noted while there is one
        new = (await admin.post(f"{DEVICES}/camera/rotate")).json()["token"]
        assert await uses() == [(False, False), (False, False)]
        await use(old)
        assert await uses() == [(False, True), (False, False)]
        await use(new)
        assert await uses() == [(False, True), (True, False)]
        await admin.post(f"{DEVICES}/camera/rotate/finish")
        assert await uses() == [(True, False)]
        await admin.post(f"{DEVICES}/camera/rotate")
        assert await uses() == [(True, False), (False, False)]  # used before, and not known to be since


async def test_every_change_is_in_the_audit_log_with_who_made_it(door: Door) -> None:
    async with door.admin() as admin:
        await admin.post(DEVICES, json={"device": "camera"})
        for verb in ("disable", "enable", "revoke"):
            assert (await admin.post(f"{DEVICES}/camera/{verb}")).status_code == 200
        assert (await admin.delete(f"{DEVICES}/camera")).json()["state"] == "deleted"
        events = (await admin.get("/api/v1/audit", params={"device": "camera"})).json()["events"]
        gone = await admin.get(f"{DEVICES}/camera")
    assert [event["action"] for event in events] == [
        f"device.{did}" for did in ("add", "disable", "enable", "revoke", "delete")
    ]
    assert {event["principal"] for event in events} == {"user:admin"}
    assert gone.status_code == 404


async def test_the_audit_log_is_paged_filtered_and_waited_for(door: Door) -> None:
    async with door.admin() as admin, asyncio.timeout(20):
        for number in range(3):
            await admin.post(DEVICES, json={"device": f"camera-{number}"})
        first = (await admin.get("/api/v1/audit", params={"action": "device.add", "limit": 2})).json()
        rest = (await admin.get("/api/v1/audit", params={"action": "device.add", "after": first["next"]})).json()
        waiting = asyncio.create_task(admin.get("/api/v1/audit", params={"after": rest["next"], "wait": 30}))
        await asyncio.sleep(0)
        await admin.post(f"{DEVICES}/camera-0/disable")
        live = (await waiting).json()
        broken = await admin.get("/api/v1/audit", params={"after": "???"})
    assert [event["result"] for event in first["events"] + rest["events"]] == [f"device:camera-{n}" for n in range(3)]
    assert (first["more"], rest["more"]) == (True, False)
    assert [event["action"] for event in live["events"]] == ["device.disable"]
    assert broken.status_code == 422
