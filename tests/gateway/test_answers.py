"""Proves each door's words: what a signal-only sender may not learn, what small clients can hold, codes and reasons."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.payload import PayloadProblem
from engine.records import Sender
from engine.results import (
    AlreadySettled,
    Contended,
    EarlySignalHeld,
    InvalidPayload,
    LastWait,
    NoOpenWait,
    NotDeclared,
    Receipt,
    SignalIdReused,
    SlotFull,
    Taken,
    WaitClosed,
    Where,
)
from engine.workflows.schema import SchemaProblem
from gateway.answers import (
    TITLES,
    BadInputs,
    BadTopic,
    DoorAnswer,
    ErrorName,
    RateLimited,
    RetainedNotAllowed,
    RunStarted,
    Stale,
    Stopping,
    StoreAway,
    Unauthorized,
    WaitsListed,
    body,
    http_reply,
    mqtt_payload,
    mqtt_reason,
    say,
)

AT = datetime(2026, 11, 30, 12, 0, 0, 123_999, tzinfo=UTC)
RECEIPT = Receipt("a" * 26, AT)
WHERE = Where(wait="w" * 26, run="r" * 26, job="main", step="identify")
LAST = LastWait(how="accepted", at=AT, receipt=RECEIPT)
KITCHEN = Sender(kind="device", id="kitchen")
HALL = Sender(kind="device", id="hall")
SHORT_ID = "0123456789abcdef"
TOPIC = "d/kitchen/replies/signals/front-door/kitchen-verdict/accepted"

TAKEN: list[DoorAnswer] = [
    Taken(receipt=RECEIPT, state="delivered", where=WHERE),
    Taken(receipt=RECEIPT, state="delivered", where=WHERE, duplicate=True),
    Taken(receipt=RECEIPT, state="held", held_until=AT + timedelta(seconds=10)),
    Taken(receipt=RECEIPT, state="held", held_until=AT, duplicate=True),
    Taken(receipt=RECEIPT, state="expired", duplicate=True),
    Taken(receipt=RECEIPT, state="superseded", duplicate=True),
]
TABLE: list[tuple[DoorAnswer, int, str, int]] = [
    (TAKEN[0], 202, "", 0x00),
    (RunStarted("r" * 26), 202, "", 0x00),
    (WaitsListed(()), 200, "", 0x00),
    (PayloadProblem("bad_payload", "not an object", "", 2), 400, "bad_payload", 0x99),
    (BadTopic("signals/<workflow>/<key>"), 400, "bad_topic", 0x99),
    (Unauthorized(), 401, "unauthorized", 0x87),
    (NotDeclared(), 404, "not_found", 0x87),
    (NoOpenWait(LAST), 409, "no_open_wait", 0x83),
    (EarlySignalHeld(RECEIPT, HALL, AT), 409, "early_signal_held", 0x83),
    (AlreadySettled(LAST), 409, "already_settled", 0x83),
    (WaitClosed(), 410, "wait_closed", 0x83),
    (Stale(), 410, "stale", 0x83),
    (PayloadProblem("payload_too_large", "more than 16384 bytes", "", 20_000), 413, "payload_too_large", 0x97),
    (RetainedNotAllowed(), 422, "retained_not_allowed", 0x83),
    (InvalidPayload((SchemaProblem("/verdict", "enum"),)), 422, "invalid_payload", 0x83),
    (BadInputs(("/camera: type",)), 422, "invalid_payload", 0x83),
    (SignalIdReused(), 422, "signal_id_reused", 0x83),
    (RateLimited(limit="signals", retry_after_seconds=0.2), 429, "rate_limited", 0x97),
    (SlotFull(), 429, "rate_limited", 0x97),
    (Contended(), 503, "contended", 0x83),
    (StoreAway(), 503, "store_unavailable", 0x83),
    (Stopping(), 503, "stopping", 0x83),
]


def mqtt(answer: DoorAnswer, *, reader: bool, request_id: str = SHORT_ID, sender: Sender = KITCHEN) -> bytes:
    return mqtt_payload(say(answer, reader=reader, sender=sender), request_id, topic=TOPIC)


@pytest.mark.parametrize(("answer", "code", "error", "reason"), TABLE)
def test_each_result_has_its_code_its_name_and_its_reason(
    answer: DoorAnswer, code: int, error: str, reason: int
) -> None:
    words = say(answer, reader=True)
    assert (words.code, words.error, mqtt_reason(words)) == (code, error, reason)
    reply = json.loads(mqtt(answer, reader=True))
    assert (reply["v"], reply["ok"], reply["code"], reply.get("error", "")) == (1, not error, code, error)
    assert http_reply(words, "1").status == code


def test_every_error_name_has_a_title_and_a_row_in_the_table() -> None:
    assert set(TITLES) == set(get_args(ErrorName)) == {error for _, _, error, _ in TABLE if error}


def test_a_sender_who_may_only_signal_gets_the_same_bytes_whatever_became_of_the_signal() -> None:
    assert len({mqtt(answer, reader=False) for answer in TAKEN}) == 1
    assert len({json.dumps(http_reply(say(answer, reader=False), "1").body) for answer in TAKEN}) == 1


def test_that_reply_takes_at_most_128_bytes_without_a_signal_id() -> None:
    reply = mqtt(TAKEN[0], reader=False)
    assert reply == (
        b'{"v":1,"ok":true,"code":202,"id":"0123456789abcdef",'
        b'"receipt":"aaaaaaaaaaaaaaaaaaaaaaaaaa","at":"2026-11-30T12:00:00.123Z"}'
    )
    assert len(reply) <= 128


def test_a_reader_is_told_the_state_until_when_and_which_wait() -> None:
    held = body(say(TAKEN[2], reader=True), "1")
    assert (held["state"], held["duplicate"], held["held_until"]) == ("held", False, "2026-11-30T12:00:10.123Z")
    delivered = body(say(TAKEN[1], reader=True), "1")
    assert delivered["duplicate"] is True
    assert (delivered["wait"], delivered["run"], delivered["job"], delivered["step"]) == (
        "w" * 26,
        "r" * 26,
        "main",
        "identify",
    )
    small = json.loads(mqtt(TAKEN[2], reader=True))
    assert (small["state"], small["held_until"]) == ("held", "2026-11-30T12:00:10.123Z")


def test_the_stored_receipt_of_an_early_signal_is_for_its_sender_and_for_readers() -> None:
    answer = EarlySignalHeld(RECEIPT, HALL, AT)
    assert "receipt" not in body(say(answer, reader=False, sender=KITCHEN), "1")
    own = body(say(answer, reader=False, sender=HALL), "1")
    assert own["receipt"] == "a" * 26
    assert "held_until" not in own
    read = body(say(answer, reader=True, sender=KITCHEN), "1")
    assert (read["receipt"], read["held_until"]) == ("a" * 26, "2026-11-30T12:00:00.123Z")


@pytest.mark.parametrize("answer", [NoOpenWait(LAST), AlreadySettled(LAST), WaitClosed()])
def test_how_a_wait_was_settled_is_for_readers_alone(answer: DoorAnswer) -> None:
    plain = body(say(answer, reader=False), "1")
    assert set(plain) == {"v", "ok", "code", "error", "id"}
    if isinstance(answer, NoOpenWait):
        told = body(say(answer, reader=True), "1")["last_wait"]
        assert told == {"how": "accepted", "at": "2026-11-30T12:00:00.123Z", "receipt": "a" * 26}


@given(
    st.sampled_from([answer for answer, *_ in TABLE] + TAKEN),
    st.booleans(),
    st.text("abcxyz-_", min_size=1, max_size=64),
    st.integers(min_value=1, max_value=200),
    st.integers(min_value=0, max_value=40),
)
def test_a_packet_fits_256_bytes_or_only_the_words_that_are_always_kept_remain(
    answer: DoorAnswer, reader: bool, request_id: str, topic_length: int, correlation: int
) -> None:
    topic = "t" * topic_length
    words = say(answer, reader=reader, sender=HALL)
    payload = mqtt_payload(words, request_id, topic=topic, correlation_bytes=correlation)
    properties = 1 + (3 + correlation if correlation else 0)
    packet = 1 + 2 + 2 + topic_length + 2 + properties + len(payload)
    kept = {"v", "ok", "code", "error", "id", "receipt", "at"}
    assert packet <= 256 or set(json.loads(payload)) <= kept | {"waits", "more"}
    if "waits" in json.loads(payload) and packet > 256:
        assert json.loads(payload)["waits"] == []


def test_many_schema_problems_lose_the_last_ones_first_and_say_how_many() -> None:
    answer = InvalidPayload(tuple(SchemaProblem(f"/member-{n}", "type") for n in range(12)))
    small = json.loads(mqtt(answer, reader=False))
    assert small["problems"][0] == {"pointer": "/member-0", "rule": "type"}
    assert len(small["problems"]) + small["more"] == 12
    problems = body(say(answer, reader=False), "1")["problems"]
    assert isinstance(problems, list)
    assert len(problems) == 12


def test_the_first_three_waits_are_listed_and_the_number_of_the_others() -> None:
    waits = tuple({"wait": f"{n}" * 26, "key": f"key-{n}", "deadline": "2026-11-30T12:00:00.000Z"} for n in range(5))
    small = json.loads(mqtt_payload(say(WaitsListed(waits), reader=True), SHORT_ID, topic="replies/waits/w/-/accepted"))
    assert [wait["key"] for wait in small["waits"]] == ["key-0", "key-1", "key-2"]
    assert small["more"] == 2
    assert body(say(WaitsListed(waits), reader=True), "1")["waits"] == [dict(wait) for wait in waits]


def test_http_refusals_are_problems_with_the_fields_of_the_other_doors() -> None:
    reply = http_reply(say(RateLimited(limit="signals", retry_after_seconds=1.2), reader=False), "42")
    assert reply.headers == {"content-type": "application/problem+json", "retry-after": "2"}
    assert reply.body == {
        "type": "rate_limited",
        "title": "Too many at a time",
        "status": 429,
        "v": 1,
        "ok": False,
        "code": 429,
        "error": "rate_limited",
        "id": "42",
        "limit": "signals",
        "retry_after_ms": 1200,
    }


def test_http_receipts_are_plain_json_and_an_unknown_credential_names_the_scheme() -> None:
    assert http_reply(say(TAKEN[0], reader=False), "42").headers == {"content-type": "application/json"}
    assert http_reply(say(Unauthorized(), reader=False), "-").headers["www-authenticate"] == "Bearer"
