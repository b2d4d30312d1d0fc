"""Proves what is printed: plain fields off a terminal, times as people say them, nothing that acts on a terminal."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from engine.errors import BadInput
from gateway.cli import output
from gateway.cli.invocation import Invocation, set_current
from gateway.cli.main import told
from gateway.cli.refused import Refused
from gateway.cli.workflows import parse_inputs
from gateway.pasting import how_to_connect

NOW = datetime(2026, 11, 30, 20, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (95, "1 min 35 s"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (90000, "1 d 1 h"),
    ],
)
def test_a_span_is_said_in_its_two_largest_units(seconds: float, text: str) -> None:
    assert output.span(seconds) == text


def test_a_moment_is_said_with_how_far_off_it_is() -> None:
    assert output.until("2026-11-30T20:00:25.000Z", NOW).endswith("(in 25 s)")
    assert output.until("2026-11-30T19:59:00.000Z", NOW).endswith("(1 min ago)")
    assert output.until(None, NOW) == output.until("never", NOW) == "-"


def test_off_a_terminal_a_table_is_lines_of_fields(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(["name", "of", "when"], [("a\tb", ["x", "y"], None), ("c", True, 3)], empty="nothing")
    assert capsys.readouterr().out == "name\tof\twhen\na b\tx, y\t-\nc\tyes\t3\n"


def test_what_would_act_on_a_terminal_is_not_printed_but_our_own_colours_are() -> None:
    text = "a\x1b]0;title\x07b\x1b[2Jc\x1b[31md\x1b[0m\x9b\u202e"
    assert output.printable(text) == "a�]0;title�b�[2Jc\x1b[31md\x1b[0m��"


def test_what_somebody_wrote_brings_no_colours_into_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(["device", "note"], [("camera", "\x1b[31mred\x1b[8m"), ("bell", ["\x1b[0m"])], empty="")
    assert capsys.readouterr().out == "device\tnote\ncamera\t�[31mred�[8m\nbell\t�[0m\n"


def test_an_input_is_json_or_else_text() -> None:
    assert parse_inputs(["n=3", "on=true", 'o={"a":[1]}', "t=kitchen", "empty=", "eq=a=b"]) == {
        "n": 3,
        "on": True,
        "o": {"a": [1]},
        "t": "kitchen",
        "empty": "",
        "eq": "a=b",
    }
    with pytest.raises(BadInput, match="NAME=VALUE"):
        parse_inputs(["kitchen"])


def test_a_new_device_is_told_to_listen_before_it_publishes() -> None:
    doors = {"mqtt": "127.0.0.1:1883", "http": "127.0.0.1:8080"}
    lines = how_to_connect("camera", "wsd_x", ["signal:front-door/verdict"], doors)
    text = "\n".join(lines)
    assert text.index("mosquitto_sub") < text.index("mosquitto_pub -h")
    assert "-t 'replies/#'" in text
    assert "-t signals/front-door/verdict" in text
    assert "http://127.0.0.1:8080/api/v1/signals/front-door/verdict" in text


@pytest.mark.parametrize("as_json", [False, True])
def test_a_refusal_is_told_on_standard_error_with_its_problems(
    capsys: pytest.CaptureFixture[str], *, as_json: bool
) -> None:
    document = {
        "error": "invalid_payload",
        "title": "No",
        "problems": [{"pointer": "/who", "rule": "enum"}],
        "code": 422,
    }
    set_current(Invocation(json=as_json))
    try:
        told(Refused(422, document))
    finally:
        set_current(Invocation())
    printed = capsys.readouterr()
    assert printed.out == ""
    if as_json:
        assert json.loads(printed.err) == document
    else:
        assert printed.err == "error: No\n  /who: enum\n"


@pytest.mark.parametrize(
    ("document", "lines"),
    [
        ({"reason": "unexpected character at byte 1"}, ["unexpected character at byte 1"]),
        ({"reason": "a number is out of range", "pointer": "/a/0"}, ["/a/0: a number is out of range"]),
        ({"max_bytes": 16384, "bytes": 20000}, ["it has 20000 bytes, of 16384 at most"]),
        ({"limit": "signals", "retry_after_ms": 1500}, ["the limit on signals", "try again in 1.5 s"]),
    ],
)
def test_a_refusal_is_told_with_its_particulars(
    document: dict[str, object], lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    told(Refused(400, {"error": "bad_payload", "title": "No"} | document))
    assert capsys.readouterr().err.splitlines() == ["error: No", *(f"  {line}" for line in lines)]


def test_a_refusal_for_a_signal_before_names_that_one(capsys: pytest.CaptureFixture[str]) -> None:
    moment = "2026-11-30T20:00:00.000Z"
    held = {"receipt": "a" * 26, "at": moment, "held_until": moment}
    told(Refused(409, {"error": "early_signal_held", "title": "Held", **held}))
    told(Refused(409, {"error": "already_settled", "title": "Over", "last_wait": {"how": "timed_out", "at": moment}}))
    shown = output.when(moment)
    assert capsys.readouterr().err.splitlines() == [
        "error: Held",
        f"  that one's receipt is {'a' * 26}",
        f"  it is held until {shown}",
        "error: Over",
        f"  the last wait ended at {shown}: timed_out",
    ]
