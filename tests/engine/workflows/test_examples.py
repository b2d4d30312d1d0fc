"""Proves that the documented examples load as written, and the rules about keys and early signals that they rest on."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import indent

import pytest

from engine.workflows.definition import Definition, WaitTask
from engine.workflows.expressions import is_true, render
from engine.workflows.loading import Catalog
from engine.workflows.schema import compile_schema
from engine.workflows.validation import load_text, parse_definition

EXAMPLES = Path(__file__).parents[3] / "deploy" / "workflows"

KEYED_STEP = """\
- name: identify
  allowFailure: true
  task:
    type: wait_for_signal
    key: kitchen-verdict
    timeout: 30
    schema:
      type: object
      required: [verdict]
      properties:
        verdict: { type: string, enum: [known, intruder] }
"""

EARLY_STEP = """\
- name: identify
  allowFailure: true
  task:
    type: wait_for_signal
    key: kitchen-verdict
    acceptEarly: 10 # seconds a signal may arrive before the wait opens
    timeout: 30
    schema:
      type: object
      required: [verdict]
      properties:
        verdict: { type: string, enum: [known, intruder] }
"""


def load(steps: str) -> Definition:
    loaded = load_text(f"name: front-door\njobs:\n  - name: main\n    steps:\n{indent(steps, '      ')}", "w.yaml")
    assert isinstance(loaded, Definition), [str(problem) for problem in loaded]
    return loaded


@pytest.mark.parametrize(("steps", "early"), [(KEYED_STEP, None), (EARLY_STEP, 10.0)])
def test_a_workflow_whose_wait_declares_a_key_validates(steps: str, early: float | None) -> None:
    definition = load(steps)
    assert definition.keys() == ("kitchen-verdict",)
    keyed = definition.keyed("kitchen-verdict")
    assert keyed is not None
    assert (keyed.job, keyed.step) == ("main", "identify")
    assert (keyed.task.timeout, keyed.task.accept_early, keyed.task.early_policy, keyed.task.on_held) == (
        30.0, early, "first", "fail",
    )  # fmt: skip
    assert definition.jobs[0].steps[0].allow_failure
    assert definition.keyed("another") is None


def test_the_definition_is_the_list_of_its_valid_keys() -> None:
    steps = KEYED_STEP + KEYED_STEP.replace("identify", "confirm").replace("kitchen-verdict", "hall-verdict")
    assert load(steps).keys() == ("kitchen-verdict", "hall-verdict")


def test_an_early_payload_can_be_checked_with_the_definition_alone() -> None:
    keyed = load(EARLY_STEP).keyed("kitchen-verdict")
    assert keyed is not None
    assert keyed.task.schema is not None
    schema = compile_schema(keyed.task.schema)
    assert schema.problems(b'{"verdict":"known"}') == ()
    assert [(problem.pointer, problem.rule) for problem in schema.problems(b'{"verdict":"friend"}')] == [
        ("/verdict", "enum")
    ]


def test_a_wait_without_a_key_has_no_key_to_list() -> None:
    definition = load(KEYED_STEP.replace("    key: kitchen-verdict\n", ""))
    assert definition.keys() == ()
    task = definition.jobs[0].steps[0].task
    assert isinstance(task, WaitTask)
    assert task.key is None


def test_every_example_is_in_force_without_a_problem() -> None:
    catalog = Catalog(EXAMPLES)
    catalog.reload()
    assert catalog.problems() == {}
    files = sorted(path.stem for path in EXAMPLES.glob("*.yaml"))
    assert catalog.names() == files
    assert {"front-door", "greenhouse", "delivery", "thermostat", "machine-guard", "approval"} <= set(files)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_an_example_is_what_a_run_keeps_of_it(path: Path) -> None:
    loaded = load_text(path.read_text(), path.name)
    assert isinstance(loaded, Definition)
    assert parse_definition(loaded.source) == loaded
    assert json.loads(loaded.source)["name"] == path.stem


def example(name: str) -> Definition:
    catalog = Catalog(EXAMPLES)
    catalog.reload()
    definition = catalog.get(name)
    assert definition is not None
    return definition


def test_the_greenhouse_waters_the_dry_zones_only() -> None:
    ask, water = example("greenhouse").jobs
    (valve,) = water.steps
    assert ask.steps[0].name == "minutes"
    assert water.concurrency == 2
    zones = [{"id": "tomatoes", "moisture": 18}, {"id": "basil", "moisture": 30.5}]
    minutes = {"status": "succeeded", "payload": {"minutes": 5}}
    assert valve.for_each is not None
    assert valve.guard is not None
    env = {"inputs": {"zones": zones}, "steps": {"minutes": minutes}}
    assert render(valve.for_each.values, env) == zones
    assert [is_true(valve.guard, {**env, "self": {"zone": zone}}) for zone in zones] == [False, True]
    assert [is_true(valve.guard, {"inputs": {"threshold": 40}, "self": {"zone": zone}}) for zone in zones] == [
        False,
        False,
    ]


def test_the_expressions_of_the_other_examples_give_what_their_comments_say() -> None:
    heating = example("thermostat").jobs[0].steps[2].task
    reading = {"reading": {"payload": {"celsius": 19}}}
    assert render(heating.payload, {"inputs": {}, "steps": reading}) == {"on": True}  # type: ignore[union-attr]
    assert render(heating.payload, {"inputs": {"target": 18.5}, "steps": reading}) == {"on": False}  # type: ignore[union-attr]
    locker = example("delivery").jobs[0].steps[2].task
    steps = {"parcel": {"payload": {"barcode": "12345678"}}, "visitor": {"status": "failed"}}
    rendered = render(locker.payload, {"inputs": {}, "steps": steps})  # type: ignore[union-attr]
    assert rendered == {"open": "A1", "barcode": "12345678", "visitor": "failed"}
