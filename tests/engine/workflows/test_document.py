"""Proves that a YAML text becomes the JSON values it stands for, with its lines, and that no text takes long."""

from __future__ import annotations

import json
import time

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from engine.limits import MAX_DEFINITION_BYTES
from engine.workflows.document import read_yaml

texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | texts
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=10,
)  # fmt: skip


@given(values)
def test_json_is_yaml(value: object) -> None:
    document = read_yaml(json.dumps(value, ensure_ascii=False))
    assert document.problems == []
    assert document.value == value
    assert json.dumps(document.value) == json.dumps(value)


@given(st.text(max_size=40) | st.text("[]{}:-,&*!|>'\"%@`?#\n a1", max_size=40))
def test_any_text_gives_a_value_or_a_problem_with_a_line(text: str) -> None:
    document = read_yaml(text)
    for problem in document.problems:
        assert 1 <= problem.line <= text.count("\n") + len(text.splitlines()) + 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"),
        ("yes", "yes"),
        ("No", "No"),
        ("true", True),
        ("'true'", "true"),
        ('"1"', "1"),
        ("! 1", "1"),
        ("!!str 1", "1"),
        ("~", None),
        ("0x1F", 31),
        ("0o17", 15),
        ("017", 17),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("2026-11-30", "2026-11-30"),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("-0", 0),
        ("<<: {a: 1}", {"<<": {"a": 1}}),
        ("{on: true, 1: x}", {"on": True, "1": "x"}),
        ("a: &x [1]\nb: *x", {"a": [1], "b": [1]}),
        ("|\n  two\n  lines\n", "two\nlines\n"),
        ('${{ steps.a.status == "b" && steps.c.x }}   # a comment', '${{ steps.a.status == "b" && steps.c.x }}'),
    ],
)
def test_plain_words_mean_what_yaml_1_2_says(text: str, value: object) -> None:
    document = read_yaml(text)
    assert document.problems == []
    assert document.value == value
    assert type(document.value) is type(value)


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ("a: 1\nb:\n  c: 1\n  c: 2\n", 4, "the name 'c' occurs twice"),
        ("a: [1,\n  b: }", 2, "not YAML"),
        ("a: 1\n\tb: 2", 2, "not YAML"),
        ("a: \x01", 1, "control characters"),
        ("a: 1\n---\nb: 2", 2, "a second document"),
        ("a: *b", 1, "names nothing"),
        ("a: &a [*a]", 1, "names nothing"),
        ("a:\n  - .inf", 2, "JSON cannot hold"),
        ("a: .nan", 1, "JSON cannot hold"),
        ("a: 1e999", 1, "JSON cannot hold"),
        ("a: " + "9" * 301, 1, "JSON cannot hold"),
        ("a: !!python/object:os.system x", 1, "tags are not supported"),
        ("a: !!set {b}", 1, "tags are not supported"),
        ("? [a]\n: b", 1, "a member's name must be plain text"),
        ("a: " + "[" * 70 + "]" * 70, 1, "levels deep"),
        ("a: " + "[" * 100_000, 1, "maximum nesting depth"),
        ("a: " + "x" * MAX_DEFINITION_BYTES, 1, "larger than"),
        ("[" + "1," * 30_000 + "]", 1, "more than 20000 values"),
    ],
)
def test_what_json_does_not_have_is_refused_with_its_line(text: str, line: int, part: str) -> None:
    problems = read_yaml(text).problems
    assert [problem.line for problem in problems if part in problem.message] == [line]


def test_an_expression_that_yaml_reads_for_itself_gets_the_hint_to_quote_it() -> None:
    (problem,) = read_yaml("a: 1\nguard: ${{ inputs.a ? 1 : 2 }}").problems
    assert (problem.line, problem.hint) == (2, "put the whole ${{ … }} in quotes")


def test_aliases_that_would_blow_the_document_up_are_refused_at_once() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    started = time.perf_counter()
    (problem,) = read_yaml("\n".join(lines)).problems
    assert "aliases counted as what they stand for" in problem.message
    assert time.perf_counter() - started < 1


def test_each_pointer_has_the_line_it_came_from() -> None:
    document = read_yaml("a:\n  - x: 1\n    y/z: 2\n  - [3,\n     4]\n")
    lines = {"": 1, "/a": 1, "/a/0": 2, "/a/0/x": 2, "/a/0/y~1z": 3, "/a/1": 4, "/a/1/1": 5}
    assert {pointer: document.line(pointer) for pointer in lines} == lines
    assert document.line("/a/0/y~1z/none/of/these") == 3


@given(values)
def test_the_pure_parser_reads_the_same(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(yaml, "CBaseLoader", raising=False)
        slow = read_yaml(text)
    fast = read_yaml(text)
    assert (slow.value, slow.lines, slow.problems) == (fast.value, fast.lines, fast.problems)


def test_aliases_of_one_long_text_count_for_what_they_stand_for() -> None:
    text = "a: &a " + "x" * 100_000 + "\nb: [" + ", ".join(["*a"] * 500) + "]\n"
    (problem,) = read_yaml(text).problems
    assert "aliases counted as what they stand for" in problem.message
