"""What the parts of a workflow must be to each other: names once, dependencies that exist, no circles, keys once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engine.limits import MAX_STEPS
from engine.workflows.definition import Dependency, Job, Step, WaitTask
from engine.workflows.graph import ancestors, circle
from engine.workflows.reading import Findings, did_you_mean


@dataclass(frozen=True, slots=True)
class PlacedJob:
    """A job and where it stands in the document. Its name is "" when it had none that is valid."""

    pointer: str
    job: Job


@dataclass(frozen=True, slots=True)
class PlacedStep:
    """A step, where it stands, and its job's name."""

    pointer: str
    job: str
    step: Step


@dataclass(slots=True)
class Outline:
    """All jobs and steps of a document, those with problems of their own included."""

    jobs: list[PlacedJob] = field(default_factory=list)
    steps: list[PlacedStep] = field(default_factory=list)

    def readable(self) -> dict[str, frozenset[str]]:
        """Find the steps that have ended when each step starts: its ancestors, and the steps of its job's ancestors."""
        before_job = ancestors({each.job.name: _names(each.job.depends_on) for each in self.jobs})
        found: dict[str, frozenset[str]] = {}
        for each in self.jobs:
            earlier = before_job.get(each.job.name, frozenset())
            finished = frozenset(placed.step.name for placed in self.steps if placed.job in earlier)
            before_step = ancestors({step.name: _names(step.depends_on) for step in each.job.steps})
            found.update({name: finished | before for name, before in before_step.items()})
        return found


def check_structure(outline: Outline, findings: Findings) -> None:
    """Note everything that is wrong between the parts."""
    _check_names(outline, findings)
    _check_dependencies(outline, findings)
    _check_circles(outline, findings)
    _check_keys(outline, findings)


def _check_names(outline: Outline, findings: Findings) -> None:
    jobs: set[str] = set()
    for each in outline.jobs:
        if each.job.name and each.job.name in jobs:
            findings.refuse(f"{each.pointer}/name", f"two jobs are named {each.job.name}")
        jobs.add(each.job.name)
    places: dict[str, str] = {}
    for placed in outline.steps:
        name = placed.step.name
        if name and name in places:
            message = f"two steps are named {name}, in the jobs {places[name]} and {placed.job}"
            findings.refuse(f"{placed.pointer}/name", message, hint="steps.<name> reads a step of any job", step=name)
        places.setdefault(name, placed.job)
    if len(outline.steps) > MAX_STEPS:
        findings.refuse("/jobs", f"a workflow has at most {MAX_STEPS} steps")


def _check_dependencies(outline: Outline, findings: Findings) -> None:
    jobs = [each.job.name for each in outline.jobs if each.job.name]
    job_of = {placed.step.name: placed.job for placed in outline.steps if placed.step.name}
    for each in outline.jobs:
        for index, dependency in enumerate(each.job.depends_on):
            if dependency.name not in jobs:
                where = f"{each.pointer}/dependsOn/{index}/job"
                findings.refuse(where, f"no job is named {dependency.name}", hint=did_you_mean(dependency.name, jobs))
    for placed in outline.steps:
        siblings = [name for name, job in job_of.items() if job == placed.job]
        for index, dependency in enumerate(placed.step.depends_on):
            if dependency.name in siblings:
                continue
            hint = did_you_mean(dependency.name, siblings)
            message = f"no step of the job {placed.job} is named {dependency.name}"
            if dependency.name in job_of:
                hint = f"it is a step of the job {job_of[dependency.name]}; let the job depend on that job"
            findings.refuse(f"{placed.pointer}/dependsOn/{index}/step", message, hint=hint, step=placed.step.name)


def _check_circles(outline: Outline, findings: Findings) -> None:
    _refuse_circle({each.job.name: _names(each.job.depends_on) for each in outline.jobs if each.job.name}, {
        each.job.name: each.pointer for each in outline.jobs
    }, "jobs", findings)  # fmt: skip
    for each in outline.jobs:
        steps = [placed for placed in outline.steps if placed.pointer.startswith(f"{each.pointer}/")]
        edges = {placed.step.name: _names(placed.step.depends_on) for placed in steps if placed.step.name}
        _refuse_circle(edges, {placed.step.name: placed.pointer for placed in steps}, "steps", findings)


def _refuse_circle(
    edges: Mapping[str, Sequence[str]], places: Mapping[str, str], what: str, findings: Findings
) -> None:
    found = circle(edges)
    if found:
        step = found[0] if what == "steps" else ""
        findings.refuse(f"{places[found[0]]}/dependsOn", f"{what} wait for each other: {' -> '.join(found)}", step=step)


def _check_keys(outline: Outline, findings: Findings) -> None:
    holders: dict[str, str] = {}
    for placed in outline.steps:
        step = placed.step
        if not isinstance(step.task, WaitTask) or step.task.key is None:
            continue
        pointer = f"{placed.pointer}/task/key"
        key = step.task.key
        if step.for_each is not None:
            message = f"the step {step.name} has forEach, and all its repeats would share the key {key}"
            findings.refuse(
                pointer, message, hint="a wait under forEach has no key; signal it by its id", step=step.name
            )
        if key in holders:
            message = f"the steps {holders[key]} and {step.name} both declare the key {key}"
            findings.refuse(pointer, message, hint="one key belongs to one step of a workflow", step=step.name)
        holders.setdefault(key, step.name)


def _names(dependencies: Sequence[Dependency]) -> list[str]:
    return [dependency.name for dependency in dependencies]
