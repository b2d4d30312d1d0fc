"""Expressions: CEL over `inputs`, `steps` and `self`, on Google's runtime.

`env` is `{"inputs": {…}, "steps": {name: {"status", "payload", "receipt", "outputs", "error"}}, "self": {…}}`; what an
expression does not read is not looked at. Nothing but ExpressionFailed is raised, and its text holds the expression and
a reason, never a value. What CEL cannot hold is treated so: an integer beyond 64 bits becomes a double; U+0000, which
the runtime would take for the end of a text, is carried through as another character and comes back as itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Final

import msgspec

from engine.errors import WaysideError
from engine.limits import MAX_CAPTURED_SCHEMA_BYTES, MAX_EXPRESSION_CHARACTERS
from engine.workflows.definition import Expression, JsonValue, Template, WaitTask, canonical
from engine.workflows.schema import check_schema
from engine.workflows.templates import BadTemplate, reads, split

_SHOWN_CHARACTERS: Final = 80
_LEAST: Final = -(2**63)
_MOST: Final = 2**63 - 1
_NUL: Final = "\0"
_NUL_STAND_IN: Final = "\U0010fffe"  # a noncharacter: no text that people exchange holds it
_FAULTS: Final = (
    RuntimeError,
    ValueError,
    TypeError,
    OverflowError,
)  # what the binding raises, RecursionError included

_REASONS: Final = (
    ("NOT_FOUND", "it reads a name that is not there"),
    ("non-message type", "it reads a member of something that has none, such as null"),
    ("divide by zero", "it divides by zero"),
    ("modulus by zero", "it divides by zero"),
    ("overflow", "a number is out of range"),
    ("Index error", "a number or an index is out of range"),
    ("out of range", "a number or an index is out of range"),
    ("o matching overload", "it combines values of types that do not go together"),
    ("o such overload", "it combines values of types that do not go together"),
    ("iteration", "it takes too many steps"),
)


class ExpressionFailed(WaysideError):
    """An expression could not be compiled, or could not be evaluated over these values."""

    code: ClassVar[str] = "expression_failed"


@dataclass(frozen=True, slots=True)
class Compiled:
    """An expression that compiles, and what it reads."""

    text: str
    program: Any
    roots: frozenset[str]
    steps: frozenset[str] | None  # None: all of them


@lru_cache(maxsize=1)
def _runtime() -> tuple[Any, Any]:
    from cel_expr_python import cel  # noqa: PLC0415 - a large library, needed when the first expression is met

    of_anything = cel.Type.Map(cel.Type.STRING, cel.Type.DYN)
    return cel.NewEnv(variables=dict.fromkeys(("inputs", "steps", "self"), of_anything)), cel.Type.ERROR


@lru_cache(maxsize=1024)
def compile_expression(text: str) -> Compiled:
    """Compile an expression; raise ExpressionFailed with what the compiler says about it."""
    if len(text) > MAX_EXPRESSION_CHARACTERS:
        raise ExpressionFailed(f"an expression of more than {MAX_EXPRESSION_CHARACTERS} characters")
    try:
        program = _runtime()[0].compile(text)
    except _FAULTS as error:
        raise ExpressionFailed(_compiler_says(text, str(error))) from None
    used = reads(text)
    steps = [read.name for read in used if read.root == "steps"]
    named = None if None in steps else frozenset(name for name in steps if name is not None)
    return Compiled(text, program, frozenset(read.root for read in used), named)


def _compiler_says(text: str, report: str) -> str:
    first = report.split("\n", 1)[0].partition("ERROR: ")[2] or "it does not compile"
    place, _, message = first.partition(": ")
    column = place.rpartition(":")[2]
    message = message.partition(" (in container")[0].partition(" expecting {")[0] or first
    where = f" at character {column}" if column.isdigit() else ""
    return f"the expression {_shown(text)} does not compile{where}: {message}"


def _shown(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_CHARACTERS else f"{line[:_SHOWN_CHARACTERS]}…"


def evaluate(expression: Expression | str, env: Mapping[str, object]) -> JsonValue:
    """Evaluate an expression to a JSON value, in some 20 µs once it is compiled."""
    text = expression.text if isinstance(expression, Expression) else expression
    compiled = compile_expression(text)
    try:
        data = {root: _admit(_needed(compiled, root, env)) for root in compiled.roots}
        result = compiled.program.eval(data=data)
        if result.type() == _runtime()[1]:
            raise ExpressionFailed(_failed(text, str(result.value())))
        return _returned(result.plain_value())
    except _Unfit as unfit:
        raise ExpressionFailed(f"the expression {_shown(text)} failed: {unfit}") from None
    except _FAULTS:
        raise ExpressionFailed(_failed(text, "")) from None


def is_true(expression: Expression | str, env: Mapping[str, object]) -> bool:
    """Evaluate a guard or an assertion: only true itself is true, not 1 and not a text."""
    return evaluate(expression, env) is True


def render(template: Template, env: Mapping[str, object]) -> JsonValue:
    """Fill a template in. A text that is one expression becomes its value, of any type; else values are written in it.

    Names of members are left as they are.
    """
    if isinstance(template, dict):
        return {name: render(value, env) for name, value in template.items()}
    if isinstance(template, list):
        return [render(value, env) for value in template]
    if not isinstance(template, str):
        return template
    match _parts(template):
        case [Expression() as whole]:
            return evaluate(whole, env)
        case parts:
            return "".join(part if isinstance(part, str) else _written(evaluate(part, env)) for part in parts)


def render_text(template: str, env: Mapping[str, object]) -> str:
    """Fill a template in as text, also when it is one expression: other values as JSON writes them."""
    return "".join(part if isinstance(part, str) else _written(evaluate(part, env)) for part in _parts(template))


def captured_schema(task: WaitTask, env: Mapping[str, object]) -> bytes | None:
    """Give the schema that a wait captures as it opens.

    Raise ExpressionFailed if filling it in made it a bad one, or one that no claim or registration has room for.
    """
    if task.schema is not None or task.schema_template is None:
        return task.schema
    schema = render(task.schema_template, env)
    text = canonical(schema)
    if len(text) > MAX_CAPTURED_SCHEMA_BYTES:
        raise ExpressionFailed(f"the schema has more than {MAX_CAPTURED_SCHEMA_BYTES} bytes once filled in")
    if problems := check_schema(schema):
        # Only rules and places of the author's own schema, filled-in values excepted.
        raise ExpressionFailed(f"the schema is not accepted once filled in, at {problems[0][0] or 'its top'}")
    return text


def _parts(template: str) -> tuple[str | Expression, ...]:
    try:
        return split(template)
    except BadTemplate as bad:
        raise ExpressionFailed(str(bad)) from None


def _written(value: JsonValue) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _failed(text: str, report: str) -> str:
    reason = next((words for sign, words in _REASONS if sign in report), "it could not be evaluated")
    return f"the expression {_shown(text)} failed: {reason}"


def _needed(compiled: Compiled, root: str, env: Mapping[str, object]) -> object:
    value = env.get(root, {})
    if root != "steps" or compiled.steps is None or not isinstance(value, Mapping):
        return value
    return {name: value[name] for name in compiled.steps if name in value}


class _Unfit(Exception):
    """A value that cannot go in, or cannot come out; the text names its kind only."""


def _admit(value: object) -> object:
    """Give the runtime what it can hold; values that need no change are passed on as they are."""
    if isinstance(value, str):
        if _NUL_STAND_IN in value:
            raise _Unfit("a text holds the noncharacter U+10FFFE")
        return value.replace(_NUL, _NUL_STAND_IN) if _NUL in value else value
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if _LEAST <= value <= _MOST else float(value)
    if isinstance(value, Mapping):
        return {_admit(name): _admit(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_admit(inner) for inner in value]
    return value


def _returned(value: object) -> JsonValue:
    """Take a JSON value from the runtime; refuse what JSON does not have."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return value.replace(_NUL_STAND_IN, _NUL)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _Unfit("its value is infinite or no number")
        return value
    if isinstance(value, list):
        return [_returned(inner) for inner in value]
    if isinstance(value, dict):
        if not all(isinstance(name, str) for name in value):
            raise _Unfit("a map in its value has names that are not texts")
        # The runtime's maps are in no order: sorted, the same values give the same text every time.
        return {str(_returned(name)): _returned(inner) for name, inner in sorted(value.items())}
    raise _Unfit("its value is a time, a duration, bytes or a type; write string(…) around it")
