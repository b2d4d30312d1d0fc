"""A YAML text as plain JSON values, with the line that each came from.

YAML 1.2's core schema: `on` and `yes` are strings, and so is every quoted scalar. What JSON does not have is refused,
as are repeated names, tags, and aliases that would make the document larger than MAX_DOCUMENT_VALUES. The parser is
libyaml's where PyYAML was built with it; values are built here from its events, so that depth and size stay bounded.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any, Final

from engine.limits import (
    MAX_DEFINITION_BYTES,
    MAX_DOCUMENT_DEPTH,
    MAX_DOCUMENT_NUMBER_CHARACTERS,
    MAX_DOCUMENT_VALUES,
)
from engine.workflows.definition import JsonValue
from engine.workflows.problems import Problem

_CHARACTERS_A_VALUE: Final = 256  # a long text counts for more, so that aliases of one cannot fill the memory

_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE: Final = frozenset({"true", "True", "TRUE"})
_FALSE: Final = frozenset({"false", "False", "FALSE"})
_INTEGER: Final = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_JSON: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_STRING_TAGS: Final = frozenset({"!", "tag:yaml.org,2002:str"})


@dataclass(slots=True)
class Document:
    """A text that was read: its value, the problems met, and the line (from 1) of each pointer."""

    value: JsonValue = None
    problems: list[Problem] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)

    def line(self, pointer: str) -> int:
        """Find the line of `pointer`, or of the nearest thing around it."""
        while pointer and pointer not in self.lines:
            pointer = pointer.rpartition("/")[0]
        return self.lines.get(pointer, 1)

    def refuse(self, pointer: str, line: int, message: str, hint: str = "") -> None:
        """Note a problem."""
        self.problems.append(Problem("", pointer, line, message, hint))


def read_yaml(text: str) -> Document:
    """Read one YAML document; a problem of syntax is the only one reported, since nothing after it can be trusted."""
    import yaml  # noqa: PLC0415 - takes 50 ms, and most commands read no workflow

    document = Document()
    if len(text.encode(errors="replace")) > MAX_DEFINITION_BYTES:
        document.refuse("", 1, f"larger than {MAX_DEFINITION_BYTES} bytes")
        return document
    loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        builder = _Builder(document)
        for event in yaml.parse(text, Loader=loader):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = " ".join(part for part in (error.context, error.problem) if part)
        line = mark.line + 1 if mark else 1
        document.problems = [Problem("", "", line, f"not YAML: {message}", _quotes(text, line))]
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        document.problems = [Problem("", "", line, f"not YAML: {error.reason}", "")]
    except _Stop as stop:
        document.problems = [stop.problem]
    return document


def _quotes(text: str, line: int) -> str:
    """Suggest what most often mends a line with an expression: YAML reads `: ` and ` #` in it for itself."""
    lines = text.splitlines()
    return "put the whole ${{ … }} in quotes" if "${{" in "".join(lines[line - 1 : line]) else ""


def child(pointer: str, name: str | int) -> str:
    """Extend a JSON pointer by one step (RFC 6901)."""
    return f"{pointer}/{str(name).replace('~', '~0').replace('/', '~1')}"


class _Stop(Exception):
    """End the reading at a problem that makes the rest meaningless."""

    def __init__(self, pointer: str, line: int, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.problem = Problem("", pointer, line, message, hint)


@dataclass(slots=True)
class _Open:
    """A list or mapping that is being filled. `name` is the member whose value comes next."""

    value: dict[str, JsonValue] | list[JsonValue]
    pointer: str
    anchor: str | None
    size: int = 1
    name: str | None = None
    repeated: bool = False  # the member's name occurred before: its value is read and dropped


class _Builder:
    """Turn the parser's events into values."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._stack: list[_Open] = []
        self._anchors: dict[str, tuple[JsonValue, int]] = {}
        self._nodes = 0
        self._documents = 0

    def take(self, event: Any) -> None:  # noqa: ANN401 - PyYAML's events share no useful type
        line = event.start_mark.line + 1
        match type(event).__name__:
            case "DocumentStartEvent":
                self._documents += 1
                if self._documents > 1:
                    raise _Stop("", line, "a second document in one file", "one file holds one workflow")
            case "ScalarEvent":
                self._scalar(event, line)
            case "MappingStartEvent":
                self._start({}, event, line)
            case "SequenceStartEvent":
                self._start([], event, line)
            case "MappingEndEvent" | "SequenceEndEvent":
                self._end(line)
            case "AliasEvent":
                self._alias(event, line)
            case _:
                pass

    def _scalar(self, event: Any, line: int) -> None:  # noqa: ANN401
        if _SURROGATE.search(event.value):  # only the parser without libyaml lets one through
            raise _Stop("", line, "a lone surrogate")
        if self._wants_name():
            self._name(str(event.value), line)
            return
        pointer = self._place(line)
        value: JsonValue = str(event.value)
        if event.tag is not None and event.tag not in _STRING_TAGS:
            self._document.refuse(pointer, line, "tags are not supported", "write the value without its tag")
        elif event.tag is None and event.implicit[0]:
            value = self._plain(str(event.value), pointer, line)
        self._put(value, 1 + len(event.value) // _CHARACTERS_A_VALUE, event.anchor, line)

    def _plain(self, text: str, pointer: str, line: int) -> JsonValue:
        if text in _NULL:
            return None
        if text in _TRUE or text in _FALSE:
            return text in _TRUE
        number = _INTEGER.fullmatch(text) or _FLOAT.fullmatch(text)
        if number is None and _NOT_JSON.fullmatch(text) is None:
            return text
        value = _number(text) if number is not None and len(text) <= MAX_DOCUMENT_NUMBER_CHARACTERS else None
        if value is None:
            self._document.refuse(pointer, line, "a number that JSON cannot hold")
            return 0
        return value

    def _start(self, value: dict[str, JsonValue] | list[JsonValue], event: Any, line: int) -> None:  # noqa: ANN401
        pointer = self._place(line)
        if self._wants_name():
            raise _Stop(pointer, line, "a member's name must be plain text")
        if len(self._stack) >= MAX_DOCUMENT_DEPTH:
            raise _Stop(pointer, line, f"nested more than {MAX_DOCUMENT_DEPTH} levels deep")
        if event.tag is not None:
            self._document.refuse(pointer, line, "tags are not supported", "write the value without its tag")
        self._count(1, pointer, line)
        self._stack.append(_Open(value, pointer, event.anchor))

    def _end(self, line: int) -> None:
        done = self._stack.pop()
        self._put(done.value, done.size, done.anchor, line)

    def _alias(self, event: Any, line: int) -> None:  # noqa: ANN401
        pointer = self._place(line)
        if self._wants_name() or event.anchor not in self._anchors:
            raise _Stop(pointer, line, f"the alias *{event.anchor} names nothing that ends before it")
        value, size = self._anchors[event.anchor]
        self._count(size, pointer, line)
        self._put(value, size, None, line)

    def _name(self, name: str, line: int) -> None:
        holder = self._stack[-1]
        assert isinstance(holder.value, dict)
        holder.name = name
        holder.repeated = name in holder.value
        pointer = child(holder.pointer, name)
        if holder.repeated:
            first = self._document.lines.get(pointer, 0)
            self._document.refuse(pointer, line, f"the name {name!r} occurs twice", f"first on line {first}")
        else:
            self._document.lines[pointer] = line

    def _place(self, line: int) -> str:
        """Point to where the next value goes."""
        if not self._stack:
            self._document.lines[""] = line
            return ""
        holder = self._stack[-1]
        if isinstance(holder.value, dict):
            return child(holder.pointer, holder.name or "")
        pointer = child(holder.pointer, len(holder.value))
        self._document.lines[pointer] = line
        return pointer

    def _put(self, value: JsonValue, size: int, anchor: str | None, line: int) -> None:
        if not isinstance(value, dict | list):
            self._count(size, "", line)
        if anchor is not None:
            self._anchors[anchor] = (value, size)
        if not self._stack:
            self._document.value = value
            return
        holder = self._stack[-1]
        holder.size += size
        if isinstance(holder.value, list):
            holder.value.append(value)
            return
        if not holder.repeated:
            holder.value[holder.name or ""] = value
        holder.name = None

    def _wants_name(self) -> bool:
        return bool(self._stack) and isinstance(self._stack[-1].value, dict) and self._stack[-1].name is None

    def _count(self, nodes: int, pointer: str, line: int) -> None:
        self._nodes += nodes
        if self._nodes > MAX_DOCUMENT_VALUES:
            raise _Stop(
                pointer, line, f"more than {MAX_DOCUMENT_VALUES} values, aliases counted as what they stand for"
            )


def _number(text: str) -> int | float | None:
    if text.startswith(("0o", "0x")):
        return int(text, 0)
    if _INTEGER.fullmatch(text):
        return int(text)
    value = float(text)
    return value if math.isfinite(value) else None
