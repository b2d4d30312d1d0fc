"""Edits of definitions: taken up as they are found, told in the log and written down."""

from __future__ import annotations

from collections.abc import Iterable

from engine.workflows.loading import Catalog, Change
from gateway import logs
from gateway.audit import Audit, Entry

_log = logs.get_logger("gateway")


def reread(catalog: Catalog, audit: Audit) -> None:
    """Take up what was edited since the last time; a few microseconds a file while nothing was."""
    changes = catalog.reload()
    tell_changes(changes)
    for change in changes:
        audit.add(Entry(action="config.workflow", result=change.kind, workflow=change.workflow))


def tell_changes(changes: Iterable[Change]) -> None:
    """Say in the log which definitions came, went or broke."""
    for change in changes:
        if change.kind == "broken":
            first = change.problems[0] if change.problems else None
            line = first.line if first else 0
            _log.warning("workflow broken", file=change.filename, workflow=change.workflow, line=line)
        else:
            _log.info(f"workflow {change.kind}", file=change.filename, workflow=change.workflow)
