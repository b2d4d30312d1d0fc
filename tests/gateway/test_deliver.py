"""Proves the order of checks of a delivery, what each sender may learn, and that an answer follows a durable event."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from devices import operations
from engine.clock import derived_id
from engine.errors import BadInput, NotFound, StoreUnavailable, UnreadableRecord, WaysideError
from engine.records import Sender
from engine.results import (
    AlreadySettled,
    Answer,
    Contended,
    EarlySignalHeld,
    InvalidPayload,
    LastWait,
    NoOpenWait,
    NotDeclared,
    Receipt,
    SignalIdReused,
    Taken,
    WaitClosed,
    Where,
)
from engine.workflows.schema import SchemaProblem
from gateway.answers import body
from gateway.auth import Principal
from gateway.deliver import Delivered
from tests.support.doors import HTTP, Address, Definition, Gatehouse, ScriptedEngine

AT = datetime(2026, 1, 1, tzinfo=UTC)
RECEIPT = Receipt("a" * 26, AT)
TAKEN = Taken(receipt=RECEIPT, state="delivered", where=Where(wait="w" * 26, run="r" * 26, job="main", step="identify"))
HELD = Taken(receipt=RECEIPT, state="held", held_until=AT)
GRANT = "signal:front-door/kitchen-verdict"
MARKER = "never-to-be-written-anywhere"
PAYLOAD = b'{"verdict":"never-to-be-written-anywhere"}'
WAIT = "w" * 26


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine(TAKEN)


@pytest.fixture
def house(engine: ScriptedEngine) -> Gatehouse:
    return Gatehouse(engine)


async def signal(
    house: Gatehouse, who: Principal, raw: bytes = PAYLOAD, signal_id: str | None = None, *, retained: bool = False
) -> Delivered:
    return await house.deliver.signal(
        who, HTTP, workflow="front-door", key="kitchen-verdict", raw=raw, signal_id=signal_id, retained=retained
    )


async def test_a_granted_signal_reaches_the_engine_and_its_event_is_durable_before_the_answer(
    house: Gatehouse, engine: ScriptedEngine
) -> None:
    kitchen = await house.device("kitchen", GRANT)
    delivered = await signal(house, kitchen, signal_id="s-1")
    assert engine.asked == [("signal_key", "front-door", "kitchen-verdict", "kitchen", "s-1")]
    assert (delivered.words.code, delivered.id) == (202, "s-1")
    (event,) = await house.events("signal.")
    assert (event.action, event.result, event.principal) == ("signal.delivered", "delivered", "device:kitchen")
    assert (event.workflow, event.key, event.receipt) == ("front-door", "kitchen-verdict", "a" * 26)
    assert (event.wait, event.run) == ("w" * 26, "r" * 26)
    assert (event.door, event.address, event.bytes) == ("http", "192.0.2.1", len(PAYLOAD))


async def test_without_an_id_the_answer_names_the_payload_by_a_short_digest(house: Gatehouse) -> None:
    delivered = await signal(house, await house.device("kitchen", GRANT), b"{}")
    assert delivered.id == "44136fa355b3678a"


@pytest.mark.parametrize(
    ("answer", "action", "result"),
    [
        (TAKEN, "signal.delivered", "delivered"),
        (HELD, "signal.held", "held"),
        (Taken(receipt=RECEIPT, state="held", duplicate=True), "signal.duplicate", "held"),
        (Taken(receipt=RECEIPT, state="expired", duplicate=True), "signal.duplicate", "expired"),
        (NotDeclared(), "signal.refused", "not_found"),
        (NoOpenWait(None), "signal.refused", "no_open_wait"),
        (EarlySignalHeld(RECEIPT, Sender(kind="device", id="hall"), AT), "signal.refused", "early_signal_held"),
        (InvalidPayload((SchemaProblem("/verdict", "enum"),)), "signal.refused", "invalid_payload"),
        (SignalIdReused(), "signal.refused", "signal_id_reused"),
        (Contended(), "signal.refused", "contended"),
    ],
)
async def test_every_answer_of_the_protocol_is_audited_by_its_name(
    house: Gatehouse, engine: ScriptedEngine, answer: Answer, action: str, result: str
) -> None:
    engine.answer = answer
    delivered = await signal(house, await house.device("kitchen", GRANT))
    (event,) = await house.events("signal.")
    assert (event.action, event.result) == (action, result)
    assert delivered.answer == answer


@pytest.mark.parametrize("raw", [PAYLOAD, b"not json", b"x" * 20_000])
@pytest.mark.parametrize("grants", [(), ("signal:front-door/hall-verdict",), ("read:front-door", "run:front-door")])
async def test_without_the_grant_nothing_is_read_and_the_answer_is_that_of_an_unknown_key(
    house: Gatehouse, engine: ScriptedEngine, raw: bytes, grants: tuple[str, ...]
) -> None:
    granted = await house.device("granted", GRANT)
    denied = await house.device("denied", *grants)
    engine.answer = NotDeclared()
    unknown = await signal(house, granted, signal_id="same")
    engine.asked.clear()
    refused = await signal(house, denied, raw, signal_id="same")
    assert engine.asked == []
    assert body(refused.words, "1") == body(unknown.words, "1")
    assert [event.reason for event in await house.events("signal.refused")] == ["", "no_grant"]


async def test_a_credential_that_has_ended_is_refused_on_every_message(
    house: Gatehouse, engine: ScriptedEngine
) -> None:
    kitchen = await house.device("kitchen", GRANT)
    assert (await signal(house, kitchen)).words.ok
    await operations.disable(house.registry, "kitchen", by="user:admin")
    engine.asked.clear()
    assert (await signal(house, kitchen)).words.error == "unauthorized"
    assert engine.asked == []


async def test_the_rate_comes_before_the_grant_and_names_the_limit(house: Gatehouse, engine: ScriptedEngine) -> None:
    denied = await house.device("denied")
    answers = [await signal(house, denied) for _ in range(22)]
    assert [delivered.words.error for delivered in answers] == ["not_found"] * 20 + ["rate_limited"] * 2
    assert [delivered.answer_it for delivered in answers[-2:]] == [True, False]
    assert answers[-1].words.details == {"limit": "signals", "retry_after_ms": 200}
    identified = await signal(house, denied, signal_id="mine")
    assert identified.answer_it
    assert engine.asked == []


async def test_an_operator_has_no_rate(house: Gatehouse) -> None:
    ann = await house.operator("ann", "signal")
    assert all([(await signal(house, ann)).words.ok for _ in range(50)])


async def test_a_retained_signal_is_refused_after_its_grant_and_before_its_payload(
    house: Gatehouse, engine: ScriptedEngine
) -> None:
    assert (await signal(house, await house.device("denied"), retained=True)).words.error == "not_found"
    kitchen = await house.device("kitchen", GRANT)
    assert (await signal(house, kitchen, b"not json", retained=True)).words.error == "retained_not_allowed"
    assert engine.asked == []


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (b"", "bad_payload"),
        (b"[]", "bad_payload"),
        (b'{"a":1,"a":2}', "bad_payload"),
        (b'{"a":NaN}', "bad_payload"),
        (b'{"a":"' + b"x" * 16_384 + b'"}', "payload_too_large"),
    ],
)
async def test_a_payload_outside_the_limits_never_reaches_the_engine(
    house: Gatehouse, engine: ScriptedEngine, raw: bytes, error: str
) -> None:
    assert (await signal(house, await house.device("kitchen", GRANT), raw)).words.error == error
    assert engine.asked == []


@pytest.mark.parametrize("fault", [StoreUnavailable("away"), UnreadableRecord("claims/w/k/1", "it is too large")])
async def test_when_nothing_was_decided_the_sender_is_told_to_try_again(
    house: Gatehouse, engine: ScriptedEngine, fault: WaysideError
) -> None:
    engine.answer = fault
    delivered = await signal(house, await house.device("kitchen", GRANT))
    assert (delivered.words.code, delivered.words.error) == (503, "store_unavailable")
    reasons = [event.reason for event in await house.events("signal.")]
    assert reasons == (["record_unreadable"] if isinstance(fault, UnreadableRecord) else [])


async def test_no_answer_is_given_while_its_event_is_not_durable(house: Gatehouse) -> None:
    kitchen = await house.device("kitchen", GRANT)
    await house.audit.written()
    away = True

    async def fail(operation: str, key: str) -> None:
        if away and operation == "create":
            raise StoreUnavailable("away")

    house.store.before_operation = fail
    assert (await signal(house, kitchen)).words.error == "store_unavailable"
    away = False
    assert (await signal(house, kitchen)).words.ok
    assert len(await house.events("signal.delivered")) == 2


async def test_a_flood_of_refusals_costs_the_store_one_event(house: Gatehouse) -> None:
    denied = await house.device("denied")
    for _ in range(200):
        await signal(house, denied)
    assert [event.result for event in await house.events("signal.")] == ["not_found", "rate_limited"]


async def test_a_device_that_floods_for_half_a_minute_is_to_be_closed(house: Gatehouse) -> None:
    kitchen = await house.device("kitchen", GRANT)
    closed = []
    for _ in range(31 * 60):
        house.source.advance(1 / 60)
        closed.append((await signal(house, kitchen)).close)
    assert closed.count(True) == 1


# -- by wait id ----------------------------------------------------------------------------------------------------


async def by_wait(house: Gatehouse, who: Principal, wait: str = WAIT, raw: bytes = PAYLOAD) -> Delivered:
    return await house.deliver.signal_wait(who, HTTP, wait=wait, raw=raw, signal_id="1")


async def test_a_signal_by_wait_id_needs_the_grant_of_the_waits_key(house: Gatehouse, engine: ScriptedEngine) -> None:
    engine.addresses[WAIT] = Address("front-door", "kitchen-verdict")
    assert (await by_wait(house, await house.device("kitchen", GRANT))).words.ok
    assert engine.asked == [("address_of", WAIT), ("signal_wait", WAIT, "1")]
    refused = await by_wait(house, await house.device("hall", "signal:front-door/hall-verdict"))
    assert refused.words.error == "not_found"


async def test_a_wait_without_a_key_needs_the_grant_on_the_workflow(house: Gatehouse, engine: ScriptedEngine) -> None:
    engine.addresses[WAIT] = Address("front-door", None)
    assert (await by_wait(house, await house.device("kitchen", GRANT))).words.error == "not_found"
    assert (await by_wait(house, await house.device("hall", "signal:front-door"))).words.ok


async def test_an_unknown_wait_and_one_of_somebody_else_are_one_answer_with_one_read_each(
    house: Gatehouse, engine: ScriptedEngine
) -> None:
    engine.addresses[WAIT] = Address("front-door", "hall-verdict")
    kitchen = await house.device("kitchen", GRANT)
    for raw in (PAYLOAD, b"not json"):
        foreign = await by_wait(house, kitchen, raw=raw)
        unknown = await by_wait(house, kitchen, "x" * 26, raw=raw)
        assert body(foreign.words, "1") == body(unknown.words, "1")
    assert [call[0] for call in engine.asked] == ["address_of"] * 4


async def test_without_any_signal_grant_a_wait_is_not_even_looked_up(house: Gatehouse, engine: ScriptedEngine) -> None:
    engine.addresses[WAIT] = Address("front-door", "kitchen-verdict")
    assert (await by_wait(house, await house.device("kitchen", "read:front-door"))).words.error == "not_found"
    assert engine.asked == []


@pytest.mark.parametrize(
    ("answer", "error"),
    [(AlreadySettled(LastWait(how="timed_out", at=AT)), "already_settled"), (WaitClosed(), "wait_closed")],
)
async def test_a_settled_wait_says_so(house: Gatehouse, engine: ScriptedEngine, answer: Answer, error: str) -> None:
    engine.addresses[WAIT] = Address("front-door", "kitchen-verdict")
    engine.answer = answer
    assert (await by_wait(house, await house.device("kitchen", GRANT))).words.error == error


# -- runs and waits ------------------------------------------------------------------------------------------------


async def start(house: Gatehouse, who: Principal, raw: bytes = b"", signal_id: str | None = "7") -> Delivered:
    return await house.deliver.start_run(who, HTTP, workflow="front-door", raw=raw, signal_id=signal_id)


async def test_a_run_that_a_device_starts_twice_under_one_id_is_one_run(
    house: Gatehouse, engine: ScriptedEngine
) -> None:
    engine.catalog.found["front-door"] = Definition(trigger_topic=True)
    kitchen = await house.device("kitchen", "run:front-door")
    one, two = await start(house, kitchen), await start(house, kitchen)
    expected = derived_id("run", "kitchen", "front-door", "7")
    assert body(one.words, "7")["run"] == body(two.words, "7")["run"] == expected
    assert engine.asked == [("start_run", "front-door", {}, "device:kitchen", expected)] * 2


async def test_a_device_starts_only_what_has_a_trigger_and_only_with_the_grant(
    house: Gatehouse, engine: ScriptedEngine
) -> None:
    engine.catalog.found["front-door"] = Definition(trigger_topic=False)
    answers = [await start(house, await house.device("kitchen", "run:front-door"))]
    answers.append(await start(house, await house.device("hall", "signal:front-door", "read:front-door")))
    engine.catalog.found.clear()
    answers.append(await start(house, await house.device("cellar", "run:front-door")))
    assert {answer.words.error for answer in answers} == {"not_found"}
    assert engine.asked == []
    assert [event.reason for event in await house.events("run.")] == ["no_trigger", "no_grant", "no_workflow"]


async def test_an_operator_starts_what_has_no_trigger(house: Gatehouse, engine: ScriptedEngine) -> None:
    engine.catalog.found["front-door"] = Definition(trigger_topic=False)
    assert (await start(house, await house.operator("ann", "run"), signal_id=None)).words.ok
    assert engine.asked == [("start_run", "front-door", {}, "user:ann", None)]


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (BadInput("no", problems=("/camera: type",)), "invalid_payload"),
        (NotFound("gone"), "not_found"),
        (StoreUnavailable("away"), "store_unavailable"),
    ],
)
async def test_a_run_that_cannot_be_started_says_why(
    house: Gatehouse, engine: ScriptedEngine, fault: WaysideError, error: str
) -> None:
    engine.catalog.found["front-door"] = Definition(trigger_topic=True)
    engine.answer = fault
    assert (await start(house, await house.device("kitchen", "run:front-door"))).words.error == error


async def test_a_reader_gets_the_waits_nearest_deadline_first(house: Gatehouse, engine: ScriptedEngine) -> None:
    engine.open_waits = [{"key": "b", "deadline": "2026-01-01T00:02:00.000Z"}, {"key": "a", "deadline": "2026-01-01"}]
    kitchen = await house.device("kitchen", "read:front-door")
    delivered = await house.deliver.waits(kitchen, HTTP, workflow="front-door")
    waits = body(delivered.words, "1")["waits"]
    assert isinstance(waits, list)
    assert [wait["key"] for wait in waits] == ["a", "b"]
    other = await house.deliver.waits(await house.device("hall", GRANT), HTTP, workflow="front-door")
    assert other.words.error == "not_found"


# -- all of them ---------------------------------------------------------------------------------------------------


async def test_a_stopping_gateway_takes_nothing_more(house: Gatehouse, engine: ScriptedEngine) -> None:
    kitchen = await house.device("kitchen", GRANT, "run:front-door", "read:front-door")
    house.deliver.stop()
    answers = [await signal(house, kitchen), await by_wait(house, kitchen), await start(house, kitchen)]
    answers.append(await house.deliver.waits(kitchen, HTTP, workflow="front-door"))
    assert {answer.words.error for answer in answers} == {"stopping"}
    assert engine.asked == []


@pytest.mark.parametrize(("workflow", "key", "signal_id"), [("a/b", "k", None), ("w", "+", None), ("w", "k", "a b")])
async def test_what_cannot_be_a_name_is_refused_before_it_is_compared_with_anything(
    house: Gatehouse, engine: ScriptedEngine, workflow: str, key: str, signal_id: str | None
) -> None:
    everything = await house.device("kitchen", "signal:*")
    delivered = await house.deliver.signal(
        everything, HTTP, workflow=workflow, key=key, raw=PAYLOAD, signal_id=signal_id
    )
    assert delivered.words.error == "bad_topic"
    assert engine.asked == []


async def test_no_payload_is_in_an_event_an_answer_or_a_representation(
    house: Gatehouse, engine: ScriptedEngine
) -> None:
    engine.catalog.found["front-door"] = Definition(trigger_topic=True)
    kitchen = await house.device("kitchen", "signal:*", "run:*")
    raws = [PAYLOAD, PAYLOAD[:-1], b'{"' + MARKER.encode() + b'":1,"' + MARKER.encode() + b'":1}', MARKER.encode()]
    answers: list[Answer] = [TAKEN, HELD, NoOpenWait(None), SignalIdReused()]
    for n, answer in enumerate(answers):
        engine.answer = answer
        house.source.advance(100)
        for raw in raws:
            delivered = await signal(house, kitchen, raw, f"s-{n}")
            assert MARKER not in repr(delivered)
            assert MARKER not in str(body(delivered.words, delivered.id))
        delivered = await start(house, kitchen, raws[n])
        assert MARKER not in repr(delivered)
    await house.audit.close()
    assert len(await house.events("signal.")) >= 10
    for record in await house.store.list(""):
        assert MARKER.encode() not in record.value
        assert MARKER not in record.key
