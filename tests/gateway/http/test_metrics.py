"""Proves that what is counted is told to Prometheus, to those who may, without a name of anybody or anything in it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from gateway.metrics import Spread
from tests.gateway.http.conftest import Door

DEPLOY = Path(__file__).parents[3] / "deploy"
DASHBOARD = (DEPLOY / "grafana" / "wayside.json").read_text()
ALERTS = (DEPLOY / "prometheus" / "alerts.yaml").read_text()


async def scrape(door: Door) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Read all samples, by name and labels."""
    async with await door.operator("read", name="prometheus") as client:
        answer = await client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


async def played(door: Door) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Signal in several ways, and read what came of it."""
    async with await door.device("signal:front-door/verdict", name="camera") as camera:
        path = "/api/v1/signals/front-door/verdict"
        assert (await camera.post(path, content='{"who": "known"}')).status_code == 202  # held
        run = await door.start()  # takes it, and waits for the next key
        assert (await camera.post(path, content='{"who": "nobody"}')).status_code == 422
        assert (await camera.post(f"{path}-2", content="{}")).status_code == 404
    async with door.client("wsd_wrong") as stranger:
        assert (await stranger.get("/api/v1/waits")).status_code == 401
    await door.services.engine.cancel(run, by="user:test")
    await door.services.engine.settled(run)
    await door.services.audit.written()
    return await scrape(door)


async def test_what_happened_is_counted(door: Door) -> None:
    found = await played(door)
    assert found["wayside_signals_total", (("door", "http"), ("result", "held"))] == 1
    assert found["wayside_signals_total", (("door", "http"), ("result", "invalid_payload"))] == 1
    assert found["wayside_signals_total", (("door", "http"), ("result", "not_found"))] == 1
    assert found["wayside_signal_seconds_count", (("door", "http"),)] == 3
    assert found["wayside_logins_total", (("door", "http"), ("result", "bad_credentials"))] == 1
    assert found["wayside_runs_started_total", ()] == 1
    assert found["wayside_runs_ended_total", (("result", "cancelled"),)] == 1
    assert found["wayside_waits_settled_total", (("result", "accepted"),)] == 1
    assert found["wayside_store_write_seconds_count", ()] >= 1
    assert found["wayside_devices", (("state", "active"),)] == 1
    assert found["wayside_workflows", ()] == 2
    assert found["wayside_waits_overdue", ()] == 0
    assert found["wayside_ready", (("part", "store"),)] == 1


async def test_no_device_key_run_or_workflow_is_a_label(door: Door) -> None:
    found = await played(door)
    names = {name for _, labels in found for name, _ in labels}
    assert names <= {"door", "result", "state", "part", "le"}
    values = {value for _, labels in found for name, value in labels if name != "le"}
    assert not {value for value in values if "camera" in value or "door-" in value or len(value) > 24}


@pytest.mark.parametrize("opened", [False, True])
async def test_it_takes_an_operator_s_token_unless_it_is_said_to_be_open(door: Door, opened: bool) -> None:
    door.services.settings = msgspec.structs.replace(door.services.settings, metrics_open=opened)
    async with door.client(None) as anybody, await door.device("read:front-door") as device:
        assert (await anybody.get("/metrics")).status_code == (200 if opened else 401)
        assert (await device.get("/metrics")).status_code == (200 if opened else 403)


@pytest.mark.parametrize("text", [DASHBOARD, ALERTS], ids=["dashboard", "alerts"])
async def test_every_metric_that_the_dashboard_and_the_alerts_name_exists(door: Door, text: str) -> None:
    there = {name for name, _ in await played(door)}
    named = set(re.findall(r"\bwayside_[a-z_]+", text))
    assert len(named) > 5
    always = {"wayside_audit_lost_total", "wayside_steps_ended_total"}
    assert named - there - always == set()


def test_the_dashboard_draws_every_panel_from_a_query() -> None:
    dashboard = json.loads(DASHBOARD)
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"]) > 15
    for panel in dashboard["panels"]:
        assert panel["targets"], panel["title"]
        assert all(target["expr"].count("(") == target["expr"].count(")") for target in panel["targets"])


def test_every_alert_says_what_is_wrong_and_what_to_do() -> None:
    (group,) = yaml.safe_load(ALERTS)["groups"]
    names = [rule["alert"] for rule in group["rules"]]
    assert {"WaysideSweepLate", "WaysideStoreSlow", "WaysideBridgeDown", "WaysideRefusalsRising"} <= set(names)
    assert "WaysideWaitsOverdue" in names
    for rule in group["rules"]:
        assert rule["expr"]
        assert set(rule["annotations"]) == {"summary", "action"}
        assert rule["labels"]["severity"] in {"critical", "warning"}


def test_a_histogram_counts_what_is_not_above_each_bound() -> None:
    spread = Spread((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        spread.add(value)
    assert spread.cumulative() == [("1.0", 2.0), ("2.0", 3.0), ("+Inf", 4.0)]
    assert spread.total == 12.0
