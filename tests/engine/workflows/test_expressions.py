"""Proves that expressions evaluate as documented, keep types, and fail in one way that tells no value."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.limits import MAX_EXPRESSION_CHARACTERS
from engine.workflows.definition import Expression, WaitTask
from engine.workflows.expressions import (
    ExpressionFailed,
    captured_schema,
    compile_expression,
    evaluate,
    is_true,
    render,
    render_text,
)
from engine.workflows.templates import BadTemplate, Read, reads, split

GUARD = 'steps.identify.status == "succeeded" && steps.identify.payload.verdict == "known"'
NOT_SIGNALLED = {
    "status": "failed",
    "payload": None,
    "receipt": None,
    "outputs": None,
    "error": {"code": "wait_timeout"},
}
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\U0010fffe"), max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=8,
)  # fmt: skip


def signalled(payload: dict[str, object]) -> dict[str, object]:
    outputs = {"payload": payload, "receipt": "r"}
    return {"status": "succeeded", "payload": payload, "receipt": "r", "outputs": outputs, "error": None}


@pytest.mark.parametrize(
    ("step", "skipped"),
    [
        (signalled({"verdict": "known"}), True),
        (signalled({"verdict": "intruder"}), False),
        (signalled({"verdict": "known\0x"}), False),
        (NOT_SIGNALLED, False),
        ({**NOT_SIGNALLED, "status": "skipped", "error": None}, False),
    ],
)
def test_the_guard_of_the_front_door_holds_only_for_a_known_visitor(step: dict[str, object], skipped: bool) -> None:
    assert is_true(Expression(GUARD), {"inputs": {}, "steps": {"identify": step}, "self": {}}) is skipped


@given(json_values)
@example({"a": 1, "b": [1.0, "x\0y"], "\0": None})
def test_a_whole_value_keeps_its_type(value: object) -> None:
    rendered = render("${{ inputs.it }}", {"inputs": {"it": value}})
    assert rendered == value
    assert json.dumps(rendered, sort_keys=True) == json.dumps(value, sort_keys=True)


@given(json_values)
def test_a_value_inside_a_text_is_written_as_json_and_a_text_as_itself(value: object) -> None:
    rendered = render("<${{ inputs.it }}>", {"inputs": {"it": value}})
    assert isinstance(rendered, str)
    inner = rendered[1:-1]
    assert inner == value if isinstance(value, str) else json.loads(inner) == value
    assert render_text("${{ inputs.it }}", {"inputs": {"it": value}}) == inner


@given(json_values.filter(lambda value: "${{" not in json.dumps(value)))
def test_a_template_without_expressions_is_left_as_it_is(value: object) -> None:
    assert render(value, {}) == value  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("template", "rendered"),
    [
        ("${{ 1 }} and ${{ true }} and ${{ null }} and ${{ 1.5 }}", "1 and true and null and 1.5"),
        ('${{ {"a":{"b":1}}}}', {"a": {"b": 1}}),
        ('${{ "}}" }}', "}}"),
        ('${{ "${{" }}', "${{"),
        ('${{ \'}}\' + r\'\\d\' + """}}""" }}', "}}\\d}}"),
        ("$${{ 1 }}$", "$1$"),
        ("${{ 1 // why }}", 1),
        ("${{\n 1 +\n 1 }}", 2),
        ({"${{ 1 }}": ["${{ 1 }}"]}, {"${{ 1 }}": [1]}),
        ("$ { { 1 } }", "$ { { 1 } }"),
    ],
)
def test_an_expression_ends_where_it_should(template: object, rendered: object) -> None:
    assert render(template, {}) == rendered  # type: ignore[arg-type]


ENV = {
    "inputs": {"n": 1, "text": "secret", "big": 2**70, "list": ["secret"]},
    "steps": {"a": NOT_SIGNALLED},
    "self": {},
}


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("steps.a.payload.verdict", "reads a member of something that has none"),
        ("steps.b.status", "reads a name that is not there"),
        ("inputs[inputs.text]", "reads a name that is not there"),
        ("inputs.n / 0", "divides by zero"),
        ("9223372036854775807 + inputs.n", "out of range"),
        ("inputs.list[7]", "out of range"),
        ("inputs.text + 1", "types that do not go together"),
        ("int(inputs.text)", "could not be evaluated"),
        ("inputs.text.matches('(')", "could not be evaluated"),
        ("1e308 * 10.0", "infinite"),
        ("duration('1s')", "string(…)"),
        ("{1: 2}", "names that are not texts"),
        ("nothing.there", "undeclared reference to 'nothing"),
        ("1 +", "Syntax error"),
        ("[" * 400 + "]" * 400, "does not compile"),
        ("1" * (MAX_EXPRESSION_CHARACTERS + 1), "more than"),
    ],
)
def test_whatever_goes_wrong_is_one_failure_that_shows_no_value(expression: str, reason: str) -> None:
    with pytest.raises(ExpressionFailed) as failed:
        evaluate(expression, ENV)
    assert reason in failed.value.message
    assert "secret" not in failed.value.message
    assert failed.value.code == "expression_failed"


@given(st.text(max_size=20), json_values)
def test_any_text_compiles_or_fails_as_an_expression_does(text: str, value: object) -> None:
    with contextlib.suppress(ExpressionFailed):
        evaluate(text, {"inputs": value, "steps": {"a": value}, "self": {"x": value}})


@pytest.mark.parametrize("expression", ["1", "'true'", "[true]", "null"])
def test_only_true_is_true(expression: str) -> None:
    assert not is_true(expression, {})


def test_an_integer_beyond_64_bits_becomes_a_double() -> None:
    assert evaluate("inputs.big", ENV) == float(2**70)
    assert evaluate("inputs.n + 1", ENV) == 2


def test_an_endless_comprehension_is_cut_off() -> None:
    numbers = "[" + ",".join(["1"] * 200) + "]"
    with pytest.raises(ExpressionFailed):
        evaluate(f"{numbers}.all(x, {numbers}.all(y, {numbers}.all(z, z > 0)))", {})


def test_only_the_steps_that_are_read_are_looked_at() -> None:
    compiled = compile_expression('steps.a.status == "x" || steps["b-c"].status == "y"')
    assert compiled.steps == frozenset({"a", "b-c"})
    assert compile_expression("size(steps) > 0").steps is None
    assert evaluate("steps.a.status", {"steps": {"a": {"status": "ok"}, "b": {"payload": object()}}}) == "ok"


def test_what_an_expression_reads_is_told_by_its_tokens() -> None:
    text = 'steps.a.payload.b == steps["b-c"].status && x.steps.q && steps[self.i] && "steps.no" == inputs.z // steps.c'
    assert reads(text) == (
        Read("steps", "a", "payload"),
        Read("steps", "b-c", "status"),
        Read("steps", None),
        Read("self", "i"),
        Read("inputs", "z"),
    )


@pytest.mark.parametrize("text", ["${{", "a ${{ b", "${{ }}", "${{ {} }", "${{" + " " * 5_000 + "}}"])
def test_an_expression_without_an_end_or_a_content_is_refused(text: str) -> None:
    with pytest.raises(BadTemplate):
        split(text)
    with pytest.raises(ExpressionFailed):
        render(text, {})


def test_a_wait_captures_the_schema_that_its_inputs_fill_in() -> None:
    task = WaitTask(key=None, timeout=1.0, schema_template={"properties": {"a": {"enum": "${{ inputs.names }}"}}})
    assert captured_schema(task, {"inputs": {"names": ["x"]}}) == b'{"properties":{"a":{"enum":["x"]}}}'
    with pytest.raises(ExpressionFailed, match="/properties/a/enum"):
        captured_schema(task, {"inputs": {"names": []}})
    assert captured_schema(WaitTask(key=None, timeout=1.0), {}) is None
    assert captured_schema(WaitTask(key=None, timeout=1.0, schema=b"{}"), {}) == b"{}"


def test_the_large_libraries_are_imported_when_they_are_first_needed() -> None:
    program = (
        "import sys, engine.workflows.loading\n"
        "late = {'yaml', 'jsonschema', 'jsonschema_rs', 'cel_expr_python'}\n"
        "print(sorted(late & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
