"""Read the part of HOCON that the configurations for EMQX keep to; whatever else is there is a mistake.

Objects (with `=`, or a brace right after the name), lists, quoted strings without escapes, words, and comments. A
dotted name is the objects on its way; a name that is there twice is refused, though HOCON would merge or replace.
"""

from __future__ import annotations

import re
from typing import Any

_TOKEN = re.compile(r'(?P<space>[ \t]+|#[^\n]*)|(?P<sign>[{}\[\]=,\n])|"(?P<text>[^"\\\n]*)"|(?P<word>[A-Za-z0-9_.-]+)')


def read(text: str) -> dict[str, Any]:
    """Give the value of a file; raises ValueError with the line of what is no part of the language."""
    reader = _Reader(text)
    found = reader.members(end="")
    reader.expect("")
    return found


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, bool, int]] = []
        at, line = 0, 1
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise ValueError(f"line {line}: {text[at : at + 20]!r}")
            at = match.end()
            if match["text"] is not None:
                self._tokens.append((match["text"], True, line))
            elif match["space"] is None:
                self._tokens.append((match[0], False, line))
            line += match[0] == "\n"
        self._tokens.append(("", False, line))

    def peek(self) -> str:
        """Give the next sign or word; a quoted string is none."""
        token, quoted, _ = self._tokens[0]
        return '"' if quoted else token

    def expect(self, wanted: str) -> None:
        token, quoted, line = self._tokens.pop(0) if len(self._tokens) > 1 else self._tokens[0]
        if quoted or token != wanted:
            raise ValueError(f"line {line}: {token!r} and not {wanted!r}")

    def _lines(self) -> bool:
        """Skip separators; tell whether there was one."""
        before = len(self._tokens)
        while self.peek() in {"\n", ","}:
            self._tokens.pop(0)
        return len(self._tokens) != before

    def members(self, *, end: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self._lines()
        while self.peek() != end:
            name, quoted, line = self._tokens.pop(0)
            if not quoted and not re.fullmatch(r"[A-Za-z0-9_.-]+", name):
                raise ValueError(f"line {line}: {name!r} is no name")
            if self.peek() != "{":
                self.expect("=")
            place = found
            *path, last = [name] if quoted else name.split(".")
            for step in path:
                place = place.setdefault(step, {})
            if last in place:
                raise ValueError(f"line {line}: {name} is there twice")
            place[last] = self._value()
            if not self._lines() and self.peek() != end:
                raise ValueError(f"line {line}: two values on one line")
        return found

    def _value(self) -> Any:
        token, quoted, line = self._tokens.pop(0)
        if quoted or re.fullmatch(r"[A-Za-z0-9_.-]+", token):
            return token if quoted or token not in {"true", "false"} else token == "true"
        if token == "{":
            found = self.members(end="}")
            self.expect("}")
            return found
        if token == "[":
            values = []
            self._lines()
            while self.peek() != "]":
                values.append(self._value())
                if not self._lines() and self.peek() != "]":
                    raise ValueError(f"line {line}: two values without a comma")
            self.expect("]")
            return values
        raise ValueError(f"line {line}: {token!r} is no value")
