"""What expressions may read where: only what is there when they are evaluated, and only by names that exist."""

from __future__ import annotations

import json
from dataclasses import dataclass

from engine.workflows.expressions import ExpressionFailed, compile_expression
from engine.workflows.reading import Findings, Use, did_you_mean
from engine.workflows.structure import Outline
from engine.workflows.templates import Read, reads

MEMBERS = ("status", "payload", "receipt", "outputs", "error")


@dataclass(frozen=True, slots=True)
class _Known:
    """What the names in expressions are checked against."""

    readable: dict[str, frozenset[str]]
    items: dict[str, str]  # the steps under forEach, each with its item
    inputs: frozenset[str] | None  # None: any name may be there


def check_uses(outline: Outline, inputs_schema: bytes | None, findings: Findings) -> None:
    """Check every expression that was met while reading."""
    known = _Known(
        readable=outline.readable(),
        items={p.step.name: p.step.for_each.item for p in outline.steps if p.step.for_each is not None},
        inputs=_declared(inputs_schema),
    )
    names = [placed.step.name for placed in outline.steps if placed.step.name]
    for use in findings.uses:
        wrong = [problem for read in reads(use.expression) if (problem := _check(read, use, known, names)) is not None]
        for message, hint in wrong:
            findings.refuse(use.pointer, message, hint=hint, step=use.step)
        if not wrong and (report := _compile(use.expression)):
            findings.refuse(use.pointer, report, step=use.step)


def _compile(expression: str) -> str:
    try:
        compile_expression(expression)
    except ExpressionFailed as failed:
        return failed.message
    return ""


def _declared(schema: bytes | None) -> frozenset[str] | None:
    """Find the only inputs that can be there, if the schema closes their list."""
    value = json.loads(schema) if schema is not None else None
    if not isinstance(value, dict) or value.get("additionalProperties") is not False or "patternProperties" in value:
        return None
    return frozenset(value.get("properties", {}))


def _check(read: Read, use: Use, known: _Known, names: list[str]) -> tuple[str, str] | None:
    match read.root:
        case "steps":
            return _check_step(read, use, known, names)
        case "self":
            return _check_self(read, use, known)
        case _:
            if known.inputs is not None and read.name is not None and read.name not in known.inputs:
                return f"inputs declares no {read.name}", did_you_mean(read.name, known.inputs)
            return None


def _check_step(read: Read, use: Use, known: _Known, names: list[str]) -> tuple[str, str] | None:
    if use.scope == "schema":
        return "a schema reads inputs only", ""
    if read.name is None:
        return "an expression names the steps that it reads", 'write steps.<name>, or steps["<name>"]'
    if read.name not in names:
        longer = next((name for name in names if name.startswith(f"{read.name}-")), None)
        hint = f'write steps["{longer}"]' if longer else did_you_mean(read.name, names)
        return f"no step is named {read.name}", hint
    if read.name == use.step:
        return f"the step {read.name} reads itself", ""
    if use.step and read.name not in known.readable.get(use.step, frozenset()):
        return f"the step {read.name} may not have ended when {use.step} starts", "name it in dependsOn"
    if read.member is not None and read.member not in MEMBERS:
        hint = did_you_mean(read.member, MEMBERS) or f"it has {', '.join(MEMBERS)}"
        return f"a step has no {read.member}", hint
    return None


def _check_self(read: Read, use: Use, known: _Known) -> tuple[str, str] | None:
    if use.scope == "schema":
        return "a schema reads inputs only", ""
    item = known.items.get(use.step)
    if item is None:
        return "self is there only in a step with forEach", ""
    if use.scope == "values":
        return "the values of forEach cannot read self", ""
    if read.name is not None and read.name != item:
        return f"self has no {read.name}", f"did you mean {item}?"
    return None
