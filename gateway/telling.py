"""One audit event as a sentence for people."""

from __future__ import annotations

from typing import Final

from gateway.audit import AuditEvent

_DOORS: Final = {"mqtt": "MQTT", "bridge": "the bridge", "http": "HTTP", "ws": "WebSocket", "cli": "a command"}
# Why a signal or a run was refused, by the name of the answer.
REFUSALS: Final = {
    "bad_payload": "the payload is not a JSON object as it should be",
    "bad_topic": "the topic, or a name in it, is none that means anything here",
    "unauthorized": "its credential is not good any more",
    # Whom the answer was for is not told this; the reason that is written down beside it says which it was.
    "not_found": "there is no such key",
    "no_open_wait": "no wait was open, and the step takes no early signals",
    "early_signal_held": "an earlier signal was held for the next wait already",
    "already_settled": "the wait had its signal, or its end, already",
    "wait_closed": "the wait was closed",
    "stale": "it had lain in the broker for too long",
    "payload_too_large": "the payload is over 16 KiB",
    "invalid_payload": "the step's schema refuses the payload",
    "signal_id_reused": "its id was used for another payload",
    "retained_not_allowed": "retained messages settle no wait",
    "rate_limited": "it was over a rate",
    "contended": "too many acted on the key at once",
    "store_unavailable": "the store did not answer",
}
_NOT_FOUND: Final = {
    "no_grant": "it has no grant for that",
    "no_wait": "there is no such wait",
    "no_workflow": "there is no such workflow",
    "no_trigger": "the workflow has no `trigger: {topic: true}`, which a device needs to start a run",
}
_LOGINS: Final = {
    "bad_credentials": "wrong name or token",
    "disabled": "the device is disabled",
    "banned": "it was kept out for a while, for too many messages",
    "rate": "too many attempts",
    "unavailable": "the store did not answer",
}
_SKIPPED: Final = {
    "too_large": "it is larger than the broker takes",
    "bad_topic": "it has a topic that nobody may publish to",
    "space_in_topic": "its topic has a space, over which the broker ends the connection",
    "connection_lost": "the broker ended the connection over it, again and again",
    "expired": "it was too old by the time the broker was there",
}
_DEEDS: Final = {
    "add": "added",
    "grant": "gave a grant to",
    "ungrant": "took a grant from",
    "rotate": "gave another token to",
    "rotate_finish": "ended the older token of",
    "revoke": "ended all tokens of",
    "disable": "disabled",
    "enable": "enabled",
    "delete": "deleted",
    "limit": "changed the limits of",
}


def refusal(event: AuditEvent) -> str:
    """Say why a request was refused."""
    if event.result == "not_found" and event.reason in _NOT_FOUND:
        return _NOT_FOUND[event.reason]
    if event.result == "rate_limited":
        return f"it was over its rate of {event.reason or 'messages'}"
    return REFUSALS.get(event.result, event.result)


def key_of(event: AuditEvent) -> str:
    return f"{event.workflow}/{event.key}" if event.key else event.workflow or f"wait {event.wait}"


def step_of(event: AuditEvent) -> str:
    return f"step {event.job}.{event.step} of run {event.run}" if event.step else f"run {event.run}"


def sentence(event: AuditEvent) -> str:
    """Tell one event in a sentence, without its time."""
    kind, _, did = event.action.partition(".")
    told = {"signal": _signal, "wait": _wait, "run": _run}.get(kind)
    if told is not None:
        return told(event, did)
    if kind in {"device", "operator"} and event.result.startswith(("device:", "user:")):
        detail = f" ({event.reason})" if event.reason else ""
        return f"{event.principal} {_DEEDS.get(did, did)} {event.result}{detail}"
    if event.action == "login.refused":
        why = _LOGINS.get(event.result, event.result)
        return f"{event.principal} was not let in by {_door(event)}: {why}{_times(event)}"
    if event.action == "topic.refused":
        return f"{event.principal} published to a topic that means nothing here{_times(event)}"
    if event.action == "command.skipped":
        return f"the command of {step_of(event)} did not go to the broker: {_SKIPPED.get(event.reason, event.reason)}"
    if event.action == "config.workflow":
        return _edit(event)
    return " ".join(part for part in (event.principal, event.action, event.result, event.reason) if part)


def _signal(event: AuditEvent, did: str) -> str:
    receipt = f"receipt {event.receipt}"
    sender, how = event.principal or "the sender", f"{key_of(event)} by {_door(event)}"
    match did:
        case "delivered":
            return f"{sender} signalled {how}, and it was delivered ({receipt})"
        case "held":
            return f"{sender} signalled {how} before a wait was open, and it was held ({receipt})"
        case "taken":
            return f"{step_of(event)} took the signal ({receipt})"
        case "expired":
            return f"the held signal for {key_of(event)} expired: no wait opened in time ({receipt})"
        case "duplicate":
            return f"{sender} sent its signal to {key_of(event)} again; it counted once ({receipt})"
        case _:
            return f"{sender}'s signal to {how} was refused: {refusal(event)}{_times(event)}"


def _wait(event: AuditEvent, did: str) -> str:
    where = step_of(event)
    if did == "opened":
        return f"{where} began to wait for {key_of(event)}"
    if did == "key_held":
        return f"{where} could not wait for {key_of(event)}: another run's step held the key"
    match event.result:
        case "accepted":
            return f"the wait of {where} for {key_of(event)} got its signal (receipt {event.receipt})"
        case "timed_out":
            return f"the wait of {where} for {key_of(event)} ended without a signal: its time was over"
        case _:
            return f"the wait of {where} for {key_of(event)} was cancelled ({event.reason or 'by request'})"


def _run(event: AuditEvent, did: str) -> str:
    run, by = f"run {event.run} of {event.workflow}", f" by {event.principal}" if event.principal else ""
    match did:
        case "created" | "requested":
            return f"{run} was {'started' if did == 'created' else 'asked for'}{by}"
        case "ended":
            return f"{run} ended: {event.result}" + (f" ({event.reason})" if event.reason else "")
        case "refused":
            return f"{event.principal} could not start {event.workflow}: {refusal(event)}{_times(event)}"
        case "suspended":
            return f"{run} suspended until something comes for it"
        case "resumed":
            return f"{run} went on"
        case "damaged":
            return f"{run} could not be driven ({event.reason})"
        case _:
            return f"{run} was {did}{by}"


def _edit(event: AuditEvent) -> str:
    if event.result == "broken":
        return f"the definition of {event.workflow} was edited and has problems; what was in force before stays"
    return f"the definition of {event.workflow} was {event.result}"


def _door(event: AuditEvent) -> str:
    return _DOORS.get(event.door, "this gateway")


def _times(event: AuditEvent) -> str:
    return f", {event.count} more times in {event.seconds:.0f} s" if event.seconds else ""
