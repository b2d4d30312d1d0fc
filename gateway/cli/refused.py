"""What a gateway refuses, as people are told it: the words of the answer, its particulars, what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from engine.errors import WaysideError
from gateway.cli.output import when

_HINTS: Final[Mapping[str, str]] = {
    "unauthorized": "the token is not one of this gateway's; see --token-file and WAYSIDE_TOKEN",
    "not_found": "`wayside workflow list` shows the workflows and their keys, `wayside waits` what is open",
    "no_open_wait": "start the run first, or give its step acceptEarly; `wayside waits` lists what is open",
    "rate_limited": "send more slowly, or try again after the time that is named",
    "store_unavailable": "look at the disk and at `wayside doctor`, then try again",
    "stopping": "the gateway is stopping; try again",
    "contended": "try again",
}


# A start of the gateway sees to it that admin.token holds an administrator's token; see `gateway.data`.
NO_LONGER_OWN: Final = (
    "admin.token in the data directory holds a token that was revoked or replaced: "
    "stop the gateway and start it again, and there is a new one in it"
)


class Refused(WaysideError):
    """The gateway refused what was asked; `document` is its answer."""

    def __init__(self, status: int, document: Mapping[str, Any]) -> None:
        problems = (*_particulars(document), *(_problem_line(p) for p in document.get("problems") or ()))
        self.error = str(document["error"])
        super().__init__(
            str(document.get("detail") or document.get("title") or self.error),
            hint=str(document.get("hint") or _HINTS.get(self.error, "")),
        )
        self.status, self.document, self.problems = status, dict(document), problems


def _particulars(document: Mapping[str, Any]) -> Iterator[str]:
    """Say what an answer tells in members of its own: what is wrong with a payload and where, a limit, a moment."""
    if reason := document.get("reason"):
        where = document.get("pointer")
        yield f"{where}: {reason}" if where else str(reason)
    if most := document.get("max_bytes"):
        yield f"it has {document.get('bytes')} bytes, of {most} at most"
    if limit := document.get("limit"):
        yield f"the limit on {limit}"
    if wait := document.get("retry_after_ms"):
        yield f"try again in {wait / 1000:g} s"
    if receipt := document.get("receipt"):
        yield f"that one's receipt is {receipt}"
    if until := document.get("held_until"):
        yield f"it is held until {when(until)}"
    if last := document.get("last_wait"):
        yield f"the last wait ended at {when(last.get('at'))}: {last.get('how')}"


def _problem_line(problem: object) -> str:
    if not isinstance(problem, Mapping):
        return str(problem)
    where = str(problem.get("pointer") or "/")
    return f"{where}: {problem.get('message') or problem.get('rule') or 'wrong'}"
