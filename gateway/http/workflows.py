"""`/workflows`: definitions, their problems, and starting a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from engine.workflows.definition import Definition, Dependency, Job, Step, WaitTask
from engine.workflows.problems import Problem as DefinitionProblem
from gateway import definitions
from gateway.deliver import Origin
from gateway.http.access import Caller, Parts, Who, not_found
from gateway.http.models import Name, Started, StartRun, ValidationResult, WorkflowList, WorkflowView
from gateway.http.paging import MAX_PAGE, AfterName, Limit, named, page
from gateway.http.problems import Problem, documented
from gateway.http.signals import SignalId, response
from gateway.services import Services

router: Final = APIRouter(prefix="/workflows", tags=["workflows"])
Workflow = Annotated[Name, Path(description="the workflow's name")]


@router.get("", response_model=WorkflowList, responses=documented(401, 422, 429, 503))
async def list_workflows(parts: Parts, who: Who, after: AfterName = None, limit: Limit = MAX_PAGE) -> dict[str, Any]:
    """List the definitions in force that the caller may read; operators also see which files have problems."""
    _take_up_edits(parts, who)
    catalog = parts.engine.catalog
    problems = {file: _problems(found) for file, found in catalog.problems().items()}
    listed = []
    for name in catalog.names():
        definition = catalog.get(name)
        if definition is not None and who.may_read(name):
            listed.append(_summary(definition, catalog.filename(name) or "", problems))
    in_force = {entry["file"] for entry in listed}
    broken = {file: found for file, found in problems.items() if found and file not in in_force}
    shown, following = page(listed, named("name"), after=after, limit=limit)
    return {"workflows": shown, "next": following, "problems": broken if who.principal.kind == "user" else {}}


@router.post("/validate", response_model=ValidationResult, responses=documented(400, 401, 403, 413, 429, 503))
async def validate(request: Request, who: Who) -> dict[str, Any]:
    """Check a definition, sent as YAML, without putting it in force."""
    who.must_be_operator("read")
    from engine.workflows.validation import load_text  # noqa: PLC0415  the command line alone has a need of it here

    try:
        text = (await request.body()).decode()
    except UnicodeDecodeError:
        raise Problem(400, "bad_request", "a definition is YAML in UTF-8") from None
    loaded = load_text(text, "definition.yaml")
    problems = _problems(loaded) if isinstance(loaded, list) else []
    return {"ok": not problems, "problems": problems}


@router.get("/{workflow}", response_model=WorkflowView, responses=documented(401, 404, 429, 503))
async def show_workflow(workflow: Workflow, parts: Parts, who: Who) -> dict[str, Any]:
    """Show one definition: jobs, steps, keys, and what is wrong with a newer edit of its file."""
    who.must_read(workflow)
    _take_up_edits(parts, who)
    definition = parts.engine.catalog.get(workflow)
    if definition is None:
        raise not_found()
    return _view(parts, definition)


@router.post(
    "/{workflow}/runs",
    response_model=Started,
    status_code=201,
    responses=documented(400, 401, 404, 413, 422, 429, 503),
)
async def start_run(
    workflow: Workflow, body: StartRun, parts: Parts, who: Who, idempotency_key: SignalId = None
) -> Response:
    """Start a run. It is durable when this answers, and this instance drives it; a repeat under an id is the same run.

    Other inputs under an id that was used are refused: `signal_id_reused`.
    A device needs the grant and a workflow that says `trigger: { topic: true }`.
    """
    delivered = await parts.deliver.start_run(
        who.principal,
        Origin(door=parts.door, address=who.address),
        workflow=workflow,
        raw=json.dumps(body.inputs).encode(),
        signal_id=idempotency_key,
    )
    if delivered.words.ok:
        return Response(
            msgspec.json.encode({"run": delivered.words.details["run"]}), 201, media_type="application/json"
        )
    return response(delivered)


def _take_up_edits(parts: Services, who: Caller) -> None:
    """Have a person who has just written a file told of that, and not of what it was a second ago."""
    if who.principal.kind == "user":
        definitions.reread(parts.engine.catalog, parts.audit)


def _summary(definition: Definition, file: str, problems: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    return {
        "name": definition.name,
        "description": definition.description,
        "keys": list(definition.keys()),
        "file": file,
        "problems": problems.get(file, []),
    }


def _view(parts: Services, definition: Definition) -> dict[str, Any]:
    catalog = parts.engine.catalog
    file = catalog.filename(definition.name) or ""
    problems = {file: _problems(catalog.problems().get(file, []))}
    return _summary(definition, file, problems) | {
        "trigger": definition.trigger_topic,
        "inputs": json.loads(definition.inputs_schema) if definition.inputs_schema else None,
        "jobs": [_job(job) for job in definition.jobs],
    }


def _job(job: Job) -> dict[str, Any]:
    return {"name": job.name, "dependsOn": _after(job.depends_on), "steps": [_step(step) for step in job.steps]}


def _step(step: Step) -> dict[str, Any]:
    key = step.task.key if isinstance(step.task, WaitTask) else None
    return {"name": step.name, "type": step.task.type, "key": key, "dependsOn": _after(step.depends_on)}


def _after(dependencies: Sequence[Dependency]) -> list[dict[str, str]]:
    return [{"name": dependency.name, "condition": dependency.condition} for dependency in dependencies]


def _problems(found: Sequence[DefinitionProblem]) -> list[dict[str, Any]]:
    return [{"step": p.step, "pointer": p.pointer, "line": p.line, "message": p.message, "hint": p.hint} for p in found]
