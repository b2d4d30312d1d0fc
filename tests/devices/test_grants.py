"""Proves that a grant allows what it names and nothing else, and that nobody is granted to hear other devices."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devices import grants
from devices.grants import ListenGrant, SignalGrant, WorkflowGrant, covers, filter_problem, listen_problem, parse
from engine.errors import BadInput
from engine.limits import NAME_PATTERN

names = st.from_regex(rf"\A{NAME_PATTERN}\Z")
targets = names | st.just("*")
words = st.sampled_from(["a", "b", "c", "sensors"])
topics = st.lists(words, min_size=1, max_size=4).map("/".join)
filters = st.builds(
    lambda head, middle, tail: "/".join([head, *middle, *tail]),
    words,
    st.lists(words | st.just("+"), max_size=3),
    st.sampled_from([[], ["#"]]),
)


def matches(topic_filter: str, topic: str) -> bool:
    """Match as MQTT 5, 4.7 says, level by level."""
    if topic_filter == "#":
        return True
    head, _, rest = topic_filter.partition("/")
    level, slash, below = topic.partition("/")
    if head not in ("+", level):
        return False
    if not slash:
        return rest in ("", "#")
    return bool(rest) and matches(rest, below)


@given(targets, st.none() | names)
def test_a_signal_grant_is_read_as_it_was_written(workflow: str, key: str | None) -> None:
    grant = SignalGrant(workflow, key)
    assert parse(str(grant)) == grant


@given(st.sampled_from(["read", "run"]), targets)
def test_a_workflow_grant_is_read_as_it_was_written(verb: str, workflow: str) -> None:
    assert str(parse(f"{verb}:{workflow}")) == f"{verb}:{workflow}"


def test_a_star_for_the_key_is_the_whole_workflow() -> None:
    assert parse("signal:front-door/*") == SignalGrant("front-door", None)


@pytest.mark.parametrize(
    "text",
    [
        "", "signal", "signal:", "signal:w/", "signal:/k", "signal:w/k/x", "signal:W/k", "signal:w*/k", "signal:**",
        "signal:+/k", "signal:w/#", "read:w/k", "read:", "run:a b", "write:w", "Signal:w", "signal:w\n", "signal: w",
        "listen:", "listen:#", "listen:+/x", "listen:$SYS/x", "listen:a/#/b", "listen:a/b#", "listen:a+/b", "listen:/a",
        "listen:a\x00b", "listen:a\ud800b",
    ],
)  # fmt: skip
def test_what_is_no_grant_is_refused_with_the_forms_that_there_are(text: str) -> None:
    with pytest.raises(BadInput) as refused:
        parse(text)
    assert "signal:WORKFLOW[/KEY]" in refused.value.hint


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("sginal:front-door", "sginal is no kind of grant; did you mean signal?"),
        ("Signal:w", "Signal is no kind of grant; did you mean signal?"),
        ("write:w", "write is no kind of grant"),
        ("a b\n:w", "it begins with no kind of grant"),
        ("signal:Front", "names are made of a-z, 0-9, _ and -"),
        ("front-door/key", "there is no colon in it"),
    ],
)
def test_it_is_said_what_keeps_a_text_from_being_a_grant(text: str, what: str) -> None:
    with pytest.raises(BadInput) as refused:
        parse(text)
    assert refused.value.message == f"this is not a grant: {what}"


@pytest.mark.parametrize("root", ["d", "signals", "runs", "get", "replies", "gateway", "status"])
@pytest.mark.parametrize("tail", ["", "/#", "/x", "/+/x", "/+", "/+/+", "/+/#", "/x/#", "/+/status/#", "/x/status/y"])
def test_nobody_is_granted_to_listen_where_devices_speak_or_are_answered(root: str, tail: str) -> None:
    with pytest.raises(BadInput):
        parse(f"listen:{root}{tail}")


# What might be written in the hope of hearing more of `d/`: levels, wildcards, and names that are none.
below_d = st.lists(
    names | st.sampled_from(["+", "#", "", "status", "replies", "signals", "*", "Door", "a+", "$share", " ", "d"]),
    max_size=5,
).map(lambda levels: "/".join(["d", *levels]))


@given(below_d)
def test_of_what_is_under_d_only_presence_can_be_listened_to(topic_filter: str) -> None:
    allowed = re.fullmatch(rf"d/(\+|{NAME_PATTERN})/status", topic_filter) is not None
    assert (listen_problem(topic_filter) == "") == allowed
    assert filter_problem(topic_filter)  # a map reads nothing there all the same
    everything = [ListenGrant("d/+/status"), ListenGrant("d/door/status"), ListenGrant(topic_filter)]
    assert grants.may_listen(everything, topic_filter) == allowed


@given(names, names, filters)
def test_presence_of_one_device_is_no_other_s_and_nothing_else_s(name: str, other: str, elsewhere: str) -> None:
    one, every = [parse(f"listen:d/{name}/status")], [parse("listen:d/+/status")]
    assert grants.may_listen(one, f"d/{other}/status") == (name == other)
    assert grants.may_listen(every, f"d/{other}/status")
    assert not grants.may_listen(one, "d/+/status")
    assert not grants.may_listen([*one, *every], elsewhere)
    assert not grants.may_listen([ListenGrant(elsewhere)], f"d/{name}/status")


@given(names, names, names, names)
def test_a_signal_needs_the_workflow_and_the_key(workflow: str, key: str, other: str, other_key: str) -> None:
    held = [SignalGrant(workflow, key)]
    assert grants.may_signal(held, workflow, key)
    assert grants.may_signal(held, other, other_key) == ((other, other_key) == (workflow, key))
    assert not grants.may_read(held, workflow)
    assert not grants.may_run(held, workflow)


@given(names, names)
def test_a_wait_without_a_key_needs_the_grant_on_the_workflow(workflow: str, key: str) -> None:
    assert not grants.may_signal([SignalGrant(workflow, key)], workflow, None)
    assert grants.may_signal([SignalGrant(workflow)], workflow, None)
    assert grants.may_signal([SignalGrant("*")], workflow, None)


@given(names, names)
def test_a_star_stands_for_any_workflow_but_only_for_its_verb(workflow: str, key: str) -> None:
    assert grants.may_signal([SignalGrant("*", key)], workflow, key)
    assert grants.may_read([WorkflowGrant("read", "*")], workflow)
    assert not grants.may_run([WorkflowGrant("read", "*")], workflow)
    assert not grants.may_signal([WorkflowGrant("read", "*"), WorkflowGrant("run", "*")], workflow, key)


@given(filters, filters, topics)
def test_a_covered_filter_matches_no_topic_that_the_grant_does_not(granted: str, asked: str, topic: str) -> None:
    if covers(granted, asked) and matches(asked, topic):
        assert matches(granted, topic)


@given(filters)
def test_a_filter_covers_itself_and_the_topics_that_it_matches(topic_filter: str) -> None:
    assert covers(topic_filter, topic_filter)
    assert filter_problem(topic_filter) == ""


@given(filters, topics)
def test_a_filter_covers_exactly_the_topics_that_it_matches(granted: str, topic: str) -> None:
    assert covers(granted, topic) == matches(granted, topic)


@pytest.mark.parametrize(
    ("granted", "asked", "allowed"),
    [
        ("cameras/+/cmd", "cameras/kitchen/cmd", True),
        ("cameras/+/cmd", "cameras/+/cmd", True),
        ("cameras/+/cmd", "cameras/#", False),
        ("cameras/+", "cameras/kitchen/cmd", False),
        ("cameras/#", "cameras", True),
        ("cameras/#", "cameras/+/cmd", True),
        ("cameras/kitchen", "cameras/+", False),
        ("cameras/#", "#", False),
        ("cameras/#", "d/kitchen/signals", False),
    ],
)
def test_a_listen_grant_allows_what_lies_within_it(granted: str, asked: str, allowed: bool) -> None:
    assert grants.may_listen([ListenGrant(granted)], asked) is allowed
