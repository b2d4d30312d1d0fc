"""From a document to a definition, with all its problems at once.

`load_text` is for what people write, `parse_definition` for what a run has kept.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import Final, cast

import msgspec

from engine.errors import BadInput
from engine.limits import MAX_CONCURRENCY, MAX_DEFINITION_BYTES, MAX_FOR_EACH
from engine.workflows.definition import (
    Condition,
    Definition,
    Dependency,
    ForEach,
    Job,
    JsonValue,
    Step,
    canonical,
)
from engine.workflows.document import read_yaml
from engine.workflows.problems import Problem
from engine.workflows.reading import Findings, Node
from engine.workflows.structure import Outline, PlacedJob, PlacedStep, check_structure
from engine.workflows.tasks import NO_TASK, read_schema, read_task
from engine.workflows.templates import OPENING
from engine.workflows.uses import check_uses

__all__ = ["Problem", "load_text", "parse_definition"]

CONDITIONS: Final = ("succeeded", "failed", "completed", "always", "skipped")
CACHED_DEFINITIONS: Final = 256
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def load_text(text: str, filename: str) -> Definition | list[Problem]:
    """Read and check a YAML text; give the definition, or every problem with its line, sorted by it.

    `filename` is only for the problem of an empty file.
    """
    document = read_yaml(text)
    findings = Findings()
    definition: Definition | None = None
    if document.value is None and not document.problems:
        document.refuse("", 1, f"{filename} is empty", "it needs name and jobs")
    elif document.value is not None:
        definition = _build(document.value, findings, check_expressions=True)
    noted = [replace(problem, line=document.line(problem.pointer)) for problem in findings.problems]
    problems = sorted([*document.problems, *noted], key=lambda problem: problem.line)
    if problems or definition is None:
        return list(dict.fromkeys(problems))
    source = canonical(document.value)
    if len(source) > MAX_DEFINITION_BYTES:
        return [Problem("", "", 1, f"larger than {MAX_DEFINITION_BYTES} bytes as JSON, its aliases written out", "")]
    return replace(definition, source=source)


@lru_cache(maxsize=CACHED_DEFINITIONS)
def parse_definition(source: bytes) -> Definition:
    """Rebuild the definition that a run has kept; the same text costs nothing the next time.

    Expressions were checked when it was loaded and are not compiled again. Raise BadInput for what is no definition.
    """
    try:
        value: JsonValue = msgspec.json.decode(source)
    except (msgspec.DecodeError, RecursionError):
        raise BadInput("a kept definition that is not JSON") from None
    findings = Findings()
    definition = _build(value, findings, check_expressions=False)
    if findings.problems:
        problems = tuple(str(problem) for problem in findings.problems)
        raise BadInput("a kept definition that this build does not accept", problems=problems)
    return replace(definition, source=source)


def _build(value: JsonValue, findings: Findings, *, check_expressions: bool) -> Definition:
    root = Node(value, "", findings)
    known = ("name", "description", "inputs", "trigger", "jobs", "concurrency")
    members = root.members("a workflow", known, ("name", "jobs"))
    outline = Outline()
    jobs = tuple(_job(node, outline) for node in (members["jobs"].items("jobs") if "jobs" in members else []))
    if "jobs" in members and members["jobs"].value == []:
        members["jobs"].refuse("a workflow has at least one job")
    check_structure(outline, findings)
    inputs = read_schema(members["inputs"], wait=False)[0] if "inputs" in members else None
    if check_expressions:
        check_uses(outline, inputs, findings)
    return Definition(
        name=members["name"].name("name") if "name" in members else "",
        description=members["description"].text("description") if "description" in members else "",
        inputs_schema=inputs,
        trigger_topic=_trigger(members["trigger"]) if "trigger" in members else False,
        jobs=jobs,
        concurrency=_concurrency(members),
        source=b"",
    )


def _trigger(node: Node) -> bool:
    members = node.members("trigger", ("topic",), ("topic",))
    return members["topic"].flag("topic") if "topic" in members else False


def _concurrency(members: dict[str, Node]) -> int | None:
    return members["concurrency"].whole("concurrency", 1, MAX_CONCURRENCY) if "concurrency" in members else None


def _job(node: Node, outline: Outline) -> Job:
    members = node.members("a job", ("name", "description", "dependsOn", "concurrency", "steps"), ("name", "steps"))
    name = members["name"].name("a job's name") if "name" in members else ""
    steps = members["steps"].items("steps") if "steps" in members else []
    if "steps" in members and members["steps"].value == []:
        members["steps"].refuse("a job has at least one step")
    job = Job(
        name=name,
        description=members["description"].text("description") if "description" in members else "",
        depends_on=_dependencies(members, "job"),
        concurrency=_concurrency(members),
        steps=tuple(_step(each, name, outline) for each in steps),
    )
    outline.jobs.append(PlacedJob(node.pointer, job))
    return job


def _step(node: Node, job: str, outline: Outline) -> Step:
    named = node.value.get("name") if isinstance(node.value, dict) else None
    node = node.within(named if isinstance(named, str) else "")
    known = ("name", "description", "dependsOn", "allowFailure", "guard", "forEach", "idempotent", "task")
    members = node.members("a step", known, ("name", "task"))
    step = Step(
        name=members["name"].name("a step's name") if "name" in members else "",
        task=read_task(members["task"]) if "task" in members else NO_TASK,
        description=members["description"].text("description") if "description" in members else "",
        depends_on=_dependencies(members, "step"),
        allow_failure=members["allowFailure"].flag("allowFailure") if "allowFailure" in members else False,
        guard=members["guard"].expression("guard") if "guard" in members else None,
        for_each=_for_each(members["forEach"]) if "forEach" in members else None,
        idempotent=members["idempotent"].flag("idempotent") if "idempotent" in members else False,
    )
    outline.steps.append(PlacedStep(node.pointer, job, step))
    return step


def _for_each(node: Node) -> ForEach:
    members = node.members("forEach", ("item", "in"), ("item", "in"))
    item = members["item"].text("item") if "item" in members else ""
    if item and _IDENTIFIER.fullmatch(item) is None:
        members["item"].refuse("item must be letters, digits and _, and begin with no digit: it is read as self.<item>")
    values = members["in"].template("values") if "in" in members else []
    if isinstance(values, list) and len(values) > MAX_FOR_EACH:
        members["in"].refuse(f"forEach repeats a step at most {MAX_FOR_EACH} times")
    elif not isinstance(values, list) and not (isinstance(values, str) and OPENING in values):
        members["in"].refuse("in must be a list, or an expression that gives one")
    return ForEach(item=item, values=values)


def _dependencies(members: dict[str, Node], kind: str) -> tuple[Dependency, ...]:
    if "dependsOn" not in members:
        return ()
    found = [_dependency(node, kind) for node in members["dependsOn"].items("dependsOn")]
    names = [dependency.name for dependency in found]
    for name in dict.fromkeys(name for name in names if name and names.count(name) > 1):
        members["dependsOn"].refuse(f"dependsOn names the {kind} {name} twice")
    return tuple(dependency for dependency in found if dependency.name)


def _dependency(node: Node, kind: str) -> Dependency:
    if isinstance(node.value, str):
        node.refuse("a dependency has members", f"write {{ {kind}: {node.value} }}")
        return Dependency(name="")
    members = node.members("a dependency", (kind, "condition"), (kind,))
    condition: str = CONDITIONS[0]
    if "condition" in members:
        if isinstance(members["condition"].value, str):
            members["condition"].refuse("condition has members", f"write {{ type: {members['condition'].value} }}")
        else:
            inner = members["condition"].members("condition", ("type",), ("type",))
            condition = inner["type"].choice("type", CONDITIONS) if "type" in inner else condition
    name = members[kind].name(f"a {kind}'s name") if kind in members else ""
    return Dependency(name=name, condition=cast("Condition", condition))
