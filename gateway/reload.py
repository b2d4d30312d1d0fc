"""SIGHUP: the settings are read again; what can change while the gateway serves does, and the rest is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from engine.errors import BadInput
from gateway import logs
from gateway.audit import Entry
from gateway.config import Loaded
from gateway.settings import SettingPath, Settings, is_table, known

REREAD: Final = "config.reread"
# Settings, or whole tables, that are taken up at once.
AT_ONCE: Final[frozenset[SettingPath]] = frozenset({
    ("limits",),
    ("log", "level"),
    ("audit", "retention"),
    ("metrics_open",),
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reread:
    """The settings that are in force now, which settings changed with them, and which wait for a restart."""

    settings: Settings
    taken: tuple[str, ...]
    later: tuple[str, ...]


def differences(before: Settings, after: Settings) -> list[SettingPath]:
    """Name the settings that differ."""
    return [
        path for path, kind in known().items() if not is_table(kind) and _value(before, path) != _value(after, path)
    ]


def merge(before: Settings, after: Settings) -> Reread:
    """Take over what can change at once."""
    changed = differences(before, after)
    taken = [path for path in changed if path in AT_ONCE or path[:1] in AT_ONCE]
    merged = msgspec.structs.replace(
        before,
        limits=after.limits,
        log=msgspec.structs.replace(before.log, level=after.log.level),
        audit=msgspec.structs.replace(before.audit, retention=after.audit.retention),
        metrics_open=after.metrics_open,
    )
    later = [path for path in changed if path not in taken]
    return Reread(merged, tuple(map(".".join, taken)), tuple(map(".".join, later)))


def reread(
    before: Settings,
    load: Callable[[], Loaded],
    *,
    apply: Callable[[Settings], None],
    log: logs.Logger,
    note: Callable[[Entry], None],
) -> Settings:
    """Read the settings again and say in both logs what came of it; what has problems changes nothing."""
    try:
        loaded = load()
    except BadInput as fault:
        for problem in fault.problems or (fault.message,):
            log.error("the settings that are in force stay", problem=problem)  # noqa: TRY400  each is told
        note(Entry(action=REREAD, result="refused", count=max(1, len(fault.problems))))
        return before
    for warning in loaded.warnings:
        log.warning(warning)
    found = merge(before, loaded.settings)
    if found.taken:
        apply(found.settings)
    if found.later:
        log.warning("these settings take a restart", settings=list(found.later))
    log.info("settings reread", taken=list(found.taken))
    for name in found.taken:
        note(Entry(action=REREAD, result="taken", reason=name))
    for name in found.later:
        note(Entry(action=REREAD, result="takes_restart", reason=name))
    return found.settings


def _value(settings: Settings, path: SettingPath) -> object:
    found: object = settings
    for name in path:
        found = getattr(found, name)
    return found
