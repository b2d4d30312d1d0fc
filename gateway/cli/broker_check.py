"""`wayside doctor --broker`: what the broker's rules let one device do to another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from engine.clock import SystemSource
from engine.errors import BadInput, WaysideError
from gateway.cli.client import Client, connect, settings_of
from gateway.cli.exports import Target, asked
from gateway.cli.invocation import current

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.bridge.probe import Found, Login


async def check_broker(
    url: str, told: Callable[[Found], None], *, kind: str | None, to: Path | None, reload: str | None
) -> None:
    """Add two devices for a moment, have them try what they must not, and take them away again.

    With `kind` and `to` the export is written before, and `reload` has the broker read it. Raises `WaysideError`.
    """
    from gateway.bridge.probe import GRANTS, Probe
    from gateway.bridge.url import parse_url

    settings = settings_of(current())
    given = url or settings.bridge.url
    if not given:
        raise BadInput("there is no broker", hint="name it: --broker mqtt://HOST:PORT, or set [bridge] url")
    try:
        where = parse_url(given)
    except ValueError as fault:
        raise BadInput(str(fault)) from None
    nonce = SystemSource().nonce()
    async with connect() as client:
        if client.local:
            raise WaysideError(
                "no gateway serves this directory", hint="start it: the gateway's answers are the witness of this check"
            )
        made: list[Login] = []
        try:
            for which, grants in (("a", ()), ("b", GRANTS)):
                made.append(await _add(client, f"doctor-{which}-{nonce[:8]}", grants))
            await _exported(client, kind, to, reload)
            await Probe(where, made[0], made[1], nonce).run(told)
        finally:
            for login in made:
                await client.delete(f"/devices/{login.name}")
            await _exported(client, kind, to, reload)


async def _add(client: Client, name: str, grants: tuple[str, ...]) -> Login:
    from gateway.bridge.probe import Login

    body = {"device": name, "grants": list(grants), "note": "made by wayside doctor; safe to delete"}
    issued = await client.post("/devices", body)
    return Login(name, issued["token"])


async def _exported(client: Client, kind: str | None, to: Path | None, reload: str | None) -> None:
    if kind is not None and to is not None:
        await Target(to, reload).write(await asked(client, kind, to))


async def double_grants(client: Client) -> list[str]:
    """Name the keys that more than one device is granted by name: the short form is refused for them."""
    holders: dict[str, list[str]] = {}
    for device in (await client.listed("/devices", "devices"))["devices"]:
        for grant in device["grants"] if device["state"] == "active" and device["tokens"] else ():
            if grant.startswith("signal:") and "/" in grant and "*" not in grant:
                holders.setdefault(grant[7:], []).append(device["device"])
    return [f"{key} ({', '.join(names)})" for key, names in sorted(holders.items()) if len(names) > 1]
