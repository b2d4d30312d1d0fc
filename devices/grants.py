"""Grants: what a device may do, as text, as values, and the one place that decides. Pure.

`signal:<workflow>[/<key>]`, `read:<workflow>`, `run:<workflow>`, `listen:<topic filter>`; `*` stands for a whole name.
`listen:d/<device>/status`, with `+` for any device, is presence, and the one thing under `d/` that others may hear.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from engine.errors import BadInput
from engine.names import is_name
from engine.workflows.topics import RESERVED_LEVELS

ANY: Final = "*"
MAX_FILTER_BYTES: Final = 256

_KINDS: Final = ("signal", "read", "run", "listen")
_FORMS: Final = "signal:WORKFLOW[/KEY], read:WORKFLOW, run:WORKFLOW or listen:TOPIC-FILTER, with * for any name"


@dataclass(frozen=True, slots=True)
class SignalGrant:
    """May signal `key` of `workflow`; with `key` None, every key of it and its waits without a key."""

    workflow: str
    key: str | None = None

    def __str__(self) -> str:
        return f"signal:{self.workflow}" + (f"/{self.key}" if self.key is not None else "")


@dataclass(frozen=True, slots=True)
class WorkflowGrant:
    """May read or start `workflow`."""

    verb: Literal["read", "run"]
    workflow: str

    def __str__(self) -> str:
        return f"{self.verb}:{self.workflow}"


@dataclass(frozen=True, slots=True)
class ListenGrant:
    """May subscribe to `topic_filter` and to whatever it covers."""

    topic_filter: str

    def __str__(self) -> str:
        return f"listen:{self.topic_filter}"


Grant = SignalGrant | WorkflowGrant | ListenGrant


def parse(text: str) -> Grant:
    """Read a grant; `signal:w/*` is `signal:w`. Raises `BadInput` with the forms that there are."""
    verb, colon, target = text.partition(":")
    match verb:
        case "signal":
            workflow, slash, key = target.partition("/")
            if _is_target(workflow) and (not slash or _is_target(key)):
                return SignalGrant(workflow, key if slash and key != ANY else None)
        case "read" | "run":
            if _is_target(target):
                return WorkflowGrant(verb, target)
        case "listen":
            if problem := listen_problem(target):
                raise BadInput(f"a device may not listen there: {problem}", hint=f"a grant is {_FORMS}")
            return ListenGrant(target)
        case _:
            raise BadInput(
                f"this is not a grant: {_kind_problem(verb) if colon else 'there is no colon in it'}",
                hint=f"a grant is {_FORMS}",
            )
    raise BadInput("this is not a grant: names are made of a-z, 0-9, _ and -", hint=f"a grant is {_FORMS}")


def _kind_problem(verb: str) -> str:
    near = difflib.get_close_matches(verb.lower(), _KINDS, n=1)
    said = f"{verb} is no kind of grant" if is_name(verb.lower()) else "it begins with no kind of grant"
    return said + (f"; did you mean {near[0]}?" if near else "")


def _is_target(text: str) -> bool:
    return text == ANY or is_name(text)


def may_signal(grants: Iterable[Grant], workflow: str, key: str | None) -> bool:
    """Tell whether a signal to `key` of `workflow` is allowed; with `key` None, to a wait of it that has no key."""
    # Loops in full, here and below: they run for every signal, and a generator costs more than what it finds.
    for grant in grants:
        if isinstance(grant, SignalGrant) and grant.workflow in (ANY, workflow) and grant.key in (None, key):
            return True
    return False


def may_read(grants: Iterable[Grant], workflow: str) -> bool:
    """Tell whether the waits and results of `workflow` may be seen."""
    return any(_names(grant, "read", workflow) for grant in grants)


def may_run(grants: Iterable[Grant], workflow: str) -> bool:
    """Tell whether a run of `workflow` may be started."""
    return any(_names(grant, "run", workflow) for grant in grants)


def _names(grant: Grant, verb: str, workflow: str) -> bool:
    return isinstance(grant, WorkflowGrant) and grant.verb == verb and grant.workflow in (ANY, workflow)


def may_listen(grants: Iterable[Grant], topic_filter: str) -> bool:
    """Tell whether a subscription to `topic_filter` stays within what is granted."""
    return not listen_problem(topic_filter) and any(
        isinstance(grant, ListenGrant) and covers(grant.topic_filter, topic_filter) for grant in grants
    )


def listen_problem(topic_filter: str) -> str:
    """Say why nobody may be granted to listen to a topic filter; "" when somebody may."""
    if is_presence(topic_filter):
        return ""
    problem = filter_problem(topic_filter)
    return (
        f"{problem}; d/DEVICE/status and d/+/status are all of d/" if topic_filter[:2] == "d/" and problem else problem
    )


def is_presence(topic_filter: str) -> bool:
    """Tell whether a topic filter is one device's presence, or every device's: `d/<device>/status`, `d/+/status`."""
    head, _, rest = topic_filter.partition("/")
    device, _, tail = rest.partition("/")
    return head == "d" and tail == "status" and (device == "+" or is_name(device))


def filter_problem(topic_filter: str) -> str:
    """Say why a topic filter is malformed (MQTT 5, 4.7.1) or reaches into reserved topics; "" when it is fine.

    The first level has to be a plain word, so that no wildcard reaches the reserved ones, on which devices send and
    are answered: a grant to listen there would hand one device's verdicts to another.
    """
    if not topic_filter.isprintable():  # asked first: half a surrogate pair has no bytes to count
        return "it holds a control character, or what is no character"
    if not topic_filter or len(topic_filter.encode()) > MAX_FILTER_BYTES:
        return f"a topic filter has 1 to {MAX_FILTER_BYTES} bytes"
    levels = topic_filter.split("/")
    for at, level in enumerate(levels):
        if "#" in level and (level != "#" or at != len(levels) - 1):
            return "# stands alone, and last"
        if "+" in level and level != "+":
            return "+ stands alone between slashes"
    first = levels[0]
    if first in {"#", "+", ""} or first.startswith("$") or first in RESERVED_LEVELS:
        reserved = ", ".join(sorted(RESERVED_LEVELS))
        return f"its first level must be a word other than {reserved}, and not start with $"
    return ""


def covers(granted: str, asked: str) -> bool:
    """Tell whether every topic that `asked` matches is one that `granted` matches. Both are well-formed."""
    wide, narrow = granted.split("/"), asked.split("/")
    for at, level in enumerate(wide):
        if level == "#":
            return True
        if at >= len(narrow) or narrow[at] == "#" or level not in ("+", narrow[at]):
            return False
    return len(wide) == len(narrow)
