"""`/runs`: the runs, and one run as a picture that fills in as it goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from starlette.responses import RedirectResponse, Response

from engine.names import is_name, is_record_id
from engine.workflows.definition import Definition, Dependency, WaitTask
from gateway.deliver import Origin
from gateway.http.access import not_found
from gateway.http.streaming import ENDED
from gateway.web.graph import pictures
from gateway.web.keys import refusal
from gateway.web.page import Visit, get, post
from gateway.web.render import between, word
from gateway.web.samples import sample_text

PAGE: Final = 30
STATUSES: Final = ("pending", "running", "suspended", "succeeded", "failed", "cancelled", "damaged")
_ORDER: Final = ("failed", "suspended", "running", "pending", "cancelled", "succeeded", "skipped")


async def runs(visit: Visit) -> Response:
    """List runs, newest first."""
    if not visit.may("read") and not visit.may("run"):
        visit.must("read")
    workflow = visit.query("workflow") if is_name(visit.query("workflow")) else ""
    status = visit.query("status") if visit.query("status") in STATUSES else ""
    after = visit.query("after") if is_record_id(visit.query("after")) else None
    found: list[dict[str, Any]] = []
    following = None
    if visit.may("read"):
        found, following = await visit.parts.engine.runs(
            workflow=workflow or None, status=status or None, after=after, limit=PAGE
        )
    for run in found:
        run["took"] = between(run["created"], run["ended"])
    names = visit.parts.engine.catalog.names()
    return await visit.page(
        "runs.html",
        runs=found,
        following=following,
        first=after is None,
        workflow=workflow,
        status=status,
        statuses=STATUSES,
        workflows=names,
        chosen=visit.query("start") or workflow or (names[0] if names else ""),
        samples={name: _inputs_sample(visit.parts.engine.catalog.get(name)) for name in names},
        starting=bool(visit.query("start")),
    )


def _inputs_sample(definition: Definition | None) -> str:
    return sample_text(definition.inputs_schema) if definition is not None else "{}"


async def start(visit: Visit) -> Response:
    """Start a run as the operator."""
    workflow = visit.form.get("workflow", "")
    delivered = await visit.parts.deliver.start_run(
        visit.session.principal,
        Origin(door="http", address=visit.caller.address),
        workflow=workflow,
        raw=visit.form.get("inputs", "").strip().encode(),
    )
    if not delivered.words.ok:
        text, detail = refusal(delivered.words)
        return visit.back(f"/runs?start={workflow}" if is_name(workflow) else "/runs", text, kind="bad", detail=detail)
    return RedirectResponse(f"/runs/{delivered.words.details['run']}", 303)


async def run(visit: Visit) -> Response:
    """Show one run: its steps as a picture and one by one, and its log."""
    identity = visit.request.path_params["run"]
    engine = visit.parts.engine
    shown = await engine.run(identity)
    if not visit.caller.may_read(shown["workflow"]):
        raise not_found()
    waits = {wait["wait"]: wait for wait in (await engine.waits(workflow=shown["workflow"]))["waits"]}
    definition = engine.catalog.get(shown["workflow"])
    for job in shown["jobs"]:
        for step in job["steps"]:
            _fill_in(step, waits, definition)
    state = await engine.definition_of(identity)
    shown["took"] = between(shown["created"], shown["ended"])
    return await visit.page(
        "run.html",
        live=f"run={identity}",
        run=shown,
        pictures=pictures(_outline(state, shown["jobs"])),
        events=await engine.events(identity),
        ended=shown["status"] in ENDED,
        several=len(shown["jobs"]) > 1,
    )


def _fill_in(step: dict[str, Any], waits: Mapping[str, dict[str, Any]], definition: Definition | None) -> None:
    """Add what a person wants to know of a step."""
    outputs = step["outputs"]
    waited = step["type"] == "wait_for_signal" and isinstance(outputs, dict)
    step["receipt"] = outputs.get("receipt") if waited else None
    step["took"] = between(step["started"], step["ended"])
    open_wait = waits.get(step["wait"] or "")
    step["open"] = open_wait if step["status"] in {"suspended", "running"} else None
    keyed = definition.keyed(open_wait["key"]) if definition and open_wait and open_wait["key"] else None
    step["sample"] = sample_text(keyed.task.schema if keyed is not None else None)


def _outline(definition: Definition, jobs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Join a definition's order with how its steps stand; the elements of a `forEach` step are one."""
    standing = {job["name"]: job for job in jobs}
    drawn = []
    for job in definition.jobs:
        stands = standing[job.name]
        steps = []
        for step in job.steps:
            own = [s for s in stands["steps"] if s["name"] == step.name or s["name"].startswith(f"{step.name}[")]
            status = min((s["status"] for s in own), key=_ORDER.index, default="pending")
            steps.append(
                {
                    "name": step.name,
                    "status": status,
                    "note": _note(own, status, step.task.type),
                    "dependsOn": after(step.depends_on),
                }
            )
        drawn.append({"name": job.name, "status": stands["status"], "dependsOn": after(job.depends_on), "steps": steps})
    return drawn


def _note(own: Sequence[Mapping[str, Any]], status: str, kind: str) -> str:
    if len(own) > 1:
        over = sum(step["status"] in {"succeeded", "skipped"} for step in own)
        return f"{word(status)} · {over} of {len(own)}"
    took = own[0].get("took") if own else ""
    if status == "pending":
        return kind.replace("_", " ")
    return f"{word(status)} · {took}" if took and status != "skipped" else word(status)


def after(dependencies: Sequence[Dependency]) -> list[dict[str, str]]:
    """Give what a step or job comes after, for drawing."""
    return [{"name": dependency.name, "condition": dependency.condition} for dependency in dependencies]


def defined(definition: Definition) -> list[dict[str, Any]]:
    """Outline a definition that nothing has run of yet."""
    return [
        {
            "name": job.name,
            "status": "",
            "dependsOn": after(job.depends_on),
            "steps": [
                {
                    "name": step.name,
                    "status": "",
                    "note": f"key {step.task.key}"
                    if isinstance(step.task, WaitTask) and step.task.key
                    else step.task.type.replace("_", " "),
                    "dependsOn": after(step.depends_on),
                }
                for step in job.steps
            ],
        }
        for job in definition.jobs
    ]


# -- what is done to a run -----------------------------------------------------------------------------------------


async def cancel(visit: Visit) -> Response:
    """Stop a run."""
    run_id = _controlled(visit)
    await visit.parts.engine.cancel(run_id, by=visit.by)
    return visit.back(f"/runs/{run_id}", "Cancelled. Its open waits are closed.")


async def retry(visit: Visit) -> Response:
    """Run the failed steps again, or one step and what depends on it."""
    run_id = _controlled(visit)
    step = visit.form.get("step") or None
    await visit.parts.engine.retry(run_id, step=step, by=visit.by)
    return visit.back(f"/runs/{run_id}", f"Running again from {step}." if step else "Running the failed steps again.")


async def delete(visit: Visit) -> Response:
    """Remove a run that has ended."""
    visit.must("admin")
    run_id = visit.request.path_params["run"]
    await visit.parts.engine.delete(run_id, by=visit.by)
    return visit.back("/runs", f"The run {run_id} is being removed.")


def _controlled(visit: Visit) -> str:
    visit.must("run")
    return str(visit.request.path_params["run"])


ROUTES: Final = [
    get("/runs", runs),
    post("/runs", start),
    get("/runs/{run}", run),
    post("/runs/{run}/cancel", cancel),
    post("/runs/{run}/retry", retry),
    post("/runs/{run}/delete", delete),
]
