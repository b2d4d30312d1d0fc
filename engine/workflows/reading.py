"""Reading a definition's values: each question asked of a node gives a usable answer, and notes what was wrong.

So one pass over a document finds all its problems, and the code that builds a definition has no error branches.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from engine.limits import NAME_PATTERN
from engine.workflows.definition import Expression, JsonValue, Template
from engine.workflows.document import child
from engine.workflows.problems import Problem
from engine.workflows.templates import OPENING, BadTemplate, expressions_in, split

_NAME: Final = re.compile(NAME_PATTERN)
Scope = Literal["task", "values", "schema"]


@dataclass(frozen=True, slots=True)
class Use:
    """An expression met on the way, to be checked when all steps are known."""

    expression: str
    pointer: str
    step: str
    scope: Scope


@dataclass(slots=True)
class Findings:
    """What one pass over a document has noted."""

    problems: list[Problem] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)

    def refuse(self, pointer: str, message: str, *, hint: str = "", step: str = "") -> None:
        self.problems.append(Problem(step, pointer, 0, message, hint))


@dataclass(frozen=True, slots=True)
class Node:
    """A value of the document, where it stands, and the step that it belongs to ("" outside steps)."""

    value: JsonValue
    pointer: str
    findings: Findings
    step: str = ""

    def refuse(self, message: str, hint: str = "") -> None:
        self.findings.refuse(self.pointer, message, hint=hint, step=self.step)

    def within(self, step: str) -> Node:
        """Take the same node as part of `step`."""
        return Node(self.value, self.pointer, self.findings, step)

    def members(self, what: str, known: Iterable[str], required: Iterable[str] = ()) -> dict[str, Node]:
        """Read an object with `known` members. An optional one left empty is absent, except `payload`, `body`."""
        if not isinstance(self.value, dict):
            self.refuse(f"{what} must have members, such as {', '.join(required) or next(iter(known))}")
            return {}
        known = [*known]
        found: dict[str, Node] = {}
        for name, value in self.value.items():
            node = Node(value, child(self.pointer, name), self.findings, self.step)
            if name not in known:
                node.refuse(f"{what} has no member {name!r}", did_you_mean(name, known))
            elif value is not None or name in {"payload", "body"}:
                found[name] = node
            elif name in required:
                node.refuse(f"{name} is empty")
        for name in required:
            if name not in self.value:
                self.refuse(f"{what} needs {name}")
        return found

    def items(self, what: str) -> list[Node]:
        if not isinstance(self.value, list):
            self.refuse(f"{what} is a list")
            return []
        return [
            Node(value, child(self.pointer, index), self.findings, self.step) for index, value in enumerate(self.value)
        ]

    def name(self, what: str) -> str:
        """Read a literal name; "" when it is none."""
        value = self.value
        if isinstance(value, str) and OPENING in value:
            self.refuse(f"{what} takes no expression", "write the name itself")
        elif isinstance(value, str) and _NAME.fullmatch(value):
            return value
        else:
            shape = "1 to 64 characters of a-z, 0-9, - and _, the first a letter or digit"
            self.refuse(f"{what} must be {shape}", _suggested_name(value))
        return ""

    def text(self, what: str) -> str:
        """Read a literal text."""
        if isinstance(self.value, str):
            return self.value
        self.refuse(f"{what} must be a text", "put it in quotes" if _is_scalar(self.value) else "")
        return ""

    def flag(self, what: str) -> bool:
        if isinstance(self.value, bool):
            return self.value
        self.refuse(
            f"{what} must be true or false", "write it without quotes" if self.value in {"true", "false"} else ""
        )
        return False

    def choice(self, what: str, options: Iterable[str]) -> str:
        """Read one of `options`; the first of them when it is none."""
        options = [*options]
        if isinstance(self.value, str) and self.value in options:
            return self.value
        self.refuse(f"{what} must be one of {', '.join(options)}", did_you_mean(self.value, options))
        return options[0]

    def seconds(self, what: str, most: int) -> float:
        """Read seconds, 0 < n <= `most`."""
        value = self.value
        if isinstance(value, str) and OPENING in value:
            self.refuse(f"{what} takes no expression", "write the number of seconds")
        elif not isinstance(value, int | float) or isinstance(value, bool):
            self.refuse(f"{what} must be a number of seconds", _suggested_seconds(value))
        elif not (0 < value <= most and math.isfinite(value)):
            self.refuse(f"{what} must be over 0 and at most {most} seconds")
        else:
            return float(value)
        return 1.0

    def whole(self, what: str, least: int, most: int) -> int:
        value = self.value
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        self.refuse(f"{what} must be a whole number from {least} to {most}")
        return least

    def expression(self, what: str) -> Expression:
        """Read a value that is one expression, `${{ … }}`, or true or false."""
        if isinstance(self.value, bool):
            return Expression("true" if self.value else "false")
        parts = self._split(self.value) if isinstance(self.value, str) else ()
        match parts:
            case [Expression() as whole]:
                self.findings.uses.append(Use(whole.text, self.pointer, self.step, "task"))
                return whole
            case _:
                inner = self.value if isinstance(self.value, str) and OPENING not in self.value else "…"
                self.refuse(f"{what} must be one expression", f"write ${{{{ {inner} }}}}")
        return Expression("false")

    def template(self, scope: Scope = "task") -> Template:
        """Take the value as a template, and note the expressions in it."""
        for path, text in expressions_in(self.value):
            pointer = self.pointer
            for step in path:
                pointer = child(pointer, step)
            inner = Node(text, pointer, self.findings, self.step)
            for part in inner._split(text):
                if isinstance(part, Expression):
                    self.findings.uses.append(Use(part.text, pointer, self.step, scope))
        return self.value

    def text_template(self, what: str) -> str:
        """Take a text, or a number as JSON writes it, as a template."""
        value = self.value
        if isinstance(value, str):
            self.template()
            return value
        if isinstance(value, int | float) and not isinstance(value, bool):
            return repr(value)
        return self.text(what)

    def _split(self, text: str) -> tuple[str | Expression, ...]:
        try:
            return split(text)
        except BadTemplate as bad:
            self.refuse(str(bad), "an expression is written ${{ … }}")
            return (Expression("false"),) if text.startswith(OPENING) else ()


def text_map(node: Node, what: str) -> dict[str, str]:
    """Read an object whose values are text templates."""
    if not isinstance(node.value, dict):
        node.refuse(f"{what} must have members, each a text")
        return {}
    return {
        name: Node(value, child(node.pointer, name), node.findings, node.step).text_template(f"{what}: {name}")
        for name, value in node.value.items()
    }


def optional(members: Mapping[str, Node], name: str, pointer_of: Node) -> Node:
    """Find a member, or a node without a value in its place."""
    return members.get(name) or Node(None, child(pointer_of.pointer, name), pointer_of.findings, pointer_of.step)


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Suggest the known word that is nearest to one that is not, "" when none is near."""
    if not isinstance(word, str):
        return ""
    known = [*known]
    folded = {_folded(name): name for name in known}
    near = folded.get(_folded(word)) or next(iter(difflib.get_close_matches(word, known, n=1)), "")
    return f"did you mean {near}?" if near else ""


def _folded(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _is_scalar(value: JsonValue) -> bool:
    return isinstance(value, bool | int | float)


def _suggested_name(value: JsonValue) -> str:
    if not isinstance(value, str):
        return "put it in quotes" if _is_scalar(value) else ""
    near = re.sub(r"[^a-z0-9_-]+", "-", value.lower()).strip("-_")[:64]
    return f"such as {near}" if _NAME.fullmatch(near) else ""


def _suggested_seconds(value: JsonValue) -> str:
    units = {"ms": 0.001, "s": 1, "m": 60, "h": 3_600, "d": 86_400}
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d)?\s*", value) if isinstance(value, str) else None
    return f"write {float(match[1]) * units[match[2] or 's']:g}" if match else ""
