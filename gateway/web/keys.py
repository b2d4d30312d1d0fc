"""`/keys`: who holds each key, which signal is held for it, how its last wait ended; and sending a signal by hand."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import timedelta
from typing import Any, Final

from starlette.responses import Response

from engine.errors import StoreUnavailable
from gateway import history
from gateway.answers import TITLES, Words
from gateway.deliver import Delivered, Origin
from gateway.trail import Filter
from gateway.web.page import Visit, get, post
from gateway.web.samples import sample_text

REFUSALS_SINCE: Final = timedelta(days=1)
REFUSALS_SHOWN: Final = 500


async def keys(visit: Visit) -> Response:
    """Show every declared key."""
    if not visit.may("read"):
        return await visit.page("keys.html", groups=None, refusals_known=False, workflows=[])
    parts = visit.parts
    held: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for signal in (await parts.engine.waits())["pending"]:
        held[signal["workflow"], signal["key"]].append(signal)
    refusals = await _refusals(visit)
    groups: dict[str, list[dict[str, Any]]] = {}
    for key in await parts.engine.keys():
        at = (key["workflow"], key["key"])
        shown = key | {"held": held[at], "refusals": refusals.get(at, []), **_declared(visit, *at)}
        groups.setdefault(key["workflow"], []).append(shown)
    return await visit.page(
        "keys.html", groups=groups, refusals_known=visit.may("admin"), workflows=parts.engine.catalog.names()
    )


def _declared(visit: Visit, workflow: str, key: str) -> dict[str, Any]:
    definition = visit.parts.engine.catalog.get(workflow)
    keyed = definition.keyed(key) if definition is not None else None
    if keyed is None:
        return {"accept_early": None, "policy": "", "timeout": None, "step": "", "sample": "{}"}
    task = keyed.task
    return {
        "accept_early": task.accept_early,
        "policy": task.early_policy,
        "timeout": task.timeout,
        "step": keyed.step,
        "sample": sample_text(task.schema),
    }


async def _refusals(visit: Visit) -> dict[tuple[str, str], list[tuple[str, int]]]:
    """Count the refusals of the last day by key and reason, for whoever may read the audit log."""
    if not visit.may("admin"):
        return {}
    since = await visit.parts.engine.store.now() - REFUSALS_SINCE
    wanted = Filter(action="signal.refused", since=since)
    try:
        entries, _ = await history.newest(visit.parts.engine.store, wanted, limit=REFUSALS_SHOWN)
    except StoreUnavailable:
        return {}
    counted: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for entry in entries:
        if entry.event is not None:
            counted[entry.event.workflow, entry.event.key][entry.event.result] += entry.event.count
    return {at: counter.most_common() for at, counter in counted.items()}


async def send(visit: Visit) -> Response:
    """Send a signal as the operator, by key or by a wait's id."""
    form = visit.form
    origin = Origin(door="http", address=visit.caller.address)
    raw = form.get("payload", "").strip().encode()
    signal_id = form.get("id", "").strip() or None
    deliver, who = visit.parts.deliver, visit.session.principal
    if wait := form.get("wait", ""):
        delivered = await deliver.signal_wait(who, origin, wait=wait, raw=raw, signal_id=signal_id)
    else:
        workflow, key = form.get("workflow", ""), form.get("key", "")
        delivered = await deliver.signal(who, origin, workflow=workflow, key=key, raw=raw, signal_id=signal_id)
    text, detail = _in_words(delivered)
    back = form.get("back", "/keys")
    back = back if back.startswith("/") and not back.startswith("//") else "/keys"
    return visit.back(back, text, kind="good" if delivered.words.ok else "bad", detail=detail)


def _in_words(delivered: Delivered) -> tuple[str, str]:
    words = delivered.words
    if not words.ok:
        return refusal(words)
    receipt = f"Receipt {words.receipt.id}." if words.receipt is not None else ""
    match words.details.get("state"):
        case "held":
            return f"Held until {words.details.get('held_until')}.", receipt
        case "delivered":
            return f"Delivered to the step {words.details.get('step')}.", receipt
        case str(state):
            return f"It had been sent before: {state}.", receipt
        case _:
            return "Accepted.", receipt


def refusal(words: Words) -> tuple[str, str]:
    """Say why something was refused: a sentence, and the details."""
    details = []
    problems = words.details.get("problems")
    for problem in problems if isinstance(problems, list) else []:
        at = f"{problem['pointer'] or '/'}: {problem['rule']}" if isinstance(problem, dict) else str(problem)
        details.append(at)
    details += [f"{name}: {value}" for name, value in words.details.items() if isinstance(value, str | int)]
    return f"Refused: {TITLES[words.error][0].lower()}{TITLES[words.error][1:]}.", "; ".join(details)


ROUTES: Final = [get("/keys", keys), post("/send", send)]
