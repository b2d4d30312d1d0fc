"""`wayside workflow validate|list|show|run`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from engine.errors import BadInput
from gateway.cli import output
from gateway.cli.arguments import Name
from gateway.cli.client import Client, connect
from gateway.cli.following import follow_run, say_how_it_stands
from gateway.cli.invocation import current
from gateway.cli.main import finish

app = typer.Typer(no_args_is_help=True, help="Look at workflow definitions, check them, start runs.")


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="workflow")


@app.command()
def validate(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME|FILE]...", help="all definitions if none")] = None,
) -> None:
    """Check definitions, and name every problem with its step, place and line. Exit status 1 if there is one."""
    files = [name for name in names or [] if name.endswith((".yaml", ".yml")) or "/" in name]
    finish(_validate([n for n in names or [] if n not in files], files, everything=not names))


async def _validate(names: Sequence[str], files: Sequence[str], *, everything: bool) -> int:
    found: dict[str, list[dict[str, Any]]] = {file: _check_file(file) for file in files}
    if names or everything:
        async with connect() as client:
            document = await client.listed("/workflows", "workflows")
        asked = [w for w in document["workflows"] if everything or w["name"] in names]
        found |= {workflow["file"]: workflow["problems"] for workflow in asked}
        for file, problems in document["problems"].items():
            if everything or Path(file).stem in names:
                found[file] = problems
        known = {w["name"] for w in document["workflows"]} | {Path(file).stem for file in document["problems"]}
        if missing := [name for name in names if name not in known]:
            raise BadInput(f"there is no workflow {missing[0]}", hint="`wayside workflow list` names them")
    wrong = sum(map(len, found.values()))
    if current().json:
        output.emit({"ok": not wrong, "files": [{"file": f, "problems": p} for f, p in found.items()]})
    else:
        _print_problems(found)
    return 1 if wrong else 0


def _check_file(file: str) -> list[dict[str, Any]]:
    """Check a file that need not be in the workflow directory, without asking a gateway."""
    from engine.workflows.validation import load_text

    try:
        text = Path(file).read_text(encoding="utf-8")
    except OSError as fault:
        raise BadInput(f"{file} cannot be read ({type(fault).__name__})") from None
    except UnicodeDecodeError:
        return [{"step": "", "pointer": "", "line": 1, "message": "the file is not UTF-8", "hint": ""}]
    loaded = load_text(text, file)
    if not isinstance(loaded, list):
        return []
    return [
        {"step": p.step, "pointer": p.pointer, "line": p.line, "message": p.message, "hint": p.hint} for p in loaded
    ]


def _print_problems(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    for file, problems in found.items():
        output.line(f"{file}: " + (output.status("failed") if problems else output.styled("ok", "green")))
        for problem in problems:
            step = f"step {problem['step']}: " if problem["step"] else ""
            at = f" (at {problem['pointer']})" if problem["pointer"] else ""
            output.line(f"  {file}:{problem['line']}: {step}{problem['message']}{at}")
            if problem["hint"]:
                output.line(f"    {problem['hint']}")


@app.command("list")
def list_() -> None:
    """List the definitions in force, and the files that have problems."""
    finish(_list())


async def _list() -> None:
    async with connect() as client:
        document = await client.listed("/workflows", "workflows")
    if current().json:
        output.emit(document)
        return
    output.table(
        ["workflow", "keys", "problems", "description"],
        [(w["name"], w["keys"], len(w["problems"]), w["description"]) for w in document["workflows"]],
        empty="No workflows. Put one YAML file each into the directory workflows/ of the data directory.",
    )
    if document["problems"]:
        output.note(f"{len(document['problems'])} file(s) have problems: `wayside workflow validate` names them")


@app.command()
def show(name: Name) -> None:
    """Show one definition: its jobs, steps and keys, and what is wrong with a newer edit of its file."""
    finish(_show(name))


async def _show(name: str) -> None:
    async with connect() as client:
        document = await client.get(f"/workflows/{name}")
    if current().json:
        output.emit(document)
        return
    output.line(f"{document['name']}  {output.plain(document['description'])}".rstrip())
    for job in document["jobs"]:
        output.line(f"  job {job['name']}")
        for step in job["steps"]:
            after = ", ".join(f"{d['name']} {d['condition']}" for d in step["dependsOn"])
            key = f" key {step['key']}" if step["key"] else ""
            output.line(f"    {step['name']}: {step['type']}{key}" + (f"  (after {after})" if after else ""))
    if document["problems"]:
        output.note("the file has a newer edit that is not in force:")
        _print_problems({document["file"]: document["problems"]})


@app.command("run")
def start(
    name: Name,
    inputs: Annotated[list[str] | None, typer.Option("--input", metavar="NAME=VALUE", help="JSON, else text")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="show what happens until the run ends; exit 1 if it fails")
    ] = False,
) -> None:
    """Start a run and print its id at once. Without a serving gateway, drive it until it suspends or ends."""
    finish(_start(name, parse_inputs(inputs or []), follow=follow))


def parse_inputs(pairs: Sequence[str]) -> dict[str, object]:
    """Read `name=value` pairs; a value is JSON if it parses, else text."""
    inputs: dict[str, object] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise BadInput(f"--input takes NAME=VALUE, not {name!r}", hint="such as --input camera=kitchen")
        try:
            inputs[name] = json.loads(text)
        except ValueError:
            inputs[name] = text
    return inputs


async def _start(name: str, inputs: dict[str, object], *, follow: bool) -> int:
    async with connect(create=True, sweeps=follow) as client:
        run = str((await client.post(f"/workflows/{name}/runs", {"inputs": inputs}))["run"])
        output.result({"run": run}, run)
        if follow:
            return await follow_run(client, run)
        await _drive(client, run)
    return 0


async def _drive(client: Client, run: str) -> None:
    if client.local:
        say_how_it_stands(run, await client.settle(run))
    elif not current().json:
        output.note(f"the gateway drives it; `wayside run follow {run}` shows how it goes")
