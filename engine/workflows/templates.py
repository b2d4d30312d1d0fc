"""Where expressions stand in a text, and what an expression reads: by its tokens, before anything is compiled."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from engine.limits import MAX_EXPRESSION_CHARACTERS
from engine.workflows.definition import Expression

OPENING: Final = "${{"
_CLOSING: Final = "}}"

# A comment ends at the expression's end too: `${{ a // why }}`.
_TOKEN: Final = re.compile(
    r"""(?P<string>
          [bB]?[rR][bB]?(?:\"\"\"[\s\S]*?\"\"\"|'''[\s\S]*?'''|"[^"\n]*"|'[^'\n]*')
        | [bB]?(?:\"\"\"(?:\\[\s\S]|[^\\])*?\"\"\"|'''(?:\\[\s\S]|[^\\])*?'''
                 |"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
        )
      | (?P<skip>\s+|//(?:(?!\}\})[^\n])*)
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<number>\.?[0-9][0-9A-Za-z_.]*)
      | (?P<sign>[\s\S])""",
    re.VERBOSE,
)
_PLAIN_STRING: Final = re.compile(r"""(["'])([^"'\\]*)\1""")


class BadTemplate(ValueError):
    """A text whose expressions cannot be told apart from the rest of it."""


@lru_cache(maxsize=2048)
def split(text: str) -> tuple[str | Expression, ...]:
    """Split a text into what is literal and what is an expression; raise BadTemplate for one that does not end.

    `}}` inside a string literal or a map literal of the expression does not end it.
    """
    parts: list[str | Expression] = []
    at = 0
    while (start := text.find(OPENING, at)) >= 0:
        if start > at:
            parts.append(text[at:start])
        end = _end(text, start + len(OPENING))
        inner = text[start + len(OPENING) : end].strip()
        if not inner:
            raise BadTemplate("an expression with nothing in it")
        parts.append(Expression(inner))
        at = end + len(_CLOSING)
    if at < len(text):
        parts.append(text[at:])
    return tuple(parts)


def _end(text: str, at: int) -> int:
    depth = 0
    limit = min(len(text), at + MAX_EXPRESSION_CHARACTERS + len(_CLOSING))
    while at < limit:
        if depth == 0 and text.startswith(_CLOSING, at):
            return at
        token = _TOKEN.match(text, at, limit)
        assert token is not None, "any character is a token"
        depth += {"{": 1, "}": -1}.get(token.group(), 0)
        depth = max(depth, 0)
        at = token.end()
    raise BadTemplate(f"${{{{ without its }}}} within {MAX_EXPRESSION_CHARACTERS} characters")


def expressions_in(value: object) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """List the texts with expressions in a template, each with the path to it."""
    waiting: list[tuple[tuple[str | int, ...], object]] = [((), value)]
    while waiting:
        path, here = waiting.pop()
        if isinstance(here, str):
            if OPENING in here:
                yield path, here
        elif isinstance(here, dict):
            waiting.extend(((*path, name), inner) for name, inner in reversed(here.items()))
        elif isinstance(here, list):
            waiting.extend(((*path, index), inner) for index, inner in reversed(list(enumerate(here))))


@dataclass(frozen=True, slots=True)
class Read:
    """One use of `inputs`, `steps` or `self`: the name read in it, and the member of that.

    None where the expression takes the whole, or computes the name.
    """

    root: str
    name: str | None
    member: str | None = None


_ROOTS: Final = frozenset({"inputs", "steps", "self"})


@lru_cache(maxsize=2048)
def reads(expression: str) -> tuple[Read, ...]:
    """List what an expression reads, in order."""
    tokens = [(str(t.lastgroup), t.group()) for t in _TOKEN.finditer(expression) if t.lastgroup != "skip"]
    found: list[Read] = []
    for at, (kind, text) in enumerate(tokens):
        if kind != "name" or text not in _ROOTS or (at > 0 and tokens[at - 1][1] == "."):
            continue
        name, after = _selected(tokens, at + 1)
        member = _selected(tokens, after)[0] if name is not None else None
        found.append(Read(text, name, member))
    return tuple(found)


def _selected(tokens: list[tuple[str, str]], at: int) -> tuple[str | None, int]:
    """Read `.name` or `["name"]` at a token, and say where the next one is."""
    match tokens[at : at + 3]:
        case [("sign", "."), ("name", name), *_]:
            return name, at + 2
        case [("sign", "["), ("string", quoted), ("sign", "]")]:
            plain = _PLAIN_STRING.fullmatch(quoted)
            return (plain.group(2) if plain else None), at + 3
        case _:
            return None, at
