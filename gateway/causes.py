"""Why nothing came of it: the causes that the events of a key, a run or a signal show. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from gateway.audit import AuditEvent
from gateway.telling import key_of, refusal, step_of
from gateway.trail import Found

_GIVEN_BACK: Final = {"revoke": ("rotate",), "disable": ("enable",), "delete": ("add",), "ungrant": ("grant",)}
_HINTS: Final = {
    "refused_by_schema": "the refusal that the device got names each problem; compare with the schema of the step",
    "malformed": "the payload has to be one JSON object of at most 16 KiB",
    "no_open_wait": "start the run before the signal comes, or give the step acceptEarly",
    "early_signal_held": "the first early signal counts (earlyPolicy: first); latest takes the newest",
    "rate_limited": "have the device send less often, or raise its limit",
    "stale": "it lay in the broker while the bridge was away; max_backlog bounds how long that may be",
    "retained": "have the device publish without the retain flag",
    "expired": "raise the step's acceptEarly, or start the run earlier",
    "key_held": "end the run that holds the key, let the step say onHeld: replace, or give each run a key of its own",
    "timed_out": "see whether the device sent anything meanwhile; the step's timeout may be too short",
    "wrong_topic": "the topic is signals/<workflow>/<key>",
    "login_refused": "give the device its token again: `wayside device rotate`",
    "run_failed": "`wayside run show` names the step that failed",
    "never_started": "nothing waits until a run of the workflow is started: `wayside workflow run`",
}


@dataclass(slots=True, kw_only=True)
class Seen:
    """What is known: events in the order of time, of these keys and of the devices that signal them.

    `undeclared` is set when the workflow has no such key (any more), and says which it has.
    """

    keys: tuple[tuple[str, str], ...]
    senders: frozenset[str]
    events: list[Found]
    run: str = ""
    receipt: str = ""
    undeclared: str = ""
    steps: list[tuple[datetime, str, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One thing that stood in the way. `cause` is a stable word."""

    cause: str
    text: str
    hint: str
    at: datetime


def causes_of(seen: Seen) -> tuple[list[Cause], str]:
    """Judge what was seen: the causes, the latest first and each once, and a sentence that concludes."""
    found: dict[tuple[str, str], Cause] = {}
    for cause in [*_from_events(seen), *_from_steps(seen), *_from_definition(seen)]:
        # The later one of two that say the same takes the place.
        found[cause.cause, cause.text] = cause
    causes = sorted(found.values(), key=lambda cause: cause.at, reverse=True)
    good = _last_good(seen)
    if not causes and good is None and not seen.receipt:
        causes = list(_nothing_at_all(seen))
    return causes, _conclusion(seen, causes, good)


def _conclusion(seen: Seen, causes: list[Cause], good: Found | None) -> str:
    waits = _open_wait(seen)
    later = [cause for cause in causes if good is None or cause.at > good.at]
    if good is not None and good.event is not None and not later:
        return f"A signal did come through: {step_of(good.event)} had it."
    if later:
        more = f" ({len(later) - 1} more cause(s) are listed)" if len(later) > 1 else ""
        return f"{later[0].text[0].upper()}{later[0].text[1:]}.{more}"
    if waits is not None:
        return f"{step_of(waits)} waits for {key_of(waits)}, and no signal has come."
    return "Nothing that was written down stood in the way."


def _last_good(seen: Seen) -> Found | None:
    good = None
    for found in seen.events:
        event = found.event
        if event is None or (seen.run and event.run != seen.run) or (seen.receipt and event.receipt != seen.receipt):
            continue
        if (event.action == "wait.settled" and event.result == "accepted") or event.action == "signal.taken":
            good = found
    return good


def _open_wait(seen: Seen) -> AuditEvent | None:
    """Find the wait that was opened last, if it has not ended."""
    last: AuditEvent | None = None
    for event in _all(seen):
        if event.action == "wait.opened":
            last = event
        elif event.action == "wait.settled" and last is not None and event.wait == last.wait:
            last = None
    return last


def _all(seen: Seen) -> Iterator[AuditEvent]:
    return (found.event for found in seen.events if found.event is not None)


def _from_events(seen: Seen) -> Iterator[Cause]:
    holder: dict[tuple[str, str], AuditEvent] = {}
    for found in seen.events:
        event = found.event
        if event is None:
            continue
        if event.action == "wait.opened":
            holder[event.workflow, event.key] = event
        if seen.receipt and event.receipt != seen.receipt:
            continue
        if seen.run and event.run not in {"", seen.run}:
            continue
        told = _one(seen, event, holder, found.at)
        if told is not None:
            cause, text = told
            yield Cause(cause=cause, text=text, hint=_hint(cause, event), at=found.at)


def _one(
    seen: Seen, event: AuditEvent, holder: dict[tuple[str, str], AuditEvent], at: datetime
) -> tuple[str, str] | None:
    match event.action:
        case "signal.refused":
            return _refused(seen, event)
        case "signal.expired":
            return "expired", f"a signal came for {key_of(event)} and was held, but no wait opened before it expired"
        case "wait.key_held":
            other = holder.get((event.workflow, event.key))
            by = f"run {other.run}" if other is not None and other.run != event.run else "another run"
            return "key_held", f"{step_of(event)} could not wait for {key_of(event)}: {by} held the key"
        case "wait.settled" if event.result == "timed_out":
            return "timed_out", f"{step_of(event)} waited for {key_of(event)} until its time was over"
        case "wait.settled" if event.result == "cancelled":
            return "cancelled", f"the wait of {step_of(event)} for {key_of(event)} was cancelled ({event.reason})"
        case "topic.refused":
            return "wrong_topic", f"{event.principal} published to a topic that means nothing here"
        case "login.refused" if _standing(seen, event.principal, at) is None:
            return "login_refused", f"{event.principal} was not let in ({event.result})"
        case "run.ended" if event.result == "failed":
            return "run_failed", f"run {event.run} of {event.workflow} failed"
        case "run.cancelled":
            return "cancelled", f"run {event.run} of {event.workflow} was cancelled by {event.principal}"
        case "device.revoke" | "device.disable" | "device.delete" | "device.ungrant":
            return _taken_away(seen, event)
        case _:
            return None


def _refused(seen: Seen, event: AuditEvent) -> tuple[str, str]:
    sender, about = event.principal, key_of(event)
    if (event.workflow, event.key) not in seen.keys and event.workflow:
        meant = [f"{w}/{k}" for w, k in seen.keys]
        near = difflib.get_close_matches(about, meant, n=1, cutoff=0.0)
        return "wrong_topic", f"{sender} signalled {about}, not {near[0] if near else ' or '.join(meant)}"
    text = f"{sender}'s signal to {about} was refused: {refusal(event)}"
    if event.reason == "no_grant":
        return "no_grant", text
    names = {
        "invalid_payload": "refused_by_schema",
        "bad_payload": "malformed",
        "payload_too_large": "malformed",
        "retained_not_allowed": "retained",
        "not_found": "no_such_key",
    }
    return names.get(event.result, event.result), text


def _taken_away(seen: Seen, event: AuditEvent) -> tuple[str, str] | None:
    """Name what an operator took from a device, unless it was given back since."""
    device, did = event.result, event.action.partition(".")[2]
    if _standing(seen, device, None) is not event and did != "ungrant":
        return None
    told = {
        "revoke": f"all tokens of {device} were revoked by {event.principal}",
        "disable": f"{device} was disabled by {event.principal}",
        "delete": f"{device} was deleted by {event.principal}",
        "ungrant": f"{event.principal} took the grant {event.reason} from {device}",
    }
    return {"revoke": "revoked", "disable": "disabled", "delete": "deleted", "ungrant": "no_grant"}[did], told[did]


def _standing(seen: Seen, device: str, until: datetime | None) -> AuditEvent | None:
    """Find what keeps a device out, of what an operator did to it before `until`; None if nothing does."""
    out: AuditEvent | None = None
    for found in seen.events:
        event = found.event
        if event is None or event.result != device or (until is not None and found.at > until):
            continue
        did = event.action.partition(".")[2]
        if event.action in {"device.revoke", "device.disable", "device.delete"}:
            out = event
        elif out is not None and did in _GIVEN_BACK[out.action.partition(".")[2]]:
            out = None
    return out


def _from_steps(seen: Seen) -> Iterator[Cause]:
    for at, action, text in seen.steps:
        if action in {"step.failed", "step.skipped"}:
            yield Cause(
                cause=action.replace(".", "_"), text=text, hint=f"`wayside run show {seen.run}` shows each step", at=at
            )


def _from_definition(seen: Seen) -> Iterator[Cause]:
    """Name a key that the workflow does not have: it comes first, for nothing else helps."""
    if seen.undeclared:
        workflow, key = seen.keys[0]
        text = f"the workflow {workflow} has no key {key}"
        yield Cause(cause="no_such_key", text=text, hint=seen.undeclared, at=datetime.max.replace(tzinfo=UTC))


def _nothing_at_all(seen: Seen) -> Iterator[Cause]:
    """Say what is missing when no event says that anything went wrong."""
    started = any(event.action == "run.created" for event in _all(seen))
    if seen.keys and not started and not seen.run and _open_wait(seen) is None:
        workflow = seen.keys[0][0]
        at = datetime.min.replace(tzinfo=UTC)
        yield Cause(
            cause="never_started", text=f"no run of {workflow} was started", hint=_HINTS["never_started"], at=at
        )


def _hint(cause: str, event: AuditEvent) -> str:
    name = (event.principal or event.result).partition(":")[2]
    match cause:
        case "no_grant":
            return f"`wayside device grant {name or 'NAME'} signal:{event.workflow or 'WORKFLOW'}/{event.key or 'KEY'}`"
        case "revoked":
            return f"`wayside device rotate {event.result.partition(':')[2]}` gives it a token again"
        case "disabled":
            return f"`wayside device enable {event.result.partition(':')[2]}`"
        case "run_failed":
            return f"`wayside run show {event.run}` names the step that failed"
        case _:
            return _HINTS.get(cause, "")
