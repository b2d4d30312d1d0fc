"""Names and ids on the command line: what cannot be one is wrong usage, and no gateway is asked for it."""

from __future__ import annotations

from typing import Annotated

import typer

from engine.errors import BadInput
from engine.limits import NAME_FORM
from engine.names import is_name, is_record_id


def checked_name(text: str) -> str:
    """Give a device's, an operator's, a workflow's or a key's name; raises `BadInput`."""
    if not is_name(text):
        raise BadInput(f"{text!r} is no name", hint=NAME_FORM)
    return text


def _run(text: str) -> str:
    if not is_record_id(text):
        raise BadInput("this is no run's id: 26 characters of a-z and 0-9", hint="`wayside run list` shows the runs")
    return text


Name = Annotated[str, typer.Argument(callback=checked_name)]
Run = Annotated[str, typer.Argument(callback=_run)]
