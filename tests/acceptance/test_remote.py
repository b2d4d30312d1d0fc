"""Proves that every command there is works on a remote gateway by `--server`, or says by its name that it does not."""

from __future__ import annotations

import importlib
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

from gateway.cli import commands
from tests.support.command import Ran, Serving, typed

Far = Callable[..., Awaitable[Ran]]
KNOWN = '{"verdict": "known"}'


class Row(NamedTuple):
    """A command line, how it ends, and what its JSON has: `member` or `member=value`. `{x}` stands for an earlier x."""

    line: str
    has: str = ""
    status: int = 0
    keep: str = ""


# In this order: what one command makes the next one uses.
ROWS = (
    Row("workflow list", "workflows"),
    Row("workflow show front-door", "name=front-door"),
    Row("workflow validate", "ok=True"),
    Row("workflow run front-door", "run", keep="run"),
    Row("waits", "waits", keep="wait"),
    Row("signal --wait {wait} @ --id one", "state=delivered"),
    Row("run follow {run}", "event"),
    Row("run show {run} --events", "status=succeeded"),
    Row("run list --workflow front-door", "runs"),
    Row("run retry {run}", "error=conflict", 1),
    Row("run resume {run}", "run"),
    Row("run delete {run}", "run"),
    Row("run gc --older-than 30d", "runs"),
    Row("workflow run front-door", "run", keep="run"),
    Row("run cancel {run}", "run"),
    Row("device add camera --grant signal:front-door", "token", keep="token"),
    Row("device limit camera --signals 50/100", "limits={{'signals': {{'per_second': 50.0, 'burst': 100}}}}"),
    Row("device import {file} --dry-run", "would_add=['bell']"),
    Row("device list", "devices"),
    Row("device show camera", "device=camera"),
    Row("device grant camera read:front-door", "grants"),
    Row("device ungrant camera read:front-door", "grants"),
    Row("device rotate camera", "token"),
    Row("device rotate camera --finish", "tokens=1"),
    Row("device export mosquitto", "files"),
    Row("device disable camera", "state=disabled"),
    Row("device enable camera", "state=active"),
    Row("device revoke camera", "tokens=0"),
    Row("device delete camera", "state=deleted"),
    Row("operator add ann --right read", "token"),
    Row("operator list", "operators"),
    Row("operator rotate ann", "token"),
    Row("operator rotate ann --finish", "tokens=1"),
    Row("operator revoke ann", "operator=ann"),
    Row("signal front-door kitchen-verdict @", "state=held", keep="receipt"),
    Row("audit --receipt {receipt}", "action=signal.held"),
    Row("audit --why {receipt}", "story"),
    Row("audit --verify", "ok=True"),
    Row("doctor", "ok=True"),
    Row("login", "error=conflict", 1),
    Row("serve", "error=bad_input", 2),
    Row("demo", "error=bad_input", 2),
    Row("simulate kitchen", "error=bad_input", 2),
    Row("map test a/b {{}}", "error=bad_input", 2),
    Row("tls init", "error=bad_input", 2),
    Row("tls device camera", "error=bad_input", 2),
    Row("tls show", "error=bad_input", 2),
    Row("config show", "error=bad_input", 2),
    Row("store check", "error=bad_input", 2),
    Row("store copy a b", "error=bad_input", 2),
)


def every_command() -> set[str]:
    """Walk through the commands as typer knows them."""
    for module in dict.fromkeys(commands._COMMANDS.values()):
        importlib.import_module(f"gateway.cli.{module}").register(commands.app)

    def walk(command: Any, path: tuple[str, ...]) -> Iterator[str]:
        inner: Mapping[str, Any] = getattr(command, "commands", {})
        if not inner:
            yield " ".join(path)
        for name, sub in inner.items():
            yield from walk(sub, (*path, name))

    return set(walk(typer.main.get_command(commands.app), ()))


@pytest.fixture
def far(gateway: Serving, tmp_path: Path) -> Far:
    """A machine with a token and without a data directory."""
    token = (gateway.data / "admin.token").read_text().strip()
    none, server = str(tmp_path / "none"), f"http://{gateway.http}"

    async def run(*words: str, screen: bool = False) -> Ran:
        return await typed(
            *words, "--server", server, screen=screen, status=None, WAYSIDE_TOKEN=token, WAYSIDE_DATA=none
        )

    return run


def test_no_command_is_left_out() -> None:
    known = every_command()
    told = {" ".join(row.line.split()[:count]) for row in ROWS for count in (1, 2)}
    assert known - told == set()


async def test_every_command_works_by_server_or_says_by_name_that_it_does_not(far: Far, tmp_path: Path) -> None:
    (tmp_path / "devices.csv").write_text("name,grants\nbell,signal:front-door\n")
    kept = {"file": str(tmp_path / "devices.csv")}
    wrong: list[str] = []
    for row in ROWS:
        words = [KNOWN if word == "@" else word.format(**kept) for word in row.line.split()]
        ended = await far(*words, "--json")
        told = (ended.out if row.status == 0 else ended.err).splitlines()
        document = json.loads(told[0]) if told else {}
        member, _, value = row.has.partition("=")
        found = document.get(member)
        if ended.status != row.status or found is None or (value and str(found) != value.format()):
            wrong.append(f"{row.line}: {ended}")
        if document.get("error") == "bad_input" and f"`wayside {words[0]}` does not work" not in document["detail"]:
            wrong.append(f"{row.line} does not say so: {document}")
        if row.keep == "wait":
            kept["wait"] = document["waits"][0]["wait"]
        elif row.keep:
            kept[row.keep] = document[row.keep]
    assert wrong == []
    assert not (tmp_path / "none").exists()


async def test_in_words_a_remote_gateway_answers_with_text(far: Far) -> None:
    for line in ("workflow list", "workflow show batch", "waits", "run list", "device list", "operator list", "audit"):
        ended = await far(*line.split(), screen=True)
        assert (ended.status, ended.err) == (0, ""), line
        assert ended.out.strip(), line
        assert not ended.out.startswith("{"), line


async def test_a_link_to_a_remote_gateways_page_is_printed_on_a_terminal(gateway: Serving, far: Far) -> None:
    ended = await far("login", screen=True)
    assert (ended.status, ended.out.startswith(f"http://{gateway.http}/login/")) == (0, True)
