"""`wayside audit`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any, Final

import typer

from engine.errors import BadInput
from gateway.cli import output
from gateway.cli.client import FOLLOW_SECONDS, Client, connect
from gateway.cli.invocation import current
from gateway.cli.main import finish

_DETAILS: Final = ("workflow", "key", "run", "wait", "receipt", "reason", "door", "address", "bytes")


def register(parent: typer.Typer) -> None:
    parent.command("audit")(audit)


def audit(
    *,
    since: Annotated[str | None, typer.Option(metavar="SPAN", help="1h, 30m, 7d, …: nothing older")] = None,
    device: Annotated[str | None, typer.Option(help="only what this device did, or was done to it")] = None,
    workflow: Annotated[str | None, typer.Option(help="only about this workflow")] = None,
    key: Annotated[str | None, typer.Option(help="only about this key")] = None,
    receipt: Annotated[str | None, typer.Option(help="only about this receipt")] = None,
    run: Annotated[str | None, typer.Option(help="only about this run")] = None,
    action: Annotated[str | None, typer.Option(help="only this action, such as signal.refused")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="go on as events come")] = False,
) -> None:
    """Show who did what, when and with which result. With --json, one JSON object a line."""
    filters = {
        "device": device,
        "workflow": workflow,
        "key": key,
        "receipt": receipt,
        "run": run,
        "action": action,
    }
    if since is not None:
        from gateway.settings import parse_duration

        try:
            filters["since_seconds"] = str(parse_duration(since))
        except ValueError as fault:
            raise BadInput(f"--since: {fault}") from None
    finish(_audit(filters, follow=follow))


async def _audit(filters: Mapping[str, str | None], *, follow: bool) -> None:
    async with connect() as client:
        async for event in _events(client, filters, follow=follow):
            if current().json:
                output.emit(event)
            else:
                output.line(in_words(event))


async def _events(client: Client, filters: Mapping[str, str | None], *, follow: bool) -> AsyncIterator[dict[str, Any]]:
    after: str | None = None
    while True:
        page = await client.get("/audit", **filters, after=after, wait=FOLLOW_SECONDS if follow and after else None)
        for event in page["events"]:
            yield event
        after = page["next"]
        if not page["more"] and not follow:
            return


def in_words(event: Mapping[str, Any]) -> str:
    """Tell one audit event in a line."""
    details = " ".join(f"{name}={event[name]}" for name in _DETAILS if event.get(name) not in (None, ""))
    who = event.get("principal") or "-"
    result = event.get("result") or ""
    return f"{output.when(event['time'])}  {event['action']:<18} {output.status(result)}  {who}  {details}".rstrip()
