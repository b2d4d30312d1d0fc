"""`/workflows`: the definitions in force, what they look like, and what is wrong with a file, by its line."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

from starlette.responses import Response

from engine.limits import MAX_DEFINITION_BYTES
from engine.workflows.definition import Definition
from engine.workflows.problems import Problem
from gateway.http.access import not_found
from gateway.web.graph import pictures
from gateway.web.page import Visit, get
from gateway.web.runs import defined


async def workflows(visit: Visit) -> Response:
    """List the workflows, and the files that have problems."""
    visit.must("read")
    catalog = visit.parts.engine.catalog
    problems = catalog.problems()
    listed = []
    for name in catalog.names():
        definition = catalog.get(name)
        if definition is not None:
            file = catalog.filename(name) or ""
            listed.append(_summary(definition, file, len(problems.get(file, []))))
    in_force = {entry["file"] for entry in listed}
    broken = {file: found for file, found in problems.items() if found and file not in in_force}
    return await visit.page("workflows.html", workflows=listed, broken=broken, directory=str(catalog.directory))


def _summary(definition: Definition, file: str, problems: int) -> dict[str, Any]:
    return {
        "name": definition.name,
        "description": definition.description,
        "keys": list(definition.keys()),
        "file": file,
        "problems": problems,
        "steps": sum(len(job.steps) for job in definition.jobs),
        "trigger": definition.trigger_topic,
    }


async def workflow(visit: Visit) -> Response:
    """Show one definition: its picture, and its file with what is wrong marked."""
    visit.must("read")
    catalog = visit.parts.engine.catalog
    definition = catalog.get(visit.request.path_params["workflow"])
    if definition is None:
        raise not_found()
    file = catalog.filename(definition.name) or ""
    problems = catalog.problems().get(file, [])
    return await visit.page(
        "workflow.html",
        workflow=_summary(definition, file, len(problems)),
        pictures=pictures(defined(definition)),
        several=len(definition.jobs) > 1,
        problems=problems,
        lines=await _lines(catalog.directory, file, problems),
    )


async def broken(visit: Visit) -> Response:
    """Show a file that holds no definition in force, with what is wrong marked."""
    visit.must("read")
    catalog = visit.parts.engine.catalog
    file = visit.request.path_params["file"]
    problems = catalog.problems().get(file)
    if problems is None:
        raise not_found()
    return await visit.page(
        "broken.html", file=file, problems=problems, lines=await _lines(catalog.directory, file, problems)
    )


async def _lines(directory: Path, file: str, problems: list[Problem]) -> list[dict[str, Any]]:
    """Read a file's lines, each with the problems that it has; empty when it cannot be read."""

    def read() -> list[str]:
        try:
            # The catalog knows the name: it is one of the directory's, not a path.
            with (directory / file).open("rb") as stream:
                return stream.read(MAX_DEFINITION_BYTES).decode("utf-8", "replace").splitlines()
        except OSError:
            return []

    lines = await asyncio.to_thread(read)
    at: dict[int, list[str]] = {}
    for problem in problems:
        at.setdefault(problem.line, []).append(problem.message)
    return [{"number": n, "text": text, "problems": at.get(n, [])} for n, text in enumerate(lines, start=1)]


ROUTES: Final = [
    get("/workflows", workflows),
    get("/workflows/{workflow}", workflow),
    get("/workflows/files/{file}", broken),
]
