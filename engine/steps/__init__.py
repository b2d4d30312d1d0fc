"""The kinds of step that do something outside the store, one module each.

`prepare` fills in a task's templates, without any I/O; the coroutine function that it returns does the deed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from engine.events import Publisher, Whose
from engine.steps import http, publish, shell
from engine.steps.result import Deed, Effect
from engine.workflows.definition import HttpTask, PublishTask, ShellTask

__all__ = ["Deed", "Effect", "EffectTask", "prepare"]

EffectTask = PublishTask | HttpTask | ShellTask


def prepare(task: EffectTask, env: Mapping[str, object], publisher: Publisher, whose: Whose) -> Deed:
    """Fill in the templates of a step's task; raises `ExpressionFailed`. Call the result once to do the deed."""
    match task:
        case PublishTask():
            return publish.prepare(task, env, publisher, whose)
        case HttpTask():
            return http.prepare(task, env)
        case ShellTask():
            return shell.prepare(task, env)
        case _:
            assert_never(task)
