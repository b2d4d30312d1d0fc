"""Proves that both validators give one answer for every accepted schema, and that a problem reveals nothing."""

from __future__ import annotations

import json
import sys

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import BadInput
from engine.limits import MAX_SCHEMA_PROBLEMS
from engine.workflows.schema import SchemaProblem, check_schema, compile_schema
from engine.workflows.schema import compile_with_fallback as compile_slowly

NAMES = ["a", "b", "type", "items", "properties", "~/"]
names = st.sampled_from([*NAMES, "zz", ""])
numbers = st.integers(-5, 5) | st.sampled_from(
    [0.5, -0.0, 1.0, 2.5, 1e300, 10**30, -(10**20), 2**53, 2**53 + 1, 2.0**53, 2**63, 2**64, 0.1]
)
scalars = st.none() | st.booleans() | numbers | st.text("ab\0é😀", max_size=3)
payload_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=10,
)
payloads = st.dictionaries(names, payload_values, max_size=4)
counts = st.integers(0, 3)
values_of: dict[str, st.SearchStrategy[object]] = {
    "type": st.sampled_from(["object", "array", "string", "number", "integer", "boolean", "null", ["object", "null"]]),
    "enum": st.lists(payload_values, min_size=1, max_size=3),
    "const": payload_values,
    "multipleOf": st.integers(1, 4),
    "minimum": numbers,
    "maximum": numbers,
    "exclusiveMinimum": numbers,
    "exclusiveMaximum": numbers,
    "minLength": counts,
    "maxLength": counts,
    "pattern": st.sampled_from(["^a", "b$", "^[^a]*$", "\\w", "^.?$"]),
    "minItems": counts,
    "maxItems": counts,
    "uniqueItems": st.booleans(),
    "minProperties": counts,
    "maxProperties": counts,
    "required": st.lists(names, unique=True, max_size=3),
    "dependentRequired": st.dictionaries(names, st.lists(names, unique=True, max_size=2), max_size=2),
    "title": st.just("a title"),
}


def applicators(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    some = st.lists(inner, min_size=1, max_size=3)
    named = st.dictionaries(names.filter(bool), inner, max_size=3)
    options: dict[str, st.SearchStrategy[object]] = {
        "allOf": some, "anyOf": some, "oneOf": some, "not": inner, "if": inner, "then": inner, "else": inner,
        "properties": named, "dependentSchemas": named, "additionalProperties": inner, "propertyNames": inner,
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "t", "^$"]), inner, max_size=2),
        "items": inner, "prefixItems": some, "contains": inner, "minContains": counts, "maxContains": counts,
    }  # fmt: skip
    return some_of({**options, **values_of})


def some_of(options: dict[str, st.SearchStrategy[object]]) -> st.SearchStrategy[object]:
    keywords = st.lists(st.sampled_from([*options]), unique=True, max_size=5)
    return keywords.flatmap(lambda some: st.fixed_dictionaries({name: options[name] for name in some})).map(whole)


def whole(schema: dict[str, object]) -> dict[str, object]:
    """Leave out what would not be enforced: the second half of a pair without its first."""
    pairs = {"then": "if", "else": "if", "minContains": "contains", "maxContains": "contains"}
    return {name: value for name, value in schema.items() if pairs.get(name, name) in schema}


leaves: st.SearchStrategy[object] = st.booleans() | some_of(values_of)
schemas = st.recursive(leaves, applicators, max_leaves=6)


@settings(max_examples=120)
@given(schemas, st.lists(payloads, min_size=1, max_size=4))
def test_both_validators_find_the_same_problems(schema: object, values: list[dict[str, object]]) -> None:
    text = json.dumps(schema).encode()
    fast, slow = compile_schema(text), compile_slowly(text)
    assert fast.fast
    assert not slow.fast
    for value in values:
        assert fast.problems_of(value) == slow.problems_of(value)


@settings(max_examples=60)
@given(schemas)
def test_an_accepted_schema_is_a_schema_of_2020_12(schema: object) -> None:
    assert check_schema(schema) == []
    jsonschema.Draft202012Validator.check_schema(schema)


@settings(max_examples=60)
@given(schemas, payloads)
def test_the_answer_is_what_the_library_says_of_the_schema_as_written(schema: object, value: dict[str, object]) -> None:
    # Without patterns, whose classes `re` reads in its own way, nothing was rewritten that could change an answer.
    if "attern" not in json.dumps(schema):
        expected = jsonschema.Draft202012Validator(schema).is_valid(value)
        assert (compile_schema(json.dumps(schema).encode()).problems_of(value) == ()) == expected


SECRET = "secret-name"


@given(schemas, payload_values)
def test_a_problem_shows_no_name_that_the_schema_does_not_declare(schema: object, value: object) -> None:
    payload = {SECRET: value, "a": {SECRET: {SECRET: value}}, "items": [{SECRET: value}]}
    for compiled in (compile_schema(json.dumps(schema).encode()), compile_slowly(json.dumps(schema).encode())):
        for problem in compiled.problems_of(payload):
            assert SECRET not in problem.pointer
            assert SECRET not in problem.rule


VERDICT = {
    "type": "object",
    "required": ["verdict"],
    "properties": {"verdict": {"type": "string", "enum": ["known", "intruder"]}, "seen": {"items": {"type": "string"}}},
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("payload", "problems"),
    [
        (b'{"verdict":"known"}', []),
        (b"{}", [("/verdict", "required")]),
        (b'{"verdict":"friend"}', [("/verdict", "enum")]),
        (b'{"verdict":1}', [("/verdict", "enum"), ("/verdict", "type")]),
        (b'{"verdict":"known","who":"me"}', [("/*", "additionalProperties")]),
        (b'{"verdict":"known","seen":["x",7]}', [("/seen/1", "type")]),
    ],
)
def test_a_problem_says_where_and_which_rule(payload: bytes, problems: list[tuple[str, str]]) -> None:
    expected = tuple(SchemaProblem(*problem) for problem in problems)
    assert compile_schema(json.dumps(VERDICT).encode()).problems(payload) == expected
    assert compile_slowly(json.dumps(VERDICT).encode()).problems(payload) == expected


def test_a_payload_that_breaks_a_rule_often_gets_the_first_problems() -> None:
    schema = compile_schema(b'{"properties":{"l":{"items":{"type":"string"}}}}')
    assert len(schema.problems(b'{"l":[' + b",".join([b"1"] * 5_000) + b"]}")) == MAX_SCHEMA_PROBLEMS


@pytest.mark.parametrize(
    ("schema", "pointer", "part"),
    [
        ({"format": "date"}, "/format", "would not be enforced"),
        ({"default": 1}, "/default", "defaults are never applied"),
        ({"minimun": 1}, "/minimun", "did you mean minimum?"),
        ({"contentEncoding": "base64"}, "/contentEncoding", "would not be enforced"),
        ({"unevaluatedProperties": False}, "/unevaluatedProperties", "use additionalProperties"),
        ({"$ref": "https://example.com/schema"}, "/$ref", "must point into this schema"),
        ({"$ref": "other.json#/a"}, "/$ref", "must point into this schema"),
        ({"$ref": "#/$defs/none"}, "/$ref", "points to no schema"),
        ({"enum": [{}], "$ref": "#/enum/0"}, "/$ref", "points to no schema"),
        ({"$ref": "#"}, "/$ref", "comes back to itself"),
        ({"allOf": [{"anyOf": [{"$ref": "#"}]}]}, "/allOf/0/anyOf/0/$ref", "comes back to itself"),
        ({"$id": "https://example.com/s"}, "/$id", "not supported"),
        ({"$dynamicRef": "#a"}, "/$dynamicRef", "not supported"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "/$schema", "2020-12"),
        ({"multipleOf": 0.1}, "/multipleOf", "fractions cannot be checked exactly"),
        ({"pattern": "(?=a)"}, "/pattern", "linear time"),
        ({"patternProperties": {"(a)\\1": True}}, "/patternProperties/(a)\\1", "linear time"),
        ({"patternProperties": {"[0-9]": True, "\\d": False}}, "/patternProperties/[0-9]", "say the same"),
        ({"properties": {"": True}}, "/properties", "an empty name"),
        ({"then": {}}, "/then", "without if"),
        ({"minContains": 2}, "/minContains", "without contains"),
        ({"type": "strin"}, "/type", "is one of"),
        ({"required": "verdict"}, "/required", "list of names"),
        ({"maxLength": -1}, "/maxLength", "0 or more"),
        ({"minimum": True}, "/minimum", "is a number"),
        ({"properties": {"a/b": {"items": 7}}}, "/properties/a~1b/items", "a schema is an object"),
        (7, "", "a schema is an object"),
    ],
)
def test_what_would_not_be_enforced_alike_everywhere_is_refused(schema: object, pointer: str, part: str) -> None:
    problems = check_schema(schema)
    assert pointer in dict(problems)
    assert part in dict(problems)[pointer]
    with pytest.raises(BadInput):
        compile_schema(json.dumps(schema).encode())


def test_all_problems_of_a_schema_are_told_at_once() -> None:
    schema = {"format": "date", "type": "strin", "properties": {"a": {"minimun": 1}}}
    assert [pointer for pointer, _ in check_schema(schema)] == ["/format", "/type", "/properties/a/minimun"]


def test_recursion_through_the_value_is_accepted_and_ends_with_it() -> None:
    tree = {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}, "additionalProperties": False}
    schema = compile_schema(json.dumps(tree).encode())
    assert schema.problems(b'{"left":{"right":{}}}') == ()
    assert schema.problems(b'{"left":{"right":{"x":1}}}') == (SchemaProblem("/left/right/*", "additionalProperties"),)


def test_references_that_multiply_are_refused() -> None:
    doubling = {"allOf": [{"properties": {"a": {"$ref": "#"}}}, {"properties": {"a": {"$ref": "#"}}}]}
    chain = {
        "$defs": {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(30)},
        "$ref": "#/$defs/d0",
    }
    chain["$defs"]["d30"] = True  # type: ignore[index]
    for schema in (doubling, chain):
        assert [message for _, message in check_schema(schema) if "multiply" in message]


def test_a_template_is_checked_but_for_its_expressions() -> None:
    template = {"properties": {"a": {"enum": "${{ inputs.names }}", "minimum": "${{ inputs.least }}"}}, "format": "x"}
    assert [pointer for pointer, _ in check_schema(template, template=True)] == ["/format"]
    assert len(check_schema(template)) == 3


def test_patterns_that_take_long_to_compile_together_are_refused() -> None:
    schema = {"properties": {f"p{number}": {"pattern": f"[^{number}]{{900}}"} for number in range(9)}}
    assert [message for _, message in check_schema(schema)] == [
        "its patterns have more than 5000 characters and classes in all"
    ]


def test_without_jsonschema_rs_the_other_validator_stands_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    monkeypatch.delitem(sys.modules, "engine.workflows.schema_fast", raising=False)
    schema = compile_schema(b'{"properties":{"only-here":{"pattern":"^a\\\\d$"}}}')
    assert not schema.fast
    assert schema.problems(b'{"only-here":"a1"}') == ()
    assert schema.problems(b'{"only-here":"b"}') == (SchemaProblem("/only-here", "pattern"),)


def test_the_same_text_is_compiled_once() -> None:
    assert compile_schema(b'{"type":"object"}') is compile_schema(b'{"type":"object"}')
