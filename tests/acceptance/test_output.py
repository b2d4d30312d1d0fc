"""Proves what becomes of output that cannot be written: it is said, and what was done all the same is said with it."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import DEVNULL, PIPE

import pytest

from tests.support.command import PROGRAM, Serving, environment


async def redirected(gateway: Serving, command: str, where: str, **variables: str) -> tuple[int, str]:
    """Run a command with its output sent elsewhere by a shell; give its exit status and its standard error."""
    process = await asyncio.create_subprocess_shell(
        f"exec {PROGRAM} {command} --data {gateway.data} {where}",
        stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env=environment(**variables),
    )  # fmt: skip
    _, err = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode or 0, err.decode()


@pytest.mark.parametrize("command", ["device list", "device list --json", "--help"])
async def test_a_full_disk_is_named_as_what_keeps_the_output_from_being_written(gateway: Serving, command: str) -> None:
    status, err = await redirected(gateway, command, ">/dev/full")
    assert status == 1
    assert "the output cannot be written (No space left on device)" in err
    assert "report" not in err
    assert await redirected(gateway, command, ">/dev/full 2>/dev/full") == (1, "")


async def test_a_token_that_could_not_be_written_is_told_of_with_what_gives_another(gateway: Serving) -> None:
    status, err = await redirected(gateway, "device add cam", ">/dev/full")
    assert status == 1
    assert "cam was added, but its token could not be written (No space left on device)" in err
    assert "`wayside device rotate cam`" in err
    assert (await gateway.told("device", "show", "cam"))["tokens"] == 1
    status, err = await redirected(gateway, "operator add nina", ">/dev/full")
    assert status == 1
    assert "nina has a new token, but it could not be written (No space left on device)" in err


async def test_a_closed_output_is_as_good_as_none(gateway: Serving) -> None:
    await gateway.told("device", "add", "cam")
    for closed in (">&-", ">&- 2>&-", "<&- >&- 2>&-"):
        assert await redirected(gateway, "device disable cam", closed) == (0, "")
        assert (await gateway.told("device", "show", "cam"))["state"] == "disabled"
        await gateway.told("device", "enable", "cam")


async def test_what_the_output_cannot_encode_is_replaced(gateway: Serving) -> None:
    await gateway.told("device", "add", "cam", "--note", "Küche ✓")
    out = gateway.data / "out"
    for options, note in (("", "K?che ?"), ("--json", "Küche ✓")):
        assert await redirected(gateway, f"device list {options}", f">{out}", PYTHONIOENCODING="ascii") == (0, "")
        text = out.read_text("ascii")
        assert (json.loads(text)["devices"][0]["note"] if options else text.split("\t")[-1].rstrip()) == note


async def test_a_note_does_not_act_on_the_terminal(gateway: Serving) -> None:
    await gateway.told("device", "add", "cam", "--note", "\x1b[31mred")
    for command in (("device", "list"), ("device", "show", "cam")):
        shown = (await gateway.typed(*command)).out
        assert "[31mred" in shown
        assert "\x1b" not in shown
