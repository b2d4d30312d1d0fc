"""Proves that a pattern means the same to Rust's regex, to RE2 and, where they can be compared, to `re`."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.workflows.patterns import BadPattern, portable
from engine.workflows.schema_fast import FastValidator
from engine.workflows.schema_slow import matches

ALPHABET = "ab0_- \n\r\t.\x00\x1f~\u00a0\u2028é😀]^\\"
subjects = st.text(st.sampled_from(ALPHABET) | st.characters(exclude_categories=["Cs"]), max_size=8)
atoms = st.sampled_from(
    ["a", "b", "0", "_", "-", "~", "&", "#", "é", "😀", " ", ".", "\\d", "\\w", "\\s", "\\D", "\\W", "\\S", "\\n",
     "\\.", "\\\\", "\\]", "\\x00", "\\u00e9", "[ab]", "[^a]", "[a-z0-9_.-]", "[^\\w\\s]", "[\\]\\[^]", "[\\d-]",
     "[~&&a]", "[^\\n]", "\\/", "\\0", "[\\x00-\\x1f]", "[é-ü]"]
)  # fmt: skip
repeats = st.sampled_from(["", "*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "+?", "{0}"])
sequences = st.lists(st.tuples(atoms, repeats).map("".join), max_size=4).map("".join)
patterns = st.recursive(
    sequences,
    lambda inner: (
        st.tuples(inner, inner).map("|".join)
        | st.tuples(inner, repeats).map(lambda both: f"({both[0]}){both[1]}")
        | st.tuples(inner, inner).map(lambda both: f"(?:{both[0]}){both[1]}")
        | inner.map(lambda text: f"^{text}$")
    ),
    max_leaves=4,
)


@given(patterns, subjects)
def test_the_engines_agree(pattern: str, subject: str) -> None:
    written = portable(pattern)
    assert FastValidator({"pattern": written}).is_valid(subject) == matches(written, subject)


@given(patterns, subjects)
def test_the_meaning_is_kept(pattern: str, subject: str) -> None:
    # `re` is the oracle for what the two disagree on least: ASCII classes spelled out, and $ at the very end only.
    spelled = pattern.replace("\\d", "[0-9]") if "[" not in pattern else pattern
    if re.search(r"\\[swSWD]|\.|\[[^\]]*\\d|&&|\[\\]|\\0|\\/", spelled) is None:
        expected = re.search(spelled.replace("$", "\\Z"), subject, re.ASCII) is not None
        assert matches(portable(pattern), subject) == expected


@given(patterns)
def test_writing_a_pattern_again_changes_nothing_more(pattern: str) -> None:
    assert portable(portable(pattern)) == portable(pattern)


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        ("^\\d+$", "12", True),
        ("^\\d+$", "12\n", False),
        ("^\\d+$", "٣", False),
        ("^\\w+$", "é", False),
        ("^.$", "\u2028", False),
        ("^.$", "😀", True),
        ("^\\s$", "\ufeff", True),
        ("^\\S$", "\u00a0", False),
        ("^[a-z0-9_.-]{1,64}$", "front-door", True),
        ("b", "\0b", True),
        ("^\\0$", "\0", True),
    ],
)
def test_classes_mean_what_ecma_262_says(pattern: str, subject: str, expected: bool) -> None:
    written = portable(pattern)
    assert FastValidator({"pattern": written}).is_valid(subject) is expected
    assert matches(written, subject) is expected


@pytest.mark.parametrize(
    ("pattern", "part"),
    [
        ("(?=a)", "look-around"),
        ("(?<name>a)", "named groups"),
        ("(a)\\1", "back-reference"),
        ("\\bword", "word's edge"),
        ("\\p{L}", "Unicode property"),
        ("a**", "repeat of a repeat"),
        ("^*", "repeat of ^"),
        ("*a", "nothing before it"),
        ("a{2,1}", "out of order"),
        ("a{1001}", "over 1000"),
        ("(a{50}){50}", "more than 1000"),
        ("[z-a]", "out of order"),
        ("[a-\\d]", "from or to a class"),
        ("[]", "empty class"),
        ("[a", "a [ without"),
        ("(a", "a ( without"),
        ("a)", "a ) without"),
        ("a{x}", "begins no repeat"),
        ("\\ud83d", "surrogate"),
        ("\\u12", "hexadecimal"),
        ("(" * 30 + ")" * 30, "nested"),
        ("a" * 1_001, "longer than"),
        ("\\", "means nothing"),
    ],
)
def test_what_the_subset_lacks_is_refused_by_name(pattern: str, part: str) -> None:
    with pytest.raises(BadPattern, match=re.escape(part)):
        portable(pattern)


def test_a_pattern_that_backtracks_elsewhere_takes_no_longer() -> None:
    subject = "x" * 16_000
    written = portable("^(x+x+)+y$")
    fast = FastValidator({"pattern": written})
    started = time.perf_counter()
    assert not fast.is_valid(subject)
    assert not matches(written, subject)
    # Backtracking would not end in the life of the machine that runs this; a second is for the slowest of them.
    assert time.perf_counter() - started < 1
