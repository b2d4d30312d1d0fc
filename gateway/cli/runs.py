"""`wayside run list|show|follow|cancel|retry|resume|delete|gc`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from engine.errors import BadInput
from gateway.cli import output
from gateway.cli.arguments import Run
from gateway.cli.client import connect
from gateway.cli.following import follow_run, in_words, say_how_it_stands
from gateway.cli.invocation import current
from gateway.cli.main import finish

app = typer.Typer(no_args_is_help=True, help="Look at runs, and cancel, retry or remove them.")


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="run")


@app.command("list")
def list_(
    workflow: Annotated[str | None, typer.Option(help="only runs of this workflow")] = None,
    status: Annotated[str | None, typer.Option(help="only runs with this status")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="how many at most, newest first")] = 50,
) -> None:
    """List runs, newest first."""
    finish(_list(workflow, status, limit))


async def _list(workflow: str | None, status: str | None, limit: int) -> None:
    runs: list[dict[str, Any]] = []
    after: str | None = None
    async with connect() as client:
        while len(runs) < limit:
            page = await client.get(
                "/runs", workflow=workflow, status=status, after=after, limit=min(limit - len(runs), 200)
            )
            runs += page["runs"]
            after = page["next"]
            if not after:
                break
    if current().json:
        output.emit({"runs": runs, "next": after})
        return
    output.table(
        ["run", "workflow", "status", "started", "ended", "by"],
        [
            (r["run"], r["workflow"], r["status"], output.when(r["created"]), output.when(r["ended"]), r["by"])
            for r in runs
        ],
        empty="No runs. `wayside workflow run NAME` starts one.",
    )


@app.command()
def show(
    run: Run,
    events: Annotated[bool, typer.Option("--events", help="also the run's log")] = False,
) -> None:
    """Show a run's jobs and steps with their outputs and errors."""
    finish(_show(run, events=events))


async def _show(run: str, *, events: bool) -> None:
    async with connect() as client:
        document = await client.get(f"/runs/{run}")
        if events:
            log: list[dict[str, Any]] = []
            while page := (await client.get(f"/runs/{run}/events", after=log[-1]["seq"] if log else 0))["events"]:
                log += page
            document["events"] = log
    if current().json:
        output.emit(document)
        return
    output.line(f"run {document['run']}  {document['workflow']}  {output.status(document['status'])}")
    output.line(
        f"started {output.when(document['created'])} by {document['by']}, ended {output.when(document['ended'])}"
    )
    rows = [
        (job["name"], step["name"], step["status"], step["attempt"], _outcome(step))
        for job in document["jobs"]
        for step in job["steps"]
    ]
    output.table(["job", "step", "status", "attempt", "outcome"], rows, empty="It has no steps.")
    for event in document.get("events", ()):
        output.line(in_words(event))


def _outcome(step: Mapping[str, Any]) -> str:
    if error := step.get("error"):
        return f"{error['code']}: {error['message']}"
    if step.get("wait") and step["status"] == "suspended":
        return f"waits as {step['wait']}"
    if step["status"] == "skipped":
        return "its guard is true" if step.get("guarded") else "what it depends on ended otherwise"
    outputs = step.get("outputs")
    if isinstance(outputs, Mapping) and outputs.get("receipt"):
        return f"receipt {outputs['receipt']}"
    return "-"


@app.command()
def follow(run: Run) -> None:
    """Show what happens in a run until it ends; exit status 0 if it succeeded."""
    finish(_follow(run))


async def _follow(run: str) -> int:
    async with connect(sweeps=True) as client:
        return await follow_run(client, run)


@app.command()
def cancel(run: Run) -> None:
    """Stop a run; its open waits are closed."""
    finish(_act(run, "cancel", f"run {run} is cancelled"))


@app.command()
def retry(
    run: Run,
    step: Annotated[str | None, typer.Option("--from", metavar="STEP", help="this step and what depends on it")] = None,
) -> None:
    """Run the failed steps of a run again."""
    finish(_act(run, "retry", f"run {run} runs again", {"step": step}, drives=True))


@app.command()
def resume(run: Run) -> None:
    """Look at one run at once, as the sweep does for all from time to time."""
    finish(_act(run, "resume", f"run {run} was looked at", drives=True))


async def _act(run: str, verb: str, done: str, body: dict[str, Any] | None = None, *, drives: bool = False) -> None:
    async with connect() as client:
        await client.post(f"/runs/{run}/{verb}", body)
        output.result({"run": run}, done)
        if drives and client.local:
            say_how_it_stands(run, await client.settle(run))


@app.command()
def delete(run: Run) -> None:
    """Remove a run that has ended, with its waits, outcomes and signals; complete after the removal grace."""
    finish(_delete(run))


async def _delete(run: str) -> None:
    async with connect() as client:
        await client.delete(f"/runs/{run}")
    output.result({"run": run}, f"run {run} is being removed")


@app.command()
def gc(
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="SPAN", help="30d, 12h, …: ended longer ago than this")
    ],
) -> None:
    """Remove runs that ended long ago."""
    from gateway.settings import parse_duration

    try:
        seconds = parse_duration(older_than)
    except ValueError as fault:
        raise BadInput(f"--older-than: {fault}") from None
    finish(_gc(seconds))


async def _gc(seconds: float) -> None:
    async with connect() as client:
        document = await client.post("/runs/gc", {"older_than_seconds": seconds})
    output.result(document, f"{len(document['runs'])} run(s) are being removed")
