"""Show a run's events as they come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.cli import output
from gateway.cli.client import Client
from gateway.cli.invocation import current


async def follow_run(client: Client, run: str) -> int:
    """Print the run's events until it has ended; return the exit status: 0 if it succeeded."""
    async for event in client.follow(run):
        if current().json:
            output.emit(event)
        else:
            output.line(in_words(event))
    status = str((await client.get(f"/runs/{run}"))["status"])
    if not current().json:
        output.line(f"run {run} {output.status(status)}")
    return 0 if status == "succeeded" else 1


def in_words(event: Mapping[str, Any]) -> str:
    """Tell one event of a run in a line."""
    where = ".".join(str(event[name]) for name in ("job", "step") if event.get(name))
    attempt = f" (attempt {event['attempt']})" if event.get("attempt", 1) > 1 else ""
    status = f" {output.status(event['status'])}" if event.get("status") else ""
    error = event.get("error")
    why = f": {error['code']}: {error['message']}" if isinstance(error, Mapping) else ""
    name = str(event["event"]).replace("_", " ")
    return f"{output.when(event['at'])}  {where or 'run'} {name}{attempt}{status}{why}"


def say_how_it_stands(run: str, status: str) -> None:
    """Tell a person, beside the output proper, how a run that this process drove stands."""
    if current().json:
        return
    output.note(
        {
            "suspended": "the run waits for a signal; `wayside waits` shows for which",
            "succeeded": "the run has succeeded",
        }.get(status, f"the run has {status}; `wayside run show {run}` says why")
    )
