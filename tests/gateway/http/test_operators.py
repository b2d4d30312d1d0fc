"""Proves that operators are added with the rights that are named, and that only an admin changes them."""

from __future__ import annotations

from tests.gateway.http.conftest import Door


async def test_an_operator_is_added_rotated_and_revoked_with_its_token_shown_once(door: Door) -> None:
    async with door.admin() as api:
        added = await api.post("/api/v1/operators", json={"operator": "nina", "rights": ["signal", "read"]})
        assert (added.status_code, added.json()["rights"]) == (201, ["read", "signal"])
        first = added.json()["token"]
        listed = (await api.get("/api/v1/operators")).json()["operators"]
        assert {entry["operator"] for entry in listed} == {"admin", "nina"}
        assert first not in (await api.get("/api/v1/operators")).text
        second = (await api.post("/api/v1/operators/nina/rotate")).json()["token"]
        for token in (first, second):
            assert (await door.client(token).get("/api/v1/waits")).status_code == 200
        assert (await api.post("/api/v1/operators/nina/rotate/finish")).json()["tokens"] == 1
        assert (await door.client(first).get("/api/v1/waits")).status_code == 401
        assert (await api.post("/api/v1/operators/nina/revoke")).json()["state"] == "deleted"
        assert (await door.client(second).get("/api/v1/waits")).status_code == 401
        assert (await api.post("/api/v1/operators/nina/revoke")).status_code == 404
        events = (await api.get("/api/v1/audit", params={"action": "operator"})).json()["events"]
        done = [event["action"] for event in events if "nina" in event["result"]]
        assert done == [f"operator.{what}" for what in ("add", "rotate", "rotate_finish", "revoke")]


async def test_who_is_no_admin_sees_and_changes_no_operator(door: Door) -> None:
    async with await door.operator("read", "run", "signal") as somebody, await door.device("read:*") as device:
        for client in (somebody, device):
            assert (await client.get("/api/v1/operators")).status_code == 403
            body = {"operator": "nina", "rights": ["admin"]}
            assert (await client.post("/api/v1/operators", json=body)).status_code == 403
            for what in ("rotate", "rotate/finish", "revoke"):
                assert (await client.post(f"/api/v1/operators/admin/{what}")).status_code == 403
    assert door.services.registry.operator("nina") is None


async def test_an_unknown_right_a_bad_name_and_a_second_of_the_name_are_refused(door: Door) -> None:
    async with door.admin() as api:
        for body, status in (
            ({"operator": "nina", "rights": ["everything"]}, 422),
            ({"operator": "nina", "rights": []}, 422),
            ({"operator": "Nina!", "rights": ["read"]}, 422),
            ({"operator": "admin", "rights": ["read"]}, 409),
        ):
            answer = await api.post("/api/v1/operators", json=body)
            assert answer.status_code == status, body
            assert answer.headers["content-type"] == "application/problem+json"
        assert (await api.post("/api/v1/operators/nobody/rotate")).status_code == 404
