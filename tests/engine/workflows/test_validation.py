"""Proves that a definition is refused for each rule, with its place and a hint, and all problems at once."""

from __future__ import annotations

import time
from textwrap import dedent, indent

import pytest

from engine.errors import BadInput
from engine.workflows.definition import Definition, ForEach, HttpTask, PublishTask, ShellTask, WaitTask
from engine.workflows.validation import Problem, load_text, parse_definition

WAIT = "{ type: wait_for_signal, timeout: 1 }"
# A second step depends on the first, whose name is {0}, and has a guard that reads {1}.
READS = """\
- name: {0}
  task: {{ type: wait_for_signal, timeout: 1 }}
- name: c
  dependsOn: [ {{ step: {0} }} ]
  guard: ${{{{{{ {1} == "x" }}}}}}
  task: {{ type: wait_for_signal, timeout: 1 }}
"""


def problems(text: str) -> list[Problem]:
    loaded = load_text(text, "a.yaml")
    assert isinstance(loaded, list), "the definition was accepted"
    return loaded


def accepted(text: str) -> Definition:
    loaded = load_text(text, "a.yaml")
    assert isinstance(loaded, Definition), [str(problem) for problem in loaded]
    return loaded


def workflow(steps: str, *, more: str = "") -> str:
    return f"name: w\n{dedent(more)}jobs:\n  - name: main\n    steps:\n{indent(dedent(steps).strip(), '      ')}\n"


def task(members: str, *, before: str = "") -> str:
    """Write a workflow whose last step `s` has this task."""
    return workflow(
        f"{dedent(before)}\n- name: s\n  dependsOn: [{'{step: first}' if before else ''}]\n  task: {members}\n"
    )


def one(text: str) -> Problem:
    found = problems(text)
    assert len(found) == 1, [str(problem) for problem in found]
    return found[0]


def test_a_problem_has_its_step_pointer_line_and_hint() -> None:
    problem = one(
        "name: w\njobs:\n  - name: main\n    steps:\n      - name: s\n        task:\n          type: publsh\n"
    )
    assert problem == Problem("s", "/jobs/0/steps/0/task/type", 7, "no such type of task", "did you mean publish?")
    assert str(problem) == ("line 7: step s: no such type of task (did you mean publish?) [/jobs/0/steps/0/task/type]")


def test_all_problems_are_told_at_once_in_the_order_of_the_lines() -> None:
    found = problems(
        """\
        name: Front Door
        descripton: x
        inputs: { type: object, format: email }
        jobs:
          - name: main
            steps:
              - name: a
                dependsOn: [ { step: c } ]
                task: { type: wait_for_signal, key: k, timeout: 0 }
              - name: b
                dependsOn: [ { step: a } ]
                guard: ${{ steps.aa.status == "x" }}
                task: { type: publish, topic: d/x, payload: "${{ nothing }}" }
              - name: c
                dependsOn: [ { step: b } ]
                task: { type: shell, run: echo hello }
        """
    )
    assert [(problem.line, problem.step) for problem in found] == [
        (1, ""), (2, ""), (3, ""), (8, "a"), (9, "a"), (12, "b"), (13, "b"), (13, "b"), (16, "c"),
    ]  # fmt: skip
    assert found[0].hint == "such as front-door"
    assert found[1].hint == "did you mean description?"
    assert "steps wait for each other: a -> c -> b -> a" in found[3].message
    assert found[5].hint == "did you mean a?"


def test_the_same_key_on_two_steps_is_refused_naming_the_steps() -> None:
    keyed = "{ type: wait_for_signal, timeout: 1, key: door }"
    problem = one(workflow(f"- name: a\n  task: {keyed}\n- name: b\n  task: {keyed}"))
    assert problem.message == "the steps a and b both declare the key door"
    assert (problem.step, problem.pointer, problem.line) == ("b", "/jobs/0/steps/1/task/key", 8)


def test_a_key_under_for_each_is_refused_naming_the_step() -> None:
    steps = "- name: a\n  forEach: { item: x, in: [1, 2] }\n  task: { type: wait_for_signal, timeout: 1, key: door }"
    problem = one(workflow(steps))
    assert problem.message == "the step a has forEach, and all its repeats would share the key door"
    assert problem.pointer == "/jobs/0/steps/0/task/key"


@pytest.mark.parametrize(
    ("members", "pointer", "part"),
    [
        ("{ type: wait_for_signal }", "", "needs timeout"),
        ("{ type: wait_for_signal, timeout: }", "/timeout", "timeout is empty"),
        ("{ type: wait_for_signal, timeout: 0 }", "/timeout", "over 0 and at most 31536000"),
        ("{ type: wait_for_signal, timeout: 31536001 }", "/timeout", "over 0 and at most 31536000"),
        ("{ type: wait_for_signal, timeout: 30s }", "/timeout", "must be a number of seconds"),
        ("{ type: wait_for_signal, timeout: true }", "/timeout", "must be a number of seconds"),
        ('{ type: wait_for_signal, timeout: "${{ inputs.t }}" }', "/timeout", "takes no expression"),
        ('{ type: wait_for_signal, timeout: 1, key: "${{ inputs.k }}" }', "/key", "takes no expression"),
        ("{ type: wait_for_signal, timeout: 1, key: Kitchen/Verdict }", "/key", "1 to 64 characters"),
        ("{ type: wait_for_signal, timeout: 1, key: 7 }", "/key", "1 to 64 characters"),
        ("{ type: wait_for_signal, timeout: 1, acceptEarly: 10 }", "/acceptEarly", "without key"),
        ("{ type: wait_for_signal, timeout: 1, key: k, acceptEarly: 0 }", "/acceptEarly", "at most 3600"),
        ("{ type: wait_for_signal, timeout: 1, key: k, acceptEarly: -1 }", "/acceptEarly", "at most 3600"),
        ("{ type: wait_for_signal, timeout: 1, key: k, acceptEarly: 3600.5 }", "/acceptEarly", "at most 3600"),
        ("{ type: wait_for_signal, timeout: 1, key: k, earlyPolicy: latest }", "/earlyPolicy", "without acceptEarly"),
        ("{ type: wait_for_signal, timeout: 1, onHeld: replace }", "/onHeld", "without key"),
        ("{ type: wait_for_signal, timeout: 1, key: k, onHeld: replaces }", "/onHeld", "one of fail, replace"),
        ("{ type: wait_for_signal, timeout: 1, accept_early: 1 }", "/accept_early", "no member 'accept_early'"),
        ("{ type: wait_for_signal, timeout: 1, schema: { format: date } }", "/schema/format", "not be enforced"),
        ("{ type: wait_for_signal, timeout: 1, schema: { $ref: 'https://x.y' } }", "/schema/$ref", "into this schema"),
        ("{ type: wait_for_signal, timeout: 1, schema: { type: string } }", "/schema", "always an object"),
        ("{ type: publish, topic: d/door/signals/w/k }", "/topic", "belong to the gateway"),
        ("{ type: publish, topic: signals/w/k }", "/topic", "belong to the gateway"),
        ("{ type: publish, topic: runs/w/1 }", "/topic", "belong to the gateway"),
        ("{ type: publish, topic: get/waits/w }", "/topic", "belong to the gateway"),
        ("{ type: publish, topic: replies/x }", "/topic", "belong to the gateway"),
        ("{ type: publish, topic: gateway/a/status }", "/topic", "belong to the gateway"),
        ("{ type: publish, topic: $SYS/x }", "/topic", "belong to the broker"),
        ("{ type: publish, topic: a/+/b }", "/topic", "no wildcards"),
        ('{ type: publish, topic: "a/#" }', "/topic", "no wildcards"),
        ('{ type: publish, topic: "d/${{ inputs.x }}" }', "/topic", "belong to the gateway"),
        ('{ type: publish, topic: "${{ inputs.x }}/+" }', "/topic", "no wildcards"),
        ('{ type: publish, topic: "" }', "/topic", "at least one character"),
        ("{ type: publish, topic: a, qos: 2 }", "/qos", "no member 'qos'"),
        ("{ type: shell, run: echo hello }", "/run", "a list"),
        ("{ type: shell, run: [] }", "/run", "names no program"),
        ('{ type: shell, run: ["${{ inputs.x }}"] }', "/run", "the program takes no expression"),
        ('{ type: shell, run: [sh, -c, "echo ${{ inputs.x }}"] }', "/run", "let a payload write commands"),
        ('{ type: shell, run: [/bin/bash, -e, -lc, "${{ inputs.x }}"] }', "/run", "let a payload write commands"),
        ("{ type: shell, run: [echo, [a]] }", "/run/1", "must be a text"),
        ("{ type: shell, run: [ls], env: { A-B: x } }", "/env", "no name of a variable"),
        ("{ type: http, url: ftp://x }", "/url", "http:// or https://"),
        ("{ type: http, url: http://x, method: FETCH }", "/method", "must be one of GET"),
        ("{ type: http, url: http://x, expect: 42 }", "/expect", "from 100 to 599"),
        ("{ type: http, url: http://x, expect: [200, x] }", "/expect/1", "from 100 to 599"),
        ("{ type: http, url: http://x, headers: { 'a b': x } }", "/headers", "no name of a header"),
        ("{ type: http, url: http://x, timeout: 86401 }", "/timeout", "at most 86400"),
        ("{ type: assert, that: inputs.x }", "/that", "must be one expression"),
        ('{ type: assert, that: "a ${{ inputs.x }}" }', "/that", "must be one expression"),
        ("{ type: workflow, workflow: '${{ inputs.x }}' }", "/workflow", "takes no expression"),
        ("{ type: workflow, workflow: w, inputs: [1] }", "/inputs", "must have members"),
        ("{ topic: x }", "", "task needs type"),
        ("publish", "", "task must have members"),
        ('{ type: publish, topic: "a/${{ inputs.x" }', "/topic", "without its }}"),
        ('{ type: publish, topic: a, payload: "${{ steps }}" }', "/payload", "names the steps"),
        ('{ type: publish, topic: a, payload: "${{ steps.nope.status }}" }', "/payload", "no step is named nope"),
        ('{ type: publish, topic: a, payload: "${{ steps.s.status }}" }', "/payload", "reads itself"),
        ('{ type: publish, topic: a, payload: "${{ self.x }}" }', "/payload", "only in a step with forEach"),
        ('{ type: publish, topic: a, payload: { b: ["${{ 1 + }}"] } }', "/payload/b/0", "does not compile"),
        ('{ type: publish, topic: a, payload: "${{ input.x }}" }', "/payload", "undeclared reference to 'input"),
    ],
)
def test_each_rule_about_a_task_is_told_where_it_is_broken(members: str, pointer: str, part: str) -> None:
    problem = one(task(members))
    assert problem.pointer == f"/jobs/0/steps/0/task{pointer}"
    assert part in problem.message
    assert problem.step == "s"
    assert problem.line == 7


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("timeout: 30s", "write 30"),
        ("timeout: '5m'", "write 300"),
        ("timeout: 1, key: Kitchen Verdict", "such as kitchen-verdict"),
        ("timeout: 1, accept_early: 1", "did you mean acceptEarly?"),
        ("timeout: 1, scheme: {}", "did you mean schema?"),
    ],
)
def test_a_hint_says_what_would_do(given: str, hint: str) -> None:
    assert one(task(f"{{ type: wait_for_signal, {given} }}")).hint == hint


def test_a_schema_that_reads_inputs_is_refused_with_accept_early_and_accepted_without() -> None:
    schema = 'schema: { properties: { a: { enum: "${{ inputs.names }}" } } }'
    problem = one(task(f"{{ type: wait_for_signal, timeout: 1, key: k, acceptEarly: 5, {schema} }}"))
    assert problem.message.startswith("the schema of a wait with acceptEarly reads inputs.names")
    assert problem.pointer == "/jobs/0/steps/0/task/schema/properties/a/enum"
    keyed = accepted(task(f"{{ type: wait_for_signal, timeout: 1, key: k, {schema} }}")).keyed("k")
    assert keyed is not None
    assert keyed.task.schema is None
    assert keyed.task.schema_template == {"properties": {"a": {"enum": "${{ inputs.names }}"}}}


def test_a_schema_reads_nothing_but_inputs() -> None:
    text = task(
        '{ type: wait_for_signal, timeout: 1, schema: { properties: { a: { const: "${{ steps.first.status }}" } } } }',
        before=f"- name: first\n  task: {WAIT}",
    )
    assert "reads inputs only" in one(text).message


@pytest.mark.parametrize(
    ("steps", "part", "hint"),
    [
        (f"- name: a\n  task: {WAIT}\n- name: a\n  task: {WAIT}", "two steps are named a", "steps.<name>"),
        (f"- name: a\n  dependsOn: [{{step: bb}}]\n  task: {WAIT}\n- name: b\n  task: {WAIT}", "is named bb", "mean b"),
        (f"- name: a\n  dependsOn: [b]\n  task: {WAIT}", "has members", "write { step: b }"),
        (f"- name: a\n  dependsOn: [{{job: b}}]\n  task: {WAIT}", "no member 'job'", ""),
        (f"- name: a\n  dependsOn: [{{step: a}}]\n  task: {WAIT}", "a -> a", ""),
        (f"- name: b\n  task: {WAIT}\n- name: a\n  dependsOn: [{{step: b, condition: failed}}]\n  task: {WAIT}",
         "condition has members", "write { type: failed }"),
        (f"- name: b\n  task: {WAIT}\n- name: a\n  dependsOn: [{{step: b, condition: {{type: done}}}}]\n  task: {WAIT}",
         "one of succeeded, failed, completed, always, skipped", ""),
        (f"- name: b\n  task: {WAIT}\n- name: a\n  dependsOn: [{{step: b}}, {{step: b}}]\n  task: {WAIT}", "twice", ""),
        (f"- name: a\n  guard: 'inputs.x'\n  task: {WAIT}", "must be one expression", "write ${{ inputs.x }}"),
        (f"- name: a\n  allowFailure: 'true'\n  task: {WAIT}", "must be true or false", "without quotes"),
        (f"- name: a\n  forEach: {{item: 1x, in: [1]}}\n  task: {WAIT}", "begin with no digit", ""),
        (f"- name: a\n  forEach: {{item: x, in: 3}}\n  task: {WAIT}", "in must be a list", ""),
        (f"- name: a\n  forEach: {{item: x, in: '${{{{ self.x }}}}'}}\n  task: {WAIT}", "cannot read self", ""),
        (f"- name: a\n  forEach: {{item: x, in: [1]}}\n  guard: '${{{{ self.y }}}}'\n  task: {WAIT}",
         "self has no y", "did you mean x?"),
        (f"- name: a\n  task: {WAIT}\n- name: b\n  guard: '${{{{ steps.a.status == \"x\" }}}}'\n  task: {WAIT}",
         "may not have ended", "dependsOn"),
        (READS.format("a-b", "steps.a-b.status"), "no step is named a", 'steps["a-b"]'),
        (READS.format("a", "steps.a.output"), "a step has no output", "outputs"),
        ("- name: a", "a step needs task", ""),
        (f"- task: {WAIT}", "a step needs name", ""),
        ("- just text", "a step must have members", ""),
    ],
)  # fmt: skip
def test_each_rule_about_steps_is_told(steps: str, part: str, hint: str) -> None:
    found = [problem for problem in problems(workflow(steps)) if part in problem.message]
    assert len(found) == 1
    assert hint in found[0].hint


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "is empty"),
        ("# nothing\n", "is empty"),
        ("[]", "a workflow must have members"),
        ("name: w", "needs jobs"),
        ("name: w\njobs: []", "at least one job"),
        ("name: w\njobs: [{name: a, steps: []}]", "at least one step"),
        ("name: w\njobs: {}", "jobs is a list"),
        (workflow(f"- name: s\n  task: {WAIT}", more="trigger: true\n"), "trigger must have members"),
        (workflow(f"- name: s\n  task: {WAIT}", more="concurrency: 0\n"), "from 1 to 1000"),
        (workflow(f"- name: s\n  task: {WAIT}", more="inputs: { type: array }\n"), "always an object"),
        (workflow(f"- name: s\n  task: {WAIT}", more="retention: 5\n"), "no member 'retention'"),
    ],
)
def test_each_rule_about_the_whole_is_told(text: str, part: str) -> None:
    assert any(part in problem.message for problem in problems(text))


def test_jobs_have_their_own_names_and_dependencies() -> None:
    def jobs(*heads: str) -> str:
        steps = [f"    steps: [ {{ name: s{at}, task: {WAIT} }} ]" for at in range(len(heads))]
        return "\n".join(["name: w", "jobs:", *(f"  - name: {h}\n{s}" for h, s in zip(heads, steps, strict=True))])

    assert "two jobs are named a" in one(jobs("a", "a")).message
    assert "no job is named c" in one(jobs("a", "b\n    dependsOn: [ { job: c } ]")).message
    circle = jobs("a\n    dependsOn: [ { job: b } ]", "b\n    dependsOn: [ { job: a } ]")
    assert "jobs wait for each other: a -> b -> a" in one(circle).message
    other = (
        "name: w\njobs:\n"
        f"  - name: a\n    steps: [ {{ name: x, task: {WAIT} }} ]\n"
        f"  - name: b\n    steps: [ {{ name: y, dependsOn: [ {{ step: x }} ], task: {WAIT} }} ]\n"
    )
    assert one(other).hint == "it is a step of the job a; let the job depend on that job"


def test_a_step_may_read_the_steps_of_the_jobs_before_its_own() -> None:
    text = (
        f"name: w\njobs:\n  - name: a\n    steps: [ {{ name: x, task: {WAIT} }} ]\n"
        "  - name: b\n    dependsOn: [ { job: a, condition: { type: always } } ]\n    steps:\n"
        '      - name: y\n        task: { type: publish, topic: t, payload: "${{ steps.x.status }}" }\n'
    )
    accepted(text)
    assert (
        "may not have ended"
        in one(text.replace("    dependsOn: [ { job: a, condition: { type: always } } ]\n", "")).message
    )


def test_an_input_that_a_closed_schema_does_not_declare_is_a_typing_error() -> None:
    closed = "inputs: { properties: { camera: {} }, additionalProperties: false }\n"
    steps = '- name: s\n  task: { type: publish, topic: t, payload: "${{ inputs.camra }}" }'
    assert one(workflow(steps, more=closed)).hint == "did you mean camera?"
    accepted(workflow(steps, more=closed.replace(", additionalProperties: false", "")))


def test_everything_that_may_be_said_is_read() -> None:
    definition = accepted(
        """\
        name: all
        description: All of it
        inputs: { type: object, properties: { n: { type: integer } } }
        trigger: { topic: true }
        concurrency: 2
        jobs:
          - name: one
            description: first
            concurrency: 3
            steps:
              - name: a
                description: the first
                allowFailure: true
                idempotent: true
                guard: false
                forEach: { item: it, in: [1, "${{ inputs.n }}"] }
                task:
                  type: http
                  method: POST
                  url: http://127.0.0.1/${{ self.it }}
                  headers: { X-N: 1 }
                  body: { n: "${{ self.it }}" }
                  timeout: 2.5
                  expect: [200, 204]
              - name: b
                dependsOn: [ { step: a, condition: { type: always } } ]
                task: { type: shell, run: [echo, 1, "${{ inputs.n }}"], env: { N: "${{ inputs.n }}" }, timeout: 3 }
          - name: two
            dependsOn: [ { job: one, condition: { type: failed } } ]
            steps:
              - name: c
                task: { type: workflow, workflow: all, inputs: { n: "${{ inputs.n + 1 }}" } }
              - name: d
                task: { type: assert, that: "${{ inputs.n > 0 }}", message: "n is ${{ inputs.n }}" }
              - name: e
                task: { type: publish, topic: a/b }
              - name: f
                task: { type: wait_for_signal, timeout: 0.5 }
        """
    )
    (first, second), (_, _, publish, wait) = definition.jobs[0].steps, definition.jobs[1].steps
    assert definition.trigger_topic
    assert (definition.concurrency, definition.jobs[0].concurrency) == (2, 3)
    assert first.for_each == ForEach(item="it", values=[1, "${{ inputs.n }}"])
    assert (first.allow_failure, first.idempotent) == (True, True)
    assert isinstance(first.task, HttpTask)
    assert (first.task.headers, first.task.expect, first.task.timeout) == ({"X-N": "1"}, (200, 204), 2.5)
    assert isinstance(second.task, ShellTask)
    assert second.task.run == ("echo", "1", "${{ inputs.n }}")
    assert [dependency.condition for dependency in second.depends_on] == ["always"]
    assert publish.task == PublishTask(topic="a/b", payload={})
    assert wait.task == WaitTask(key=None, timeout=0.5)
    assert definition.keys() == ()


def test_the_default_condition_is_succeeded() -> None:
    definition = accepted(
        workflow(f"- name: a\n  task: {WAIT}\n- name: b\n  dependsOn: [ {{ step: a }} ]\n  task: {WAIT}")
    )
    assert definition.jobs[0].steps[1].depends_on[0].condition == "succeeded"


def test_a_workflow_may_start_itself() -> None:
    assert accepted(task("{ type: workflow, workflow: w }")).name == "w"


def test_what_a_run_keeps_gives_the_same_definition_again_without_compiling_anything() -> None:
    definition = accepted(task('{ type: publish, topic: a, payload: { x: ["${{ inputs.x }}", 1.0, é] } }'))
    again = parse_definition(definition.source)
    assert again == definition
    assert parse_definition(definition.source) is again
    for broken in (b"", b"{", b"[]", b'{"name":"w"}', b"[" * 5_000):
        with pytest.raises(BadInput):
            parse_definition(broken)


def test_a_large_definition_is_read_in_reasonable_time() -> None:
    steps = "\n".join(
        f"- name: s{n}\n  dependsOn: [{f'{{step: s{n - 1}}}' if n else ''}]\n  task: {WAIT}" for n in range(1_000)
    )
    started = time.perf_counter()
    accepted(workflow(steps))
    assert time.perf_counter() - started < 20
    assert "at most 1000 steps" in one(workflow(steps + f"\n- name: last\n  task: {WAIT}")).message


def test_a_workflow_that_no_run_could_keep_is_refused() -> None:
    """A run keeps the whole document as JSON; aliases that are written out may make it too large for a record."""
    long = "x" * 50_000
    text = f"""
name: a
description: &long {long}
jobs:
  - name: main
    steps:
      - name: one
        description: *long
        task: {{ type: publish, topic: a, payload: [*long, *long, *long, *long, *long] }}
"""
    found = load_text(text, "a.yaml")
    assert isinstance(found, list)
    assert [problem.message for problem in found] == ["larger than 262144 bytes as JSON, its aliases written out"]
