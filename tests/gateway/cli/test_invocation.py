"""Proves that the shared options are taken from anywhere on the command line, and that the token is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import BadInput
from gateway.cli.invocation import Invocation, parse


@pytest.mark.parametrize(
    "arguments",
    [
        ["--data", "d", "--json", "run", "show", "x"],
        ["run", "--data=d", "show", "--json", "x"],
        ["run", "show", "x", "--json", "--data", "d"],
    ],
)
def test_shared_options_stand_before_between_and_after_the_command(arguments: list[str]) -> None:
    assert parse(arguments, {}) == Invocation(rest=("run", "show", "x"), json=True, data="d")


def test_nothing_is_taken_from_behind_two_dashes() -> None:
    assert parse(["signal", "--", "--json"], {}) == Invocation(rest=("signal", "--", "--json"))


def test_an_option_without_its_value_is_wrong_usage() -> None:
    with pytest.raises(BadInput, match="--data needs a value"):
        parse(["run", "list", "--data"], {})


def test_the_token_comes_from_a_file_or_the_environment_and_the_file_wins(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("wsu_file\n")
    assert parse([], {}).token({}) is None
    assert parse([], {}).token({"WAYSIDE_TOKEN": "wsu_env"}) == "wsu_env"
    assert parse(["--token-file", str(tmp_path / "token")], {}).token({"WAYSIDE_TOKEN": "wsu_env"}) == "wsu_file"
    assert parse([], {}).token({"WAYSIDE_TOKEN_FILE": str(tmp_path / "token")}) == "wsu_file"


def test_a_token_file_that_cannot_be_read_is_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read") as caught:
        parse(["--token-file", str(tmp_path / "nothing")], {}).token({})
    assert "0600" in caught.value.hint or "600" in caught.value.hint


def test_the_server_may_be_named_by_the_environment() -> None:
    assert parse([], {"WAYSIDE_SERVER": "http://a"}).server == "http://a"
    assert parse(["--server", "http://b"], {"WAYSIDE_SERVER": "http://a"}).server == "http://b"


@pytest.mark.parametrize("text", ["", " \n", "two words", "wsu_ünï", "wsu_a\nwsu_b", "x" * 5_000])
def test_what_is_no_token_is_refused_before_it_is_sent_and_not_shown(text: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    for environment in ({"WAYSIDE_TOKEN": text}, {"WAYSIDE_TOKEN_FILE": str(file)}):
        with pytest.raises(BadInput) as caught:
            parse([], {}).token(environment)
        assert not text.strip() or text.strip() not in str(caught.value)


def test_the_end_of_a_windows_line_is_no_part_of_a_token() -> None:
    assert parse([], {}).token({"WAYSIDE_TOKEN": "wsu_env\r\n"}) == "wsu_env"
