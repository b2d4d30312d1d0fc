"""Proves that a payload is accepted exactly when it is within the limits, and that no refusal tells what it said."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.limits import MAX_PAYLOAD_BYTES, MAX_PAYLOAD_DEPTH
from engine.payload import Payload, PayloadProblem, parse_payload

FORBIDDEN = {"__proto__", "constructor", "prototype"}
names = st.text(max_size=6).filter(lambda name: name not in FORBIDDEN)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(names, values, max_size=5)


def accepted(raw: bytes) -> Payload:
    payload = parse_payload(raw)
    assert isinstance(payload, Payload), payload
    return payload


def refused(raw: bytes) -> PayloadProblem:
    problem = parse_payload(raw)
    assert isinstance(problem, PayloadProblem)
    return problem


def depth(value: object) -> int:
    if isinstance(value, dict | list):
        return 1 + max((depth(inner) for inner in (value.values() if isinstance(value, dict) else value)), default=0)
    return 0


def plainly(raw: bytes) -> object:
    """Say what the rules say, in the most obvious way; None for what they refuse."""

    def members(pairs: list[tuple[str, object]]) -> dict[str, object]:
        if len({name for name, _ in pairs}) != len(pairs) or {name for name, _ in pairs} & FORBIDDEN:
            raise ValueError
        return dict(pairs)

    def refuse(_: str) -> object:
        raise ValueError

    def integer(text: str) -> int:
        if math.isinf(float(text)):  # no double can hold it
            raise ValueError
        return int(text)

    try:
        value = json.loads(raw.decode(), object_pairs_hook=members, parse_constant=refuse, parse_int=integer)
        written = json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    del written
    return value if isinstance(value, dict) and depth(value) <= MAX_PAYLOAD_DEPTH else None


@given(objects)
def test_what_is_sent_is_what_is_stored(value: dict[str, object]) -> None:
    raw = json.dumps(value, indent=1).encode()
    payload = accepted(raw)
    assert json.loads(payload.text) == value
    assert [*json.loads(payload.text)] == [*value]
    assert payload.sent_bytes == len(raw)
    assert accepted(payload.text).text == payload.text


@given(objects, st.randoms(use_true_random=False))
def test_the_order_of_members_does_not_change_the_digest(value: dict[str, object], random: object) -> None:
    shuffled = [*value.items()]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    first, second = accepted(json.dumps(value).encode()), accepted(json.dumps(dict(shuffled)).encode())
    assert first.digest == second.digest


@given(objects, objects)
def test_different_payloads_have_different_digests(one: dict[str, object], other: dict[str, object]) -> None:
    first, second = accepted(json.dumps(one).encode()), accepted(json.dumps(other).encode())
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (first.digest == second.digest) == same


FRAGMENTS = [
    "{", "}", "[", "]", ":", ",", '"', '"a"', '"b":', '"a":1', '{"a":1}', '"\\u0061":', '"a:":', "1", "-", "0", "1e9",
    "1e400", "-1E+400", "NaN", "-Infinity", "true", "null", " ", "\n", "\\", '"\\"', '"__proto__":', '"constructor"',
    '"\\u005f_proto__":1', '"prototype":0', "\\ud800", '"\\ud83d\\ude00"', '"\\udc00"', "\ufeff", "é", "😀", "\x00",
    "[" * 15, "]" * 15, '{"a":' * 3, "}" * 3, "9" * 400, ".5", '"\\n"', '"{,:"', "9" * 300, "\\u003a",
]  # fmt: skip


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join))
def test_the_fast_checks_agree_with_the_obvious_ones(text: str) -> None:
    raw = text.encode()
    value = plainly(raw)
    payload = parse_payload(raw)
    if value is None:
        assert isinstance(payload, PayloadProblem)
    else:
        assert isinstance(payload, Payload)
        assert payload.value() == value


@given(objects, st.data())
def test_the_fast_checks_agree_on_nearly_good_payloads(value: dict[str, object], data: st.DataObject) -> None:
    raw = json.dumps(value, ensure_ascii=data.draw(st.booleans()), separators=(",", ":")).encode()
    at = data.draw(st.integers(0, len(raw)))
    raw = raw[:at] + data.draw(st.sampled_from(FRAGMENTS)).encode() + raw[at + data.draw(st.integers(0, 2)) :]
    assert isinstance(parse_payload(raw), Payload) == (plainly(raw) is not None)


@given(st.binary(max_size=64))
def test_any_bytes_get_an_answer(raw: bytes) -> None:
    assert isinstance(parse_payload(raw), Payload) == (plainly(raw) is not None)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "not JSON: empty"),
        (b" \n", "not JSON: empty"),
        (b"\xef\xbb\xbf{}", "not JSON: starts with a byte order mark"),
        (b'{"a":"\xff"}', "not UTF-8 at byte 6"),
        (b'{"a":"\xed\xa0\x80"}', "not UTF-8 at byte 6"),
        ('{"a":1}'.encode("utf-16"), "not UTF-8 at byte 0"),
        (b"[1]", "not an object"),
        (b"7", "not an object"),
        (b'{"a":1', "not JSON: ends too early"),
        (b'{"a":1}}', "not JSON: unexpected character at byte 7"),
        ('{"é":x}'.encode(), "not JSON: unexpected character at byte 6"),
        (b'{"a":"\x01"}', "not JSON: unexpected character at byte 6"),
        (b'{"a":NaN}', "not JSON: NaN or Infinity"),
        (b'{"a":-Infinity}', "not JSON: NaN or Infinity"),
        (b'{"a":1e400}', "a number is out of range"),
        (b'{"a":-' + b"9" * 309 + b"}", "a number is out of range"),
        (b'{"a":' + b"9" * 16_000 + b"}", "a number is out of range"),
        (b'{"a":1,"b":2,"\\u0061":3}', "a name occurs twice in one object"),
        (b'{"x":[{"a:":":","a:":1}]}', "a name occurs twice in one object"),
        (b'{"a":"\\ud800"}', "a lone surrogate"),
        (b'{"\\udfff":1}', "a lone surrogate"),
        (b'{"x":[{"__proto__":1}]}', "a name is not allowed: __proto__, constructor and prototype never are"),
        (b'{"\\u0063onstructor":1}', "a name is not allowed: __proto__, constructor and prototype never are"),
        (b'{"a":1, "prototype":1}', "a name is not allowed: __proto__, constructor and prototype never are"),
        (b'{"a":' + b"[" * 16 + b"]" * 16 + b"}", "nested more than 16 levels deep"),
        (b'{"a":' + b"[" * 8_000 + b"]" * 8_000 + b"}", "nested more than 16 levels deep"),
        (b"[" * MAX_PAYLOAD_BYTES, "nested more than 16 levels deep"),
    ],
)
def test_each_rule_has_its_reason(raw: bytes, reason: str) -> None:
    problem = refused(raw)
    assert (problem.code, problem.reason, problem.pointer, problem.bytes) == ("bad_payload", reason, "", len(raw))


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a":' + b"[" * 15 + b"]" * 15 + b"}",
        b'{"a":"' + b"[" * 100 + b'"}',
        b'{"a":"\\"__proto__\\":"}',
        b'{"a\\"__proto__":1}',
        b'{"a":"__proto__"}',
        b'{"a":["prototype"]}',
        b'{"a:":1,"a":":"}',
        b'{"a":"\\ud83d\\ude00"}',
        b'{"a":' + b"9" * 308 + b"}",
        b'{"a":"' + b"9" * 400 + b'"}',
        b'{"a":0.' + b"1" * 400 + b"}",
        b'{"a":' + b"1" * 400 + b"e-200}",
        b"\r\n\t {} ",
        b'{"":{"":{}}}',
    ],
)
def test_what_only_looks_wrong_is_accepted(raw: bytes) -> None:
    assert accepted(raw).value() == json.loads(raw)


def test_the_cap_counts_the_bytes_sent() -> None:
    raw = b'{"a":"' + b"x" * (MAX_PAYLOAD_BYTES - 8) + b'"}'
    assert accepted(raw).sent_bytes == MAX_PAYLOAD_BYTES
    problem = refused(raw + b" ")
    assert (problem.code, problem.bytes) == ("payload_too_large", MAX_PAYLOAD_BYTES + 1)


def test_the_cap_counts_the_bytes_when_written_again() -> None:
    raw = b'{"a":[' + b",".join([b"1e9"] * 4_000) + b"]}"
    assert len(raw) < MAX_PAYLOAD_BYTES
    problem = refused(raw)
    assert problem.code == "payload_too_large"
    assert problem.bytes == len(raw)


def test_whole_numbers_and_fractions_stay_apart() -> None:
    payload = accepted(b'{"a":1,"b":1.0,"c":-0.0,"d":1e2,"e":18446744073709551616}')
    kinds = {name: type(value) for name, value in payload.value().items()}
    assert kinds == {"a": int, "b": float, "c": float, "d": float, "e": int}
    assert math.copysign(1, float(str(payload.value()["c"]))) == -1


@given(st.text(st.characters(min_codepoint=0x4E00, max_codepoint=0x4FFF), min_size=3, max_size=20), st.data())
def test_neither_a_payload_nor_a_problem_shows_what_was_sent(secret: str, data: st.DataObject) -> None:
    raw = json.dumps({secret: {secret: [secret]}}, ensure_ascii=False)
    at = data.draw(st.integers(0, len(raw)))
    result = parse_payload((raw[:at] + data.draw(st.sampled_from(FRAGMENTS)) + raw[at:]).encode())
    shown = repr(result) + str(result)
    assert not any(character in shown for character in secret)
