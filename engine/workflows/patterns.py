r"""Regular expressions that every engine reads alike and matches in linear time.

A pattern is parsed and written again in the common subset of Rust's regex and RE2, with the classes that they disagree
on spelled out as ECMA-262 means them: `\d` is `[0-9]`, `\w` is `[0-9A-Za-z_]`, `\s` the blanks that ECMA-262 lists, `.`
anything but an end of line. What the subset lacks (back-references, look-around, `\b`, `\p{…}`) is refused by name.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from engine.limits import MAX_PATTERN_ATOMS, MAX_PATTERN_CHARACTERS, MAX_PATTERN_DEPTH, MAX_PATTERN_REPEAT

_ENDS_OF_LINE: Final = "\n\r\u2028\u2029"
_DIGIT: Final = "0-9"
_WORD: Final = "0-9A-Za-z_"
_BLANK: Final = "\t-\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_NOT_DIGIT: Final = "\\x00-/:-\U0010ffff"
_NOT_WORD: Final = "\\x00-/:-@\\[-\\^`\\{-\U0010ffff"
_NOT_BLANK: Final = (
    "\\x00-\u0008\u000e-\u001f!-\u009f\u00a1-\u167f\u1681-\u1fff\u200b-\u2027\u202a-\u202e\u2030-\u205e"
    "\u2060-\u2fff\u3001-\ufefe\uff00-\U0010ffff"
)
_CLASSES: Final = {"d": _DIGIT, "w": _WORD, "s": _BLANK, "D": _NOT_DIGIT, "W": _NOT_WORD, "S": _NOT_BLANK}
_CONTROLS: Final = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "0": "\0"}
_META: Final = frozenset("\\.+*?()|[]{}^$&-~#")
_HEX_DIGITS: Final = {"x": 2, "u": 4}
_REFUSED_ESCAPES: Final = {
    "b": "\\b (a word's edge)",
    "B": "\\B (no word's edge)",
    "p": "\\p (a Unicode property)",
    "P": "\\P (a Unicode property)",
    "k": "\\k (a back-reference)",
    "c": "\\c (a control letter)",
}


class BadPattern(ValueError):
    """A pattern outside the subset. The text says which part, and is for the author of a schema."""


def portable(pattern: str) -> str:
    """Write `pattern` so that Rust's regex and RE2 agree on it; raise BadPattern when the subset cannot."""
    return _written(pattern)[0]


def atoms_of(pattern: str) -> int:
    """Count the atoms of a pattern that `portable` accepts."""
    return _written(pattern)[1]


@lru_cache(maxsize=512)
def _written(pattern: str) -> tuple[str, int]:
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise BadPattern(f"longer than {MAX_PATTERN_CHARACTERS} characters")
    parser = _Parser(pattern)
    text, atoms = parser.alternatives(0)
    if parser.at < len(pattern):
        raise BadPattern("a ) without its (")
    if atoms > MAX_PATTERN_ATOMS:
        raise BadPattern(f"more than {MAX_PATTERN_ATOMS} characters and classes when its repeats are written out")
    return text, atoms


class _Parser:
    """Recursive descent over one pattern. Each method gives the text written again and how many atoms it has."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self.at = 0

    def alternatives(self, depth: int) -> tuple[str, int]:
        if depth > MAX_PATTERN_DEPTH:
            raise BadPattern(f"groups nested more than {MAX_PATTERN_DEPTH} deep")
        written: list[str] = []
        atoms = 1
        while True:
            text, count = self._sequence(depth)
            written.append(text)
            atoms += count
            if self._peek() != "|":
                return "|".join(written), atoms
            self.at += 1

    def _sequence(self, depth: int) -> tuple[str, int]:
        written: list[str] = []
        atoms = 0
        while (character := self._peek()) not in {"", "|", ")"}:
            if character in "^$":
                self.at += 1
                written.append(character)
                if self._peek() in set("*+?{"):
                    raise BadPattern(f"a repeat of {character}")
                continue
            text, count = self._atom(depth)
            repeat, factor = self._repeat()
            written.append(text + repeat)
            atoms += count * factor
        return "".join(written), atoms

    def _atom(self, depth: int) -> tuple[str, int]:
        match self._take():
            case "(":
                return self._group(depth)
            case "[":
                return self._class(), 1
            case ".":
                return f"[^{_ENDS_OF_LINE}]", 1
            case "\\":
                escaped = self._escape()
                return (f"[{escaped}]" if len(escaped) > 2 else escaped), 1
            case "*" | "+" | "?" | "{" as repeat:
                raise BadPattern(f"{repeat} with nothing before it; write \\{repeat} for the character")
            case "]" | "}" as bracket:
                raise BadPattern(f"a {bracket} alone; write \\{bracket} for the character")
            case character:
                return _literal(character), 1

    def _group(self, depth: int) -> tuple[str, int]:
        if self._peek() == "?":
            if self._pattern[self.at : self.at + 2] != "?:":
                raise BadPattern("(?…) other than (?:…): look-around and named groups are not supported")
            self.at += 2
        text, atoms = self.alternatives(depth + 1)
        if self._take() != ")":
            raise BadPattern("a ( without its )")
        return f"(?:{text})", atoms

    def _repeat(self) -> tuple[str, int]:
        text, factor = self._peek(), 1
        if text == "{":
            text, factor = self._counted()
        elif text in {"*", "+", "?"}:
            self.at += 1
        else:
            return "", 1
        if self._peek() == "?":
            self.at += 1  # a lazy repeat finds a match where a greedy one does
        if self._peek() in set("*+?{"):
            raise BadPattern("a repeat of a repeat")
        return text, factor

    def _counted(self) -> tuple[str, int]:
        end = self._pattern.find("}", self.at)
        low, comma, high = self._pattern[self.at + 1 : max(end, self.at)].partition(",")
        if not _is_count(low) or (high != "" and not _is_count(high)):
            raise BadPattern("a { that begins no repeat such as {2} or {2,5}; write \\{ for the character")
        most = int(high or low)
        if most > MAX_PATTERN_REPEAT or int(low) > most:
            raise BadPattern(f"a repeat out of order or over {MAX_PATTERN_REPEAT}")
        self.at = end + 1
        return f"{{{int(low)}{comma}{int(high) if high else ''}}}", max(most, 1)

    def _class(self) -> str:
        negated = self._peek() == "^"
        if negated:
            self.at += 1
        items: list[str] = []
        while (character := self._take()) != "]":
            if character == "":
                raise BadPattern("a [ without its ]")
            item = self._escape(inside=True) if character == "\\" else _literal(character)
            if self._peek() == "-" and self._pattern[self.at + 1 : self.at + 2] not in {"", "]"}:
                item = self._range(item)
            items.append(item)
        if not items:
            raise BadPattern("an empty class")
        return f"[{'^' if negated else ''}{''.join(items)}]"

    def _range(self, low: str) -> str:
        self.at += 1
        character = self._take()
        high = self._escape(inside=True) if character == "\\" else _literal(character)
        first, last = _single(low), _single(high)
        if first > last:
            raise BadPattern("a range that is out of order")
        return f"{low}-{high}"

    def _escape(self, *, inside: bool = False) -> str:
        letter = self._take()
        if letter in _CLASSES:
            return _CLASSES[letter]
        if letter == "b" and inside:
            return "\b"
        if letter in _REFUSED_ESCAPES:
            raise BadPattern(f"{_REFUSED_ESCAPES[letter]} is not supported")
        if letter in _HEX_DIGITS:
            return _literal(self._hexadecimal(letter))
        if letter in _CONTROLS and not (letter == "0" and self._peek().isdigit()):
            return _literal(_CONTROLS[letter])
        if letter == "" or (letter.isascii() and letter.isalnum()):
            raise BadPattern(f"\\{letter}: a back-reference, or an escape that means nothing")
        return _literal(letter)

    def _hexadecimal(self, letter: str) -> str:
        digits = self._pattern[self.at : self.at + _HEX_DIGITS[letter]]
        if len(digits) != _HEX_DIGITS[letter] or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
            raise BadPattern(f"\\{letter} without its {_HEX_DIGITS[letter]} hexadecimal digits")
        character = chr(int(digits, 16))
        if "\ud800" <= character <= "\udfff":
            raise BadPattern("half of a surrogate pair; write the character itself")
        self.at += len(digits)
        return character

    def _peek(self) -> str:
        return self._pattern[self.at : self.at + 1]

    def _take(self) -> str:
        character = self._peek()
        self.at += 1
        return character


def _literal(character: str) -> str:
    if character == "\0":
        return "\\x00"  # RE2 is handed a C string
    return f"\\{character}" if character in _META else character


def _single(written: str) -> str:
    """Give the one character that `written`, an item of a class, stands for."""
    if written == "\\x00":
        return "\0"
    character = written.removeprefix("\\")
    if len(character) != 1:
        raise BadPattern("a range from or to a class")
    return character


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 4
