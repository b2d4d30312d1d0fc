"""The story of one signal, run or key, told from the audit log: what happened in order, and why nothing came of it.

Gathering reads; telling and judging are pure functions of events.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from devices.grants import may_signal
from engine.clock import rfc3339
from engine.errors import BadInput, NotFound, WaysideError
from engine.names import is_name, is_record_id
from engine.service import Engine
from engine.store.base import Store
from engine.workflows.loading import Catalog
from gateway import trail
from gateway.audit import AuditEvent
from gateway.causes import Cause, Seen, causes_of
from gateway.services import Services
from gateway.telling import sentence

Kind = Literal["receipt", "run", "key"]
DEFAULT_SECONDS: Final = 7 * 86_400.0
MAX_EVENTS: Final = 5_000
MAX_PAGES: Final = 200
_BEFORE: Final = timedelta(hours=1)
_AROUND: Final = ("login.refused", "topic.refused", "device.")
_OF_WORKFLOW: Final = ("run.", "config.workflow")


@dataclass(slots=True, kw_only=True)
class Story:
    """A story. `told` is in the order of time; `causes` are what stood in the way, the latest first."""

    about: str
    kind: Kind
    told: list[tuple[datetime, str, str]] = field(default_factory=list)  # when, action, text
    causes: list[Cause] = field(default_factory=list)
    conclusion: str = ""

    def view(self) -> dict[str, Any]:
        """Give the story as JSON-ready fields."""
        return {
            "about": self.about,
            "kind": self.kind,
            "story": [{"time": rfc3339(at), "action": action, "text": text} for at, action, text in self.told],
            "causes": [{"cause": it.cause, "text": it.text, "hint": it.hint} for it in self.causes],
            "conclusion": self.conclusion,
        }


async def tell(parts: Services, about: str, *, seconds: float | None = None) -> Story:
    """Tell the story of a receipt, a run, or a key (`workflow/key`, or the key alone where one workflow has it).

    It looks back over `seconds`, a week if nothing else is said, or to a run's beginning. Raises `BadInput` for what is
    none of these and `NotFound` when nothing is known of it.
    """
    store = parts.engine.store
    now = await store.now()
    since = now - timedelta(seconds=DEFAULT_SECONDS if seconds is None else seconds)
    if not is_record_id(about):
        return await _of_key(parts, about, *_key_named(parts.engine.catalog, about), since)
    run = await _run(parts.engine, about)
    if run is not None:
        since = min(since, datetime.fromisoformat(run["created"]) - _BEFORE)
    own = await _read(store, trail.Filter(run=about, since=since)) if run is not None else []
    if run is not None or (own := await _read(store, trail.Filter(run=about, since=since))):
        return await _of_run(parts, about, run, own, since)
    own = await _read(store, trail.Filter(receipt=about, since=since))
    if not own:
        raise NotFound(
            f"nothing is written down of {about}",
            hint="it is a receipt's or a run's id, or workflow/key; --since 30d looks further back",
        )
    return await _of_receipt(parts, about, own)


async def _of_key(parts: Services, about: str, workflow: str, key: str, since: datetime) -> Story:
    seen = await _around(parts, [(workflow, key)], since, None)
    definition = parts.engine.catalog.get(workflow)
    if not seen.events and definition is None:
        raise NotFound(f"nothing is written down of {workflow}/{key}", hint="`wayside workflow list` names the keys")
    if definition is not None and definition.keyed(key) is None:
        hint = _keys_there_are(workflow, key, definition.keys())
        # Whoever mistyped a key is told so; of one that was signalled, or was declared once, there is a story.
        if not any((e.workflow, e.key) == (workflow, key) for e in _events(seen.events)):
            raise NotFound(f"the workflow {workflow} has no key {key}", hint=hint)
        seen.undeclared = hint
    return _judged(Story(about=about, kind="key"), seen)


async def _of_run(
    parts: Services, about: str, run: dict[str, Any] | None, own: list[trail.Found], since: datetime
) -> Story:
    keys = list(dict.fromkeys((e.workflow, e.key) for e in _events(own) if e.key))
    if not keys and run is not None:
        definition = parts.engine.catalog.get(run["workflow"])
        keys = [(run["workflow"], key) for key in (definition.keys() if definition is not None else ())]
    begun = min([own[0].at if own else since, datetime.fromisoformat(run["created"]) if run else own[0].at])
    ended = datetime.fromisoformat(run["ended"]) + timedelta(minutes=10) if run and run["ended"] else None
    seen = await _around(parts, keys, begun - _BEFORE, ended, run=about)
    seen.run, seen.steps = about, _steps(run)
    return _judged(Story(about=about, kind="run"), seen)


async def _of_receipt(parts: Services, about: str, own: list[trail.Found]) -> Story:
    keys = list(dict.fromkeys((e.workflow, e.key) for e in _events(own) if e.key))
    last = max(found.at for found in own)
    seen = await _around(parts, keys, own[0].at - _BEFORE, last + _BEFORE)
    runs = {e.run for e in _events(own) if e.run}
    seen.events = [
        found
        for found in seen.events
        if found.event is not None
        and (
            found.event.receipt == about
            or found.event.run in runs - {""}
            or (found.event.action.startswith("wait.") and found.at >= own[0].at)
        )
    ]
    seen.receipt = about
    return _judged(Story(about=about, kind="receipt"), seen)


def _judged(story: Story, seen: Seen) -> Story:
    story.told = [
        (found.at, found.event.action, sentence(found.event)) for found in seen.events if found.event is not None
    ]
    story.told += seen.steps
    story.told.sort(key=lambda line: line[0])
    story.causes, story.conclusion = causes_of(seen)
    return story


# -- gathering -----------------------------------------------------------------------------------------------------


def _key_named(catalog: Catalog, about: str) -> tuple[str, str]:
    workflow, slash, key = about.partition("/")
    if slash and is_name(workflow) and is_name(key):
        return workflow, key
    if slash or not is_name(about):
        raise BadInput(f"{about!r} is no receipt, run or key", hint="a key is written workflow/key")
    found = [(name, about) for name in catalog.names() if _declares(catalog, name, about)]
    if not found and (definition := catalog.get(about)) is not None:
        found = [(about, key) for key in tuple(definition.keys())]
    if len(found) != 1:
        named = ", ".join("/".join(pair) for pair in found[:5])
        raise BadInput(
            f"{about} is the key of {'several workflows' if found else 'no workflow'}",
            hint=f"write workflow/key{': ' + named if named else ''}",
        )
    return found[0]


def _keys_there_are(workflow: str, key: str, keys: Sequence[str]) -> str:
    near = difflib.get_close_matches(key, keys, n=1)
    meant = f"did you mean {workflow}/{near[0]}? " if near else ""
    return f"{meant}its keys are: {', '.join(keys)}" if keys else "no step of it waits under a key"


def _declares(catalog: Catalog, workflow: str, key: str) -> bool:
    definition = catalog.get(workflow)
    return definition is not None and definition.keyed(key) is not None


async def _run(engine: Engine, run: str) -> dict[str, Any] | None:
    try:
        return await engine.run(run)
    except WaysideError:
        return None


def _steps(run: dict[str, Any] | None) -> list[tuple[datetime, str, str]]:
    """Tell a run's steps that ended; its waits are in the audit log already."""
    lines: list[tuple[datetime, str, str]] = []
    if run is None:
        return lines
    for job in run["jobs"]:
        for step in job["steps"]:
            name = f"step {job['name']}.{step['name']}"
            if step["ended"] and step["status"] == "failed":
                code = f" ({step['error']['code']})" if step["error"] else ""
                lines.append((datetime.fromisoformat(step["ended"]), "step.failed", f"{name} failed{code}"))
            elif step["status"] == "skipped" and (step["ended"] or run["ended"]):
                at = datetime.fromisoformat(step["ended"] or run["ended"])
                why = "its guard is true" if step["guarded"] else "what it depends on ended otherwise"
                lines.append((at, "step.skipped", f"{name} was skipped: {why}"))
            elif step["ended"] and step["status"] == "succeeded":
                lines.append((datetime.fromisoformat(step["ended"]), "step.ended", f"{name} succeeded"))
    return lines


async def _around(
    parts: Services, keys: Sequence[tuple[str, str]], since: datetime, until: datetime | None, *, run: str = ""
) -> Seen:
    """Gather what concerns some keys: their events, and those of the devices that signal them."""
    await parts.audit.written()
    allowed = {
        f"device:{device.name}"
        for device in parts.registry.devices()
        if any(may_signal(device.grants, workflow, key) for workflow, key in keys)
    }
    workflows = {workflow for workflow, _ in keys}
    everything = await _read(
        parts.engine.store,
        trail.Filter(since=since, until=until),
        lambda e: (
            (e.workflow, e.key) in keys
            or bool(run and e.run == run)
            or (e.action.startswith(_OF_WORKFLOW) and e.workflow in workflows and not run)
            or e.action.startswith(_AROUND)
            or e.action == "signal.refused"
        ),
    )
    senders = allowed | {
        e.principal for e in _events(everything) if (e.workflow, e.key) in keys and e.principal.startswith("device:")
    }
    kept = [
        found
        for found in everything
        if found.event is not None and _concerns(found.event, set(keys), senders, run, workflows)
    ]
    return Seen(keys=tuple(keys), senders=frozenset(senders), events=kept)


def _concerns(event: AuditEvent, keys: set[tuple[str, str]], senders: set[str], run: str, workflows: set[str]) -> bool:
    if (event.workflow, event.key) in keys or (run and event.run == run):
        return True
    if event.action.startswith(_AROUND) or (event.action == "signal.refused" and event.workflow):
        return event.principal in senders or (event.action.startswith("device.") and event.result in senders)
    return event.action.startswith(_OF_WORKFLOW) and event.workflow in workflows and not run


async def _read(
    store: Store, wanted: trail.Filter, keep: Callable[[AuditEvent], bool] | None = None
) -> list[trail.Found]:
    """Read what is wanted, of a long log the latest `MAX_EVENTS`."""
    found: list[trail.Found] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await trail.read(store, wanted, cursor=cursor, limit=trail.MAX_EVENTS)
        found += [it for it in page.entries if it.event is not None and (keep is None or keep(it.event))]
        found = found[-MAX_EVENTS:]
        cursor = page.cursor
        if not page.more:
            break
    return found


def _events(found: Iterable[trail.Found]) -> list[AuditEvent]:
    return [it.event for it in found if it.event is not None]
