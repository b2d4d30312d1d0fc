"""Proves that no log line can hold a payload or a token, whoever writes it and however."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from gateway import logs

MARKER = "marker-7f3a"


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_one_json_object_with_time_level_and_part() -> None:
    stream = io.StringIO()
    logs.configure(console=False, stream=stream)
    logs.get_logger("listener").info("device connected", device="kitchen", connections=3)
    (line,) = lines(stream)
    assert (line["event"], line["level"], line["part"], line["device"]) == (
        "device connected",
        "info",
        "listener",
        "kitchen",
    )
    assert str(line["timestamp"]).endswith("Z")


@pytest.mark.parametrize("console", [False, True])
def test_bytes_and_structures_and_fields_named_after_secrets_are_never_written(*, console: bool) -> None:
    stream = io.StringIO()
    logs.configure(console=console, stream=stream)
    log = logs.get_logger("http")
    log.info("seen", payload=MARKER, token=MARKER, raw=MARKER.encode(), document={"deep": MARKER}, pair=[{"a": MARKER}])
    assert "seen" in stream.getvalue()
    assert MARKER not in stream.getvalue()


def test_a_token_inside_a_text_is_masked() -> None:
    stream = io.StringIO()
    logs.configure(console=False, stream=stream)
    logs.get_logger("http").warning("refused wsd_" + "a" * 49, header="Bearer wsu_" + "b" * 49)
    assert "a" * 8 not in stream.getvalue()
    assert "b" * 8 not in stream.getvalue()
    assert "wsd_" in stream.getvalue()


@pytest.mark.parametrize("console", [False, True])
def test_an_exception_is_written_as_its_kind_and_place_without_its_words(*, console: bool) -> None:
    stream = io.StringIO()
    logs.configure(console=console, stream=stream)
    try:
        int(MARKER)
    except ValueError:
        logs.get_logger("engine").exception("step failed")
    assert MARKER not in stream.getvalue()
    assert "ValueError" in stream.getvalue()
    assert "test_logs.py:" in stream.getvalue()


def test_a_line_of_the_engine_says_what_it_is_about() -> None:
    stream = io.StringIO()
    logs.configure(console=False, stream=stream)
    logging.getLogger("engine.service").error("%s failed, the store does not answer: %s", "a sweep", "it is away")
    (line,) = lines(stream)
    assert line["event"] == "a sweep failed, the store does not answer: it is away"


def test_a_library_line_keeps_its_template_and_loses_its_arguments() -> None:
    stream = io.StringIO()
    logs.configure(console=False, stream=stream)
    try:
        int(MARKER)
    except ValueError:
        logging.getLogger("uvicorn.error").exception("Exception in %s", MARKER)
    (line,) = lines(stream)
    assert line["event"] == "Exception in %s"
    assert line["fault"] == "ValueError"
    assert MARKER not in stream.getvalue()


def test_lines_below_the_level_are_dropped() -> None:
    stream = io.StringIO()
    logs.configure(level="warning", console=False, stream=stream)
    log = logs.get_logger("engine")
    log.info("quiet")
    log.warning("loud")
    assert [line["event"] for line in lines(stream)] == ["loud"]


def test_a_librarys_line_that_comes_again_is_counted_and_another_one_is_not() -> None:
    stream = io.StringIO()
    logs.configure(console=False, stream=stream)
    (handler,) = logging.getLogger().handlers
    for at, text in ((0, "Invalid"), (1, "Invalid"), (1, "Other"), (9, "Invalid"), (11, "Invalid"), (25, "Invalid")):
        record = logging.LogRecord("uvicorn.error", logging.WARNING, "", 0, text, (), None)
        record.created = 1_000.0 + at
        handler.handle(record)
    assert [(line["event"], line.get("more")) for line in lines(stream)] == [
        ("Invalid", None),
        ("Other", None),
        ("Invalid", 2),
        ("Invalid", None),
    ]


def test_of_librarys_lines_only_so_many_are_remembered() -> None:
    logs.configure(console=False, stream=io.StringIO())
    (handler,) = logging.getLogger().handlers
    for number in range(1_000):
        handler.handle(logging.LogRecord("library", logging.WARNING, "", 0, f"line {number}", (), None))
    assert isinstance(handler, logs._Forward)
    assert len(handler._said) == logs._MAX_SAID
