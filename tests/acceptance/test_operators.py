"""Proves the operators' commands, and that a login link is printed on a terminal only and works as it stands."""

from __future__ import annotations

import asyncio
import os
import pty
import re
from pathlib import Path

import httpx

from tests.support.command import PROGRAM, Serving, environment, serving


async def on_a_terminal(*arguments: str) -> tuple[int, str]:
    """Run a command with a terminal for its output; give its exit status and what was on the screen."""
    mine, its = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        PROGRAM, *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=its, stderr=its, env=environment(TERM="dumb")
    )
    os.close(its)
    status = await asyncio.wait_for(process.wait(), 60)
    screen = b""
    try:
        while part := os.read(mine, 65_536):
            screen += part
    except OSError:  # how Linux says that the other side has closed
        pass
    os.close(mine)
    return status, screen.decode()


async def test_a_login_link_lets_a_browser_in_once(gateway: Serving) -> None:
    status, screen = await on_a_terminal("login", "--data", str(gateway.data))
    link = re.search(r"http://\S+/login/[0-9a-f]{64}", screen)
    assert (status, link is not None) == (0, True), screen
    assert link is not None
    url = httpx.URL(link[0])
    origin = {"origin": f"http://{url.netloc.decode()}"}
    async with httpx.AsyncClient(base_url=url.join("/"), trust_env=False) as browser:
        assert "Log in" in (await browser.get(url)).text
        form = {"code": url.path.rpartition("/")[2]}
        assert (await browser.post("/login", data=form, headers=origin)).status_code == 303
        assert "Overview" in (await browser.get("/")).text
        assert (await browser.post("/login", data=form, headers=origin)).status_code == 403


async def test_without_a_terminal_or_a_gateway_no_link_is_printed(gateway: Serving, tmp_path: Path) -> None:
    for extra in ((), ("--json",)):
        ran = await gateway.typed("login", *extra, status=1)
        assert "terminal" in ran.err
        assert ran.out == ""
    status, screen = await on_a_terminal("login", "--data", str(tmp_path / "data-of-nobody"))
    assert (status, "/login/" in screen) == (1, False)


async def test_an_operator_is_added_listed_rotated_and_revoked(gateway: Serving) -> None:
    added = await gateway.told("operator", "add", "nina", "--right", "read", "--right", "run")
    assert (added["operator"], added["rights"], added["token"][:4]) == ("nina", ["read", "run"], "wsu_")
    listed = (await gateway.told("operator", "list"))["operators"]
    assert [entry["operator"] for entry in listed] == ["admin", "nina"]
    rotated = await gateway.typed("operator", "rotate", "nina")
    assert rotated.out.startswith("wsu_")
    assert "--finish" in rotated.err
    await gateway.typed("operator", "rotate", "nina", "--finish")
    await gateway.typed("operator", "revoke", "nina")
    assert "no operator nina" in (await gateway.typed("operator", "revoke", "nina", status=1)).err
    assert (await gateway.typed("operator", "add", "nina", "--right", "everything", status=None)).status != 0


async def test_whoever_ends_the_local_commands_token_is_told_what_gives_it_back(data: Path) -> None:
    async with serving(data) as gateway:
        ended = await gateway.run("operator", "revoke", "admin")
        assert ended.out == "admin is revoked\n"
        assert "local commands are refused now" in ended.err
        assert "stop the gateway and start it again" in ended.err
        refused = await gateway.typed("device", "list", status=1)
        assert "stop the gateway and start it again" in refused.err
        findings = (await gateway.run("doctor", status=1)).out
        assert "store: a token" not in findings.lower()
    async with serving(data) as gateway:
        await gateway.typed("operator", "rotate", "admin")
        ended = await gateway.run("operator", "rotate", "admin", "--finish")
        assert "stop the gateway and start it again" in ended.err
    async with serving(data) as gateway:
        added = await gateway.run("operator", "add", "nina")
        assert "warning" not in (await gateway.run("operator", "revoke", "nina")).err + added.err
