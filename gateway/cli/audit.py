"""`wayside audit`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any, Final

import typer

from engine.errors import BadInput
from engine.names import is_record_id
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
    why: Annotated[
        str | None,
        typer.Option(metavar="RECEIPT|RUN|WORKFLOW/KEY", help="tell its story, and why nothing came of it"),
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="check that no event was changed or removed")] = False,
) -> None:
    """Show who did what, when and with which result. With --json, one JSON object a line.

    --why tells in words what happened to one signal, run or key. --verify checks the chain of every instance's events,
    and exits with 1 if something is not as it was written.
    """
    filters = {
        "device": device,
        "workflow": workflow,
        "key": key,
        "receipt": receipt,
        "run": run,
        "action": action,
    }
    for name, value in (("--receipt", receipt), ("--run", run)):
        if value is not None and not is_record_id(value):
            raise BadInput(f"{name} takes 26 characters of a-z and 0-9", hint="`wayside audit` shows them")
    if since is not None:
        from gateway.settings import parse_duration

        try:
            filters["since_seconds"] = str(parse_duration(since))
        except ValueError as fault:
            raise BadInput(f"--since: {fault}") from None
    if verify:
        finish(_verify())
    elif why is not None:
        finish(_why(why, filters.get("since_seconds")))
    else:
        finish(_audit(filters, follow=follow))


async def _verify() -> int:
    async with connect() as client:
        found = await client.get("/audit/verify")
    if current().json:
        output.emit(found)
        return 0 if found["ok"] else 1
    output.line(f"{found['events']} event(s) of {found['chains']} instance(s) were checked")
    for flaw in found["flaws"]:
        output.line(f"{output.styled(flaw['kind'], 'red')}: instance {flaw['instance']}: {flaw['text']}")
    if found["unvouched"]:
        output.note(
            f"{len(found['unvouched'])} instance(s) were killed, so that nobody says which event was their last: "
            + ", ".join(found["unvouched"][:5])
        )
    output.line(output.styled("as written", "green") if found["ok"] else output.styled("not as written", "red"))
    return 0 if found["ok"] else 1


async def _why(about: str, since_seconds: str | None) -> None:
    async with connect() as client:
        told = await client.get("/audit/why", about=about, since_seconds=since_seconds)
    if current().json:
        output.emit(told)
        return
    for line in told["story"]:
        output.line(f"{output.when(line['time'])}  {line['text']}")
    output.line(("\n" if told["story"] else "") + told["conclusion"])
    for cause in told["causes"]:
        output.line(f"  - {cause['text']}")
        if cause["hint"]:
            output.line(f"    {cause['hint']}")


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
