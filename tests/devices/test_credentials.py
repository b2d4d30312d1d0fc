"""Proves the shape of tokens, and that comparing one makes the same steps whoever asks."""

from __future__ import annotations

import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devices import credentials
from devices.model import Kind, Secret

numbers = st.integers(min_value=0, max_value=(1 << credentials.ENTROPY_BITS) - 1)
kinds: st.SearchStrategy[Kind] = st.sampled_from(["device", "user"])


@given(kinds, numbers)
def test_a_token_has_its_prefix_43_characters_and_a_checksum(kind: Kind, number: int) -> None:
    token = credentials.make_token(kind, number)
    assert token[:4] == {"device": "wsd_", "user": "wsu_"}[kind]
    assert len(token) == 4 + 43 + 6
    assert token[4:].isalnum()
    assert token.isascii()
    assert credentials.kind_of(token) == kind


@given(numbers, numbers)
def test_two_numbers_never_make_one_token(one: int, other: int) -> None:
    same = credentials.make_token("device", one) == credentials.make_token("device", other)
    assert same == (one == other)


@given(kinds, numbers, st.integers(min_value=0, max_value=52), st.characters(codec="ascii", categories=["L", "N"]))
def test_one_changed_character_breaks_the_checksum(kind: Kind, number: int, at: int, other: str) -> None:
    token = credentials.make_token(kind, number)
    changed = token[:at] + other + token[at + 1 :]
    assert (credentials.kind_of(changed) is None) == (changed != token)


@pytest.mark.parametrize("text", ["", "wsd_", "wsd_" + "a" * 49, "Bearer x", "wsd_" + "é" * 49])
def test_what_is_no_token_belongs_to_nobody(text: str) -> None:
    assert credentials.kind_of(text) is None
    assert credentials.matching((), text) is None


def test_a_token_matches_either_of_two_secrets_and_no_other() -> None:
    tokens = [credentials.make_token("device", number) for number in range(3)]
    one, two = (Secret(digest=credentials.digest(token), since=n) for n, token in enumerate(tokens[:2], start=1))
    assert credentials.matching((one, two), tokens[0]) == one
    assert credentials.matching((one, two), tokens[1]) == two
    assert credentials.matching((one, two), tokens[2]) is None
    assert credentials.matching((), tokens[0]) is None


@pytest.mark.parametrize("held", [0, 1, 2])
@pytest.mark.parametrize("presented", [0, 1, 9])
def test_the_same_comparisons_are_made_whoever_asks(held: int, presented: int, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[int, int]] = []
    real = hmac.compare_digest

    def counting(one: str, other: str) -> bool:
        compared.append((len(one), len(other)))
        return real(one, other)

    monkeypatch.setattr(hmac, "compare_digest", counting)
    tokens = [credentials.make_token("device", number) for number in range(held)]
    secrets = tuple(Secret(digest=credentials.digest(token), since=1) for token in tokens)
    credentials.matching(secrets, credentials.make_token("device", presented))
    assert compared == [(64, 64), (64, 64)]
