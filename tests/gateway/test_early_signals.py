"""Proves over the real engine: an early signal is taken without a suspension, and what each sender learns of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from engine.clock import SystemSource
from engine.events import Whose
from engine.service import Engine
from engine.store.memory import ManualClock, MemoryStore
from engine.workflows.loading import Catalog
from gateway.answers import WaitsListed, body, http_reply, mqtt_payload
from gateway.audit import Audit
from gateway.auth import Principal
from gateway.deliver import Deliver, Delivered, Origin
from tests.support.doors import HTTP, Gatehouse

FRONT_DOOR = """
name: front-door
trigger: { topic: true }
jobs:
  - name: main
    steps:
      - name: identify
        task:
          type: wait_for_signal
          key: kitchen-verdict
          acceptEarly: 10
          timeout: 30
          schema:
            type: object
            required: [verdict]
            properties: { verdict: { type: string, enum: [known, intruder] } }
"""
BACK_DOOR = """
name: back-door
jobs:
  - name: main
    steps:
      - name: identify
        task: { type: wait_for_signal, key: kitchen-verdict, timeout: 30 }
"""
KNOWN = b'{"verdict":"known"}'
MARKER = "never-to-be-written-in-an-event"
TOPIC = "replies/signals/front-door/kitchen-verdict/accepted"


class Silent:
    async def publish(self, topic: str, payload: bytes, whose: Whose) -> int:
        return 0


class Site:
    """A gateway's parts over the real engine and a store whose clock is set by hand."""

    def __init__(self, engine: Engine, store: MemoryStore, clock: ManualClock, audit: Audit) -> None:
        self.engine = engine
        self.clock = clock
        self.house = Gatehouse(engine, store)
        self.house.audit = audit
        self.house.deliver = Deliver(engine, self.house.authority, self.house.limits, audit, self.house.source)

    async def signal(
        self, who: Principal, raw: bytes = KNOWN, *, workflow: str = "front-door", signal_id: str | None = None
    ) -> Delivered:
        return await self.house.deliver.signal(
            who, HTTP, workflow=workflow, key="kitchen-verdict", raw=raw, signal_id=signal_id
        )

    async def run(self, workflow: str = "front-door") -> str:
        run = await self.engine.start_run(workflow, {}, by="user:admin")
        await self.engine.settled(run)
        return run

    async def step(self, run: str) -> dict[str, Any]:
        await self.engine.settled(run)
        shown = await self.engine.run(run)
        step: dict[str, Any] = shown["jobs"][0]["steps"][0]
        return step


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    (tmp_path / "front-door.yaml").write_text(FRONT_DOOR)
    (tmp_path / "back-door.yaml").write_text(BACK_DOOR)
    catalog = Catalog(tmp_path)
    catalog.reload()
    clock = ManualClock()
    store = MemoryStore(clock)
    audit = Audit(store, "one", SystemSource())
    async with Engine(store, catalog, observer=audit, publisher=Silent(), source=SystemSource()) as engine:
        yield Site(engine, store, clock, audit)


def without_ids(delivered: Delivered) -> bytes:
    """Give the MQTT reply with its ids and its time masked, at their own lengths."""
    text = mqtt_payload(delivered.words, delivered.id, topic=TOPIC).decode()
    fields = json.loads(text)
    for name in ("id", "receipt", "at"):
        text = text.replace(fields[name], "#" * len(fields[name]))
    return text.encode()


async def test_a_signal_only_sender_is_early_and_the_run_takes_it_without_suspending(site: Site) -> None:
    kitchen = await site.house.device("kitchen", "signal:front-door/kitchen-verdict")
    delivered = await site.signal(kitchen)
    assert delivered.words.code == 202
    assert delivered.words.receipt is not None
    run = await site.run()
    step = await site.step(run)
    assert step["status"] == "succeeded"
    assert step["outputs"] == {"payload": {"verdict": "known"}, "receipt": delivered.words.receipt.id}
    assert "suspended" not in [event["event"] for event in await site.engine.events(run)]


async def test_held_and_delivered_are_the_same_bytes_for_a_signal_only_sender(site: Site) -> None:
    kitchen = await site.house.device("kitchen", "signal:front-door/kitchen-verdict")
    held = await site.signal(kitchen)
    assert (await site.step(await site.run()))["status"] == "succeeded"
    run = await site.run()
    assert (await site.step(run))["status"] == "suspended"
    delivered = await site.signal(kitchen)
    assert (await site.step(run))["status"] == "succeeded"
    identified = [await site.signal(kitchen, signal_id="aaaaaaaaaaaaaaaa") for _ in range(3)]
    assert len({without_ids(each) for each in (held, delivered, *identified)}) == 1
    assert len({mqtt_payload(each.words, each.id, topic=TOPIC) for each in identified}) == 1
    assert {http_reply(each.words, each.id).status for each in (held, delivered, *identified)} == {202}


async def test_a_reader_is_told_which_of_them_it_was(site: Site) -> None:
    reader = await site.house.device("kitchen", "signal:front-door", "read:front-door")
    held = body((await site.signal(reader)).words, "1")
    assert (held["state"], held["duplicate"], held["held_until"]) == ("held", False, "2026-01-01T00:00:10.000Z")
    await site.run()
    run = await site.run()
    delivered = body((await site.signal(reader)).words, "1")
    assert (delivered["state"], delivered["run"], delivered["step"]) == ("delivered", run, "identify")


async def test_a_second_early_signal_is_refused_with_the_first_ones_receipt_for_its_own_sender(site: Site) -> None:
    kitchen = await site.house.device("kitchen", "signal:front-door/kitchen-verdict")
    hall = await site.house.device("hall", "signal:front-door/kitchen-verdict")
    ann = await site.house.operator("ann", "signal", "read")
    first = await site.signal(kitchen)
    assert first.words.receipt is not None
    own, other, read = [body((await site.signal(who)).words, "1") for who in (kitchen, hall, ann)]
    assert {answer["error"] for answer in (own, other, read)} == {"early_signal_held"}
    assert own["receipt"] == read["receipt"] == first.words.receipt.id
    assert "receipt" not in other
    assert "held_until" not in own
    assert read["held_until"] == "2026-01-01T00:00:10.000Z"


async def test_without_accept_early_a_signal_finds_no_open_wait(site: Site) -> None:
    kitchen = await site.house.device("kitchen", "signal:back-door")
    assert (await site.signal(kitchen, workflow="back-door")).words.error == "no_open_wait"
    run = await site.run("back-door")
    assert (await site.signal(kitchen, workflow="back-door")).words.ok
    assert (await site.step(run))["status"] == "succeeded"


async def test_an_unknown_workflow_an_undeclared_key_and_no_grant_are_one_answer(site: Site) -> None:
    granted = await site.house.device("kitchen", "signal:nowhere", "signal:front-door")
    denied = await site.house.device("hall")
    unknown = await site.signal(granted, workflow="nowhere", signal_id="1")
    undeclared = await site.house.deliver.signal(
        granted, HTTP, workflow="front-door", key="no-such-key", raw=KNOWN, signal_id="1"
    )
    refused = await site.signal(denied, signal_id="1")
    assert len({json.dumps(body(answer.words, "1")) for answer in (unknown, undeclared, refused)}) == 1
    assert refused.words.error == "not_found"


async def test_a_payload_that_the_schema_refuses_leaves_nothing_but_its_event(site: Site) -> None:
    kitchen = await site.house.device("kitchen", "signal:front-door/kitchen-verdict")
    await site.house.audit.written()
    before = {record.key for record in await site.house.store.list("") if not record.key.startswith("audit/")}
    delivered = await site.signal(kitchen, json.dumps({"verdict": MARKER, MARKER: 1}).encode(), signal_id="1")
    assert delivered.words.error == "invalid_payload"
    assert delivered.words.details == {"problems": [{"pointer": "/verdict", "rule": "enum"}]}
    after = {record.key for record in await site.house.store.list("") if not record.key.startswith("audit/")}
    assert after == before


async def test_events_tell_of_the_holding_and_the_taking_with_receipt_and_key_and_never_the_payload(
    site: Site,
) -> None:
    kitchen = await site.house.device("kitchen", "signal:front-door/kitchen-verdict")
    delivered = await site.signal(kitchen, json.dumps({"verdict": "known", "note": MARKER}).encode())
    assert delivered.words.receipt is not None
    run = await site.run()
    assert (await site.step(run))["status"] == "succeeded"
    await site.house.audit.written()
    (held,) = await site.house.events("signal.held")
    (taken,) = await site.house.events("signal.taken")
    assert held.receipt == taken.receipt == delivered.words.receipt.id
    assert (held.workflow, held.key, taken.key) == ("front-door", "kitchen-verdict", "kitchen-verdict")
    assert taken.run == run
    assert all(MARKER.encode() not in record.value for record in await site.house.store.list("audit/"))


async def test_a_wait_is_signalled_by_its_id_once(site: Site) -> None:
    kitchen = await site.house.device("kitchen", "signal:front-door/kitchen-verdict")
    run = await site.run()
    wait = (await site.step(run))["wait"]
    answers = [
        await site.house.deliver.signal_wait(kitchen, HTTP, wait=wait, raw=KNOWN, signal_id=each) for each in "112"
    ]
    assert [answer.words.error for answer in answers] == ["", "", "already_settled"]
    assert answers[0].words == answers[1].words
    unknown = await site.house.deliver.signal_wait(kitchen, HTTP, wait="0" * 26, raw=KNOWN)
    assert unknown.words.error == "not_found"


async def test_a_device_starts_a_run_once_for_each_id_and_a_reader_sees_its_wait(site: Site) -> None:
    kitchen = await site.house.device("kitchen", "run:front-door", "read:front-door", "run:back-door")
    started = [
        await site.house.deliver.start_run(kitchen, HTTP, workflow="front-door", raw=b"", signal_id="7")
        for _ in range(2)
    ]
    (run,) = {str(body(answer.words, "7")["run"]) for answer in started}
    assert (await site.step(run))["status"] == "suspended"
    listed = (await site.house.deliver.waits(kitchen, HTTP, workflow="front-door")).answer
    assert isinstance(listed, WaitsListed)
    assert [(wait["key"], wait["run"]) for wait in listed.waits] == [("kitchen-verdict", run)]
    untriggered = await site.house.deliver.start_run(kitchen, HTTP, workflow="back-door", raw=b"", signal_id="7")
    assert untriggered.words.error == "not_found"


async def test_a_signal_that_was_under_way_for_longer_than_early_ones_are_taken_is_delivered_but_not_held(
    site: Site,
) -> None:
    kitchen = await site.house.device("kitchen", "signal:front-door/kitchen-verdict")
    late = Origin(door="bridge", age_seconds=10.5)

    async def signal(origin: Origin) -> Delivered:
        return await site.house.deliver.signal(kitchen, origin, workflow="front-door", key="kitchen-verdict", raw=KNOWN)

    assert (await signal(late)).words.error == "no_open_wait"
    run = await site.run()
    assert (await signal(late)).words.code == 202
    assert (await site.step(run))["status"] == "succeeded"
    assert (await signal(Origin(door="bridge", age_seconds=9.5))).words.code == 202
    assert (await site.step(await site.run()))["status"] == "succeeded"


async def test_a_stale_signal_or_run_is_refused_after_its_grant_and_changes_nothing(site: Site) -> None:
    kitchen = await site.house.device("kitchen", "signal:front-door/kitchen-verdict", "run:front-door")
    stale = Origin(door="bridge", age_seconds=40.0, stale=True)
    refused = await site.house.deliver.signal(
        kitchen, stale, workflow="front-door", key="kitchen-verdict", raw=KNOWN, signal_id="s1"
    )
    assert (refused.words.code, refused.words.error) == (410, "stale")
    refused = await site.house.deliver.signal(kitchen, stale, workflow="back-door", key="kitchen-verdict", raw=KNOWN)
    assert refused.words.error == "not_found"
    refused = await site.house.deliver.start_run(kitchen, stale, workflow="front-door", raw=b"{}", signal_id="r1")
    assert refused.words.error == "stale"
    assert (await site.engine.runs())[0] == []
    assert (await site.step(await site.run()))["status"] == "suspended"


async def test_what_the_door_itself_repeats_is_not_counted_against_the_device_again(site: Site) -> None:
    kitchen = await site.house.device("kitchen", "signal:front-door/kitchen-verdict")
    again = Origin(door="bridge", again=True)
    answers = set()
    for number in range(30):
        delivered = await site.house.deliver.signal(
            kitchen, again, workflow="front-door", key="kitchen-verdict", raw=KNOWN, signal_id=f"s{number}"
        )
        answers.add(delivered.words.error)
    assert answers == {"", "early_signal_held"}
