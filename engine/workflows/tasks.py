"""What a step does, read from its `task`."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Final, cast

from engine.limits import MAX_ACCEPT_EARLY_SECONDS, MAX_ARGUMENTS, MAX_TASK_TIMEOUT_SECONDS, MAX_TIMEOUT_SECONDS
from engine.workflows.definition import (
    AssertTask,
    EarlyPolicy,
    Expression,
    HttpTask,
    JsonValue,
    OnHeld,
    PublishTask,
    ShellTask,
    Task,
    Template,
    WaitTask,
    WorkflowTask,
    canonical,
)
from engine.workflows.document import child
from engine.workflows.reading import Node, did_you_mean, text_map
from engine.workflows.schema import check_schema
from engine.workflows.templates import OPENING, BadTemplate, expressions_in, reads, split
from engine.workflows.topics import topic_problem

NO_TASK: Final = AssertTask(that=Expression("false"), message="")
"""Stands for a task that could not be read, while the rest of the document is checked."""
_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, section 5.6.2
_SHELLS: Final = frozenset({"sh", "ash", "bash", "dash", "fish", "ksh", "zsh"})
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def read_task(node: Node) -> Task:
    """Build a task, NO_TASK when its type is unknown."""
    if not isinstance(node.value, dict):
        node.refuse("task must have members, such as type")
        return NO_TASK
    kind = node.value.get("type")
    if kind is None:
        node.refuse("task needs type", f"one of {', '.join(_READERS)}")
        return NO_TASK
    if not isinstance(kind, str) or kind not in _READERS:
        hint = did_you_mean(kind, _READERS) or f"one of {', '.join(_READERS)}"
        Node(None, child(node.pointer, "type"), node.findings, node.step).refuse("no such type of task", hint)
        return NO_TASK
    return _READERS[kind](node)


def read_schema(node: Node, *, wait: bool) -> tuple[bytes | None, Template]:
    """Read a schema: its canonical text, or the template that it is while it holds expressions."""
    expressions = list(expressions_in(node.value))
    problems = check_schema(node.value, template=wait and bool(expressions))
    for pointer, message in problems:
        node.findings.refuse(node.pointer + pointer, message, step=node.step)
    if not problems and not _takes_objects(node.value):
        node.refuse("a payload is always an object" if wait else "inputs are always an object", "type: object")
    if problems:
        return None, None
    if not expressions:
        return canonical(node.value), None
    return None, node.template("schema")


def _takes_objects(schema: JsonValue) -> bool:
    kind = schema.get("type", "object") if isinstance(schema, dict) else "object"
    if isinstance(kind, str):
        return kind == "object" or OPENING in kind
    return not isinstance(kind, list) or "object" in kind


def _wait(node: Node) -> Task:
    known = ("type", "key", "acceptEarly", "earlyPolicy", "onHeld", "timeout", "schema")
    members = node.members("a wait_for_signal task", known, ("timeout",))
    schema, template = read_schema(members["schema"], wait=True) if "schema" in members else (None, None)
    early = members.get("acceptEarly")
    if early is not None and "key" not in members:
        early.refuse("acceptEarly without key: an early signal can only be held under a key", "add a key")
    for name in ("earlyPolicy", "onHeld"):
        needed = {"earlyPolicy": "acceptEarly", "onHeld": "key"}[name]
        if name in members and needed not in members:
            members[name].refuse(f"{name} without {needed} says nothing", f"add {needed}, or remove it")
    if early is not None and "schema" in members:
        _refuse_reading_schema(members["schema"])
    return WaitTask(
        key=members["key"].name("key") or None if "key" in members else None,
        timeout=members["timeout"].seconds("timeout", MAX_TIMEOUT_SECONDS) if "timeout" in members else 1.0,
        accept_early=early.seconds("acceptEarly", MAX_ACCEPT_EARLY_SECONDS) if early is not None else None,
        early_policy=cast("EarlyPolicy", _choice(members, "earlyPolicy", ("first", "latest"))),
        on_held=cast("OnHeld", _choice(members, "onHeld", ("fail", "replace"))),
        schema=schema,
        schema_template=template,
    )


def _refuse_reading_schema(schema: Node) -> None:
    for path, text in expressions_in(schema.value):
        used = _read_by(text)
        pointer = schema.pointer
        for step in path:
            pointer = child(pointer, step)
        schema.findings.refuse(
            pointer,
            f"the schema of a wait with acceptEarly reads {', '.join(used) or 'an expression'}, and no run exists yet"
            " when an early signal is checked",
            hint="write the values themselves, or remove acceptEarly",
            step=schema.step,
        )


def _read_by(text: str) -> list[str]:
    try:
        expressions = [part.text for part in split(text) if isinstance(part, Expression)]
    except BadTemplate:
        return []
    return [f"{read.root}.{read.name or '*'}" for expression in expressions for read in reads(expression)]


def _choice(members: dict[str, Node], name: str, options: tuple[str, ...]) -> str:
    return members[name].choice(name, options) if name in members else options[0]


def _publish(node: Node) -> Task:
    members = node.members("a publish task", ("type", "topic", "payload"), ("topic",))
    topic = members["topic"].text("topic") if "topic" in members else ""
    if topic:
        members["topic"].template()
        _check_topic(members["topic"], topic)
    elif "topic" in members and members["topic"].value == "":
        members["topic"].refuse(topic_problem(""))
    payload = members["payload"].template() if "payload" in members else {}
    return PublishTask(topic=topic, payload=payload)


def _check_topic(node: Node, topic: str) -> None:
    try:
        parts = split(topic)
    except BadTemplate:
        return  # noted with the template
    literal = "".join(part for part in parts if isinstance(part, str))
    if "+" in literal or "#" in literal:
        message = topic_problem(literal)
    elif isinstance(parts[0], str):
        message = topic_problem(parts[0], whole=len(parts) == 1)
    else:
        message = ""
    if message:
        node.refuse(message)


def _http(node: Node) -> Task:
    known = ("type", "method", "url", "headers", "body", "timeout", "expect")
    members = node.members("an http task", known, ("url",))
    url = members["url"].text("url") if "url" in members else ""
    if url:
        members["url"].template()
        if not url.startswith((OPENING, "http://", "https://")):
            members["url"].refuse("url must begin with http:// or https://")
    headers = text_map(members["headers"], "headers") if "headers" in members else {}
    for name in headers:
        if _HEADER.fullmatch(name) is None:
            members["headers"].refuse(f"{name!r} is no name of a header")
    default = HttpTask(method="GET", url="")
    return HttpTask(
        method=_choice(members, "method", _METHODS),
        url=url,
        headers=headers,
        body=members["body"].template() if "body" in members else None,
        timeout=_task_timeout(members, default.timeout),
        expect=_statuses(members["expect"]) if "expect" in members else (),
    )


def _statuses(node: Node) -> tuple[int, ...]:
    if not isinstance(node.value, list):
        return (node.whole("expect", 100, 599),)
    if not node.value:
        node.refuse("expect is empty", "leave it out to expect 200 to 299")
    return tuple(status.whole("a status", 100, 599) for status in node.items("expect"))


def _task_timeout(members: dict[str, Node], default: float) -> float:
    return members["timeout"].seconds("timeout", MAX_TASK_TIMEOUT_SECONDS) if "timeout" in members else default


def _shell(node: Node) -> Task:
    members = node.members("a shell task", ("type", "run", "timeout", "env"), ("run",))
    env = text_map(members["env"], "env") if "env" in members else {}
    for name in env:
        if _VARIABLE.fullmatch(name) is None:
            members["env"].refuse(f"{name!r} is no name of a variable")
    run = _arguments(members["run"]) if "run" in members else ()
    return ShellTask(run=run, timeout=_task_timeout(members, ShellTask(run=()).timeout), env=env)


def _arguments(node: Node) -> tuple[str, ...]:
    if not isinstance(node.value, list):
        node.refuse("run is a list, the program and its arguments; no shell reads it", "write [program, argument]")
        return ()
    arguments = [item.text_template("an argument") for item in node.items("run")]
    if not arguments or not arguments[0]:
        node.refuse("run names no program", "write [program, argument]")
        return ()
    if len(arguments) > MAX_ARGUMENTS:
        node.refuse(f"run has more than {MAX_ARGUMENTS} arguments")
    if OPENING in arguments[0]:
        node.refuse("the program takes no expression", "write the program itself; its arguments may be expressions")
    if any("\0" in argument for argument in arguments):
        node.refuse("an argument holds the character U+0000")
    _refuse_shell_text(node, arguments)
    return tuple(arguments)


def _refuse_shell_text(node: Node, arguments: list[str]) -> None:
    """Refuse `sh -c "… ${{ … }} …"`: a payload would be read as commands."""
    if arguments[0].rpartition("/")[2] not in _SHELLS:
        return
    for option, text in itertools.pairwise(arguments[1:]):
        if not option.startswith("-"):
            return
        if "c" in option and OPENING in text:
            hint = 'pass it as an argument: [sh, -c, \'echo "$1"\', sh, "${{ … }}"]'
            node.refuse("an expression in a shell's commands would let a payload write commands", hint)
            return


def _assert(node: Node) -> Task:
    members = node.members("an assert task", ("type", "that", "message"), ("that",))
    return AssertTask(
        that=members["that"].expression("that") if "that" in members else Expression("false"),
        message=members["message"].text_template("message") if "message" in members else "the assertion is not true",
    )


def _workflow(node: Node) -> Task:
    members = node.members("a workflow task", ("type", "workflow", "inputs"), ("workflow",))
    inputs = members.get("inputs")
    if (
        inputs is not None
        and not isinstance(inputs.value, dict)
        and not (isinstance(inputs.value, str) and inputs.value.startswith(OPENING))
    ):
        inputs.refuse("inputs must have members")
    return WorkflowTask(
        workflow=members["workflow"].name("workflow") if "workflow" in members else "",
        inputs=inputs.template() if inputs is not None else {},
    )


_READERS: Final[dict[str, Callable[[Node], Task]]] = {
    "wait_for_signal": _wait,
    "publish": _publish,
    "http": _http,
    "shell": _shell,
    "assert": _assert,
    "workflow": _workflow,
}
