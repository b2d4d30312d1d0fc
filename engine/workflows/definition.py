"""A workflow's definition as values: built only by `validation`, so one that exists has passed every check.

Strings of a *template* may hold expressions, `${{ … }}`; `expressions.render` fills them in. Templates are plain JSON
values (dict, list, str, numbers, bool, None) that nobody changes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
Template: TypeAlias = JsonValue

Condition = Literal["succeeded", "failed", "completed", "always", "skipped"]
EarlyPolicy = Literal["first", "latest"]
OnHeld = Literal["fail", "replace"]

DEFAULT_CONDITION: Final = "succeeded"
DEFAULT_HTTP_TIMEOUT_SECONDS: Final = 30.0
DEFAULT_SHELL_TIMEOUT_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Expression:
    """The CEL text between `${{` and `}}`."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """What must have ended how: a job for a job, a step of the same job for a step.

    `completed` is succeeded or failed, `always` any end, a skipped one included.
    """

    name: str
    condition: Condition = "succeeded"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitTask:
    """Wait for one signal, by key or only by the wait's id.

    Exactly one of `schema` (canonical JSON text) and `schema_template` (it holds expressions, never with
    `accept_early`) is set, or neither; `expressions.captured_schema` gives what a wait captures as it opens.
    """

    key: str | None
    timeout: float  # seconds, 0 < timeout <= MAX_TIMEOUT_SECONDS
    accept_early: float | None = None  # seconds, 0 < n <= MAX_ACCEPT_EARLY_SECONDS; only with a key
    early_policy: EarlyPolicy = "first"
    on_held: OnHeld = "fail"
    schema: bytes | None = None
    schema_template: Template = None
    type: Literal["wait_for_signal"] = "wait_for_signal"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishTask:
    """Publish a command at QoS 1; the payload is sent as compact JSON.

    A topic with expressions is checked again by `topics.topic_problem` when it has been rendered.
    """

    topic: str  # a template
    payload: Template
    qos: Literal[1] = 1
    type: Literal["publish"] = "publish"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTask:
    """Make one HTTP request and expect one of the statuses `expect`; none given means 200 to 299."""

    method: str
    url: str  # a template
    headers: dict[str, str] = field(default_factory=dict)  # names as written; values are templates
    body: Template = None  # None: no body; a string is sent as text, anything else as JSON
    timeout: float = DEFAULT_HTTP_TIMEOUT_SECONDS
    expect: tuple[int, ...] = ()
    type: Literal["http"] = "http"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellTask:
    """Run one program with its arguments; no shell reads them, so an argument is one argument whatever it holds."""

    run: tuple[str, ...]  # templates, at least the program
    timeout: float = DEFAULT_SHELL_TIMEOUT_SECONDS
    env: dict[str, str] = field(default_factory=dict)  # values are templates
    type: Literal["shell"] = "shell"


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertTask:
    """Fail with `message` (a template) unless `that` is true."""

    that: Expression
    message: str
    type: Literal["assert"] = "assert"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowTask:
    """Start another workflow with `inputs` (a template of an object) and wait for its end."""

    workflow: str
    inputs: Template
    type: Literal["workflow"] = "workflow"


Task: TypeAlias = WaitTask | PublishTask | HttpTask | ShellTask | AssertTask | WorkflowTask


@dataclass(frozen=True, slots=True, kw_only=True)
class ForEach:
    """Repeat a step for each element of `values`: a template that renders to a list; `self.<item>` is the element."""

    item: str
    values: Template


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step. Its name is unique in the whole workflow, since `steps.<name>` and `--from` name it without a job.

    `guard` true: the step is skipped as already done, which satisfies the condition `succeeded`.
    """

    name: str
    task: Task
    depends_on: tuple[Dependency, ...] = ()
    allow_failure: bool = False
    guard: Expression | None = None
    for_each: ForEach | None = None
    idempotent: bool = False
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Steps that run as their dependencies allow, at most `concurrency` of them at once."""

    name: str
    steps: tuple[Step, ...]
    depends_on: tuple[Dependency, ...] = ()
    concurrency: int | None = None
    description: str = ""


@dataclass(frozen=True, slots=True)
class KeyedStep:
    """Where a key is declared."""

    job: str
    step: str
    task: WaitTask


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A whole workflow. `source` is the document as canonical JSON: what a run keeps, and `parse_definition` reads."""

    name: str
    jobs: tuple[Job, ...]
    source: bytes
    description: str = ""
    inputs_schema: bytes | None = None  # canonical JSON text
    trigger_topic: bool = False
    concurrency: int | None = None
    _keyed: dict[str, KeyedStep] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        keyed = {
            step.task.key: KeyedStep(job.name, step.name, step.task)
            for job in self.jobs
            for step in job.steps
            if isinstance(step.task, WaitTask) and step.task.key is not None
        }
        object.__setattr__(self, "_keyed", keyed)

    def keyed(self, key: str) -> KeyedStep | None:
        """Find the step that declares `key`."""
        return self._keyed.get(key)

    def keys(self) -> tuple[str, ...]:
        """List the declared keys in the order of the document."""
        return tuple(self._keyed)


def canonical(value: object) -> bytes:
    """Write a JSON value in the one form that is stored and compared: sorted names, no spaces, UTF-8."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
