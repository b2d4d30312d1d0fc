"""Proves that settings which can change while a gateway serves do, that the rest is named, and mistakes change none."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway import logs
from gateway.audit import Entry
from gateway.config import load
from gateway.reload import reread
from gateway.settings import Settings

BEFORE = 'mqtt = "127.0.0.1:1"\n[limits]\nsignals_per_second = 5\n'

audited: list[Entry] = []


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    logs.configure(console=False, stream=stream)
    yield stream
    logs.configure(console=False)


def changed(tmp_path: Path, after: str) -> tuple[Settings, list[Settings]]:
    """Serve with `BEFORE`, then write `after` and reread."""
    file = tmp_path / "wayside.toml"
    file.write_text(BEFORE)
    applied: list[Settings] = []
    audited.clear()

    def read() -> object:
        return load({"data": str(tmp_path)}, environment={})

    before = load({"data": str(tmp_path)}, environment={}).settings
    file.write_text(after)
    found = reread(before, read, apply=applied.append, log=logs.get_logger("gateway"), note=audited.append)  # type: ignore[arg-type]
    return found, applied


def lines(log: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in log.getvalue().splitlines()]


def test_limits_log_level_and_retention_change_at_once(tmp_path: Path, log: io.StringIO) -> None:
    after = 'mqtt = "127.0.0.1:1"\nmetrics_open = true\n[limits]\nsignals_per_second = 50\n[log]\nlevel = "debug"\n'
    settings, applied = changed(tmp_path, after + '[audit]\nretention = "90d"\n')
    assert applied == [settings]
    assert (settings.limits.signals_per_second, settings.log.level, settings.metrics_open) == (50.0, "debug", True)
    assert settings.audit.retention == 90 * 86_400
    assert lines(log)[-1]["taken"] == ["metrics_open", "limits.signals_per_second", "log.level", "audit.retention"]


def test_what_takes_a_restart_is_named_and_stays(tmp_path: Path, log: io.StringIO) -> None:
    settings, applied = changed(tmp_path, BEFORE.replace("127.0.0.1:1", "127.0.0.1:2") + '[engine]\nretention = "1d"\n')
    assert applied == []
    assert settings.mqtt.port == 1
    assert [(entry.action, entry.result, entry.reason) for entry in audited] == [
        ("config.reread", "takes_restart", "mqtt"),
        ("config.reread", "takes_restart", "engine.retention"),
    ]
    (warning,) = [line for line in lines(log) if line["level"] == "warning"]
    assert warning["settings"] == ["mqtt", "engine.retention"]


def test_settings_with_problems_change_nothing(tmp_path: Path, log: io.StringIO) -> None:
    settings, applied = changed(tmp_path, 'mqtt = "nowhere"\n[limits]\nsignals_per_second = 0\n')
    assert applied == []
    assert settings.limits.signals_per_second == 5.0
    assert [(entry.result, entry.count) for entry in audited] == [("refused", 2)]
    problems = [str(line["problem"]) for line in lines(log) if line["level"] == "error"]
    assert [problem.rsplit("/", 1)[1].split(": ")[0] for problem in problems] == ["wayside.toml:1", "wayside.toml:3"]
