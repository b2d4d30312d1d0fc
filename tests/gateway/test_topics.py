"""Proves the topic map: what means something, in both forms, and that everything else is off it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.limits import NAME_PATTERN, SIGNAL_ID_PATTERN
from gateway.topics import (
    OffMap,
    RunTopic,
    SignalTopic,
    StatusTopic,
    Topic,
    WaitsTopic,
    canonical,
    is_own_replies,
    parse_topic,
    reply_topic,
)

names = st.from_regex(rf"\A{NAME_PATTERN}\Z")
signal_ids = st.from_regex(rf"\A{SIGNAL_ID_PATTERN}\Z")


@given(names, names, names, st.none() | signal_ids)
def test_a_signal_is_the_same_in_both_forms(device: str, workflow: str, key: str, signal_id: str | None) -> None:
    short = f"signals/{workflow}/{key}" + (f"/{signal_id}" if signal_id else "")
    expected = SignalTopic(workflow, key, signal_id)
    assert parse_topic(short, device) == expected
    assert parse_topic(canonical(device, short), device) == expected


@given(names, names, signal_ids)
def test_a_run_and_a_question_are_the_same_in_both_forms(device: str, workflow: str, signal_id: str) -> None:
    for topic, expected in (
        (f"runs/{workflow}/{signal_id}", RunTopic(workflow, signal_id)),
        (f"get/waits/{workflow}", WaitsTopic(workflow)),
        ("status", StatusTopic()),
    ):
        assert parse_topic(topic, device) == expected
        assert parse_topic(canonical(device, topic), device) == expected


@given(names, names, names, names)
def test_another_devices_head_is_off_the_map(device: str, other: str, workflow: str, key: str) -> None:
    topic = f"d/{other}/signals/{workflow}/{key}"
    assert isinstance(parse_topic(topic, device), OffMap) == (other != device)


@pytest.mark.parametrize(
    ("topic", "form"),
    [
        ("signals", "signals/<workflow>/<key>"),
        ("signals/front-door", "signals/<workflow>/<key>"),
        ("signals/front-door/", "signals/<workflow>/<key>"),
        ("signals/Front-Door/k", "signals/<workflow>/<key>"),
        ("signals/front-door/k/", "signals/<workflow>/<key>"),
        ("signals/front-door/k/a b", "signals/<workflow>/<key>"),
        ("signals/front-door/k/a/b", "signals/<workflow>/<key>"),
        ("signals/front-door/k/" + "x" * 65, "signals/<workflow>/<key>"),
        ("d/kitchen/signals/front.door/k", "signals/<workflow>/<key>"),
        ("runs/front-door", "runs/<workflow>/<signal-id>"),
        ("runs/front-door/", "runs/<workflow>/<signal-id>"),
        ("get/front-door", "get/waits/<workflow>"),
        ("get/waits/front-door/k", "get/waits/<workflow>"),
        ("d/kitchen", "signals/<workflow>/<key>"),
        ("d/kitchen/d/kitchen/status", "signals/<workflow>/<key>"),
        ("replies/signals/front-door/k/accepted", "signals/<workflow>/<key>"),
        ("/signals/front-door/k", "signals/<workflow>/<key>"),
        ("Signals/front-door/k", "signals/<workflow>/<key>"),
        ("zigbee2mqtt/door", "signals/<workflow>/<key>"),
        ("gateway/x/status", "signals/<workflow>/<key>"),
        ("", "signals/<workflow>/<key>"),
    ],
)
def test_what_is_off_the_map_is_answered_with_the_form_that_was_meant(topic: str, form: str) -> None:
    found = parse_topic(topic, "kitchen")
    assert isinstance(found, OffMap)
    assert found.hint.startswith(form)


@given(st.text(max_size=80), names)
def test_any_text_is_a_topic_of_some_kind_and_is_not_quoted(topic: str, device: str) -> None:
    found = parse_topic(topic, device)
    assert not isinstance(found, OffMap) or topic not in found.hint or len(topic) < 10


@pytest.mark.parametrize(
    ("about", "accepted", "topic"),
    [
        (SignalTopic("w", "k", "1"), True, "replies/signals/w/k/accepted"),
        (SignalTopic("w", "k"), False, "replies/signals/w/k/rejected"),
        (RunTopic("w", "1"), True, "replies/runs/w/-/accepted"),
        (WaitsTopic("w"), False, "replies/waits/w/-/rejected"),
        (OffMap("x"), False, "replies/-/-/-/rejected"),
        (StatusTopic(), False, "replies/-/-/-/rejected"),
    ],
)
def test_a_reply_says_what_it_is_about_in_its_topic(about: Topic, accepted: bool, topic: str) -> None:
    assert reply_topic(about, accepted=accepted) == topic


@pytest.mark.parametrize(
    ("topic_filter", "own"),
    [
        ("replies/#", True),
        ("replies/signals/+/+/rejected", True),
        ("d/kitchen/replies/#", True),
        ("replies", False),
        ("d/kitchen/#", False),
        ("d/+/replies/#", False),
        ("d/hall/replies/#", False),
        ("#", False),
        ("+/#", False),
        ("repliesx/#", False),
    ],
)
def test_only_its_own_replies_are_a_devices_own(topic_filter: str, own: bool) -> None:
    assert is_own_replies(topic_filter, "kitchen") is own
