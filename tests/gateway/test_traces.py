"""Proves that a trace goes from a signal's arrival to the run that went on, under its receipt, and holds no payload."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from devices import operations
from engine.clock import SystemSource
from gateway import traces
from gateway.app import compose
from gateway.auth import Principal
from gateway.config import load
from gateway.deliver import Origin
from gateway.services import Services
from gateway.traces import Traces, _signal, _trace
from tests.gateway.http.conftest import DOOR, QUICK

MARKER = "marker-5d21"
HTTP = Origin(door="http")


@dataclass
class Collector:
    """Takes spans over HTTP, or refuses them."""

    status: int = 200
    bodies: list[dict[str, Any]] = field(default_factory=list)
    came: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                assert head.startswith("POST /v1/traces HTTP/1.1")
                length = re.search(r"content-length: (\d+)", head, re.IGNORECASE)
                assert length is not None
                self.bodies.append(json.loads(await reader.readexactly(int(length[1]))))
                writer.write(f"HTTP/1.1 {self.status} X\r\nContent-Length: 2\r\n\r\n{{}}".encode())
                self.came.set()
        writer.close()

    def decoded(self) -> list[Any]:
        """Read what was posted with OpenTelemetry's own types, which refuse what they do not know; give the spans."""
        return [
            span
            for body in self.bodies
            for resource in json_format.ParseDict(_protobuf_s_own(body), ExportTraceServiceRequest()).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def spans(self) -> dict[str, dict[str, Any]]:
        found = [span for body in self.bodies for span in body["resourceSpans"][0]["scopeSpans"][0]["spans"]]
        return {f"{span['name']} {_told(span).get('result', '')}".strip(): span for span in found}


def _protobuf_s_own(document: Any) -> Any:
    """Write ids as protobuf's JSON has them: OTLP says hexadecimal where that says base64."""
    if isinstance(document, list):
        return [_protobuf_s_own(it) for it in document]
    if not isinstance(document, dict):
        return document
    return {
        name: base64.b64encode(bytes.fromhex(it)).decode()
        if name.lower().endswith(("traceid", "spanid"))
        else _protobuf_s_own(it)
        for name, it in document.items()
    }


def _told(span: dict[str, Any]) -> dict[str, str]:
    return {it["key"].removeprefix("wayside."): it["value"]["stringValue"] for it in span["attributes"]}


@pytest.fixture
async def collector(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Collector, str]]:
    monkeypatch.setattr(traces, "FLUSH_SECONDS", 0.0)
    found = Collector()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    async with server:
        yield found, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@contextlib.asynccontextmanager
async def traced(tmp_path: Path, url: str, store: str = "memory:") -> AsyncIterator[tuple[Services, Principal]]:
    """One instance that traces, and a device that may signal; what is left is sent at the end."""
    (tmp_path / "workflows").mkdir(parents=True)
    (tmp_path / "workflows" / "front-door.yaml").write_text(DOOR)
    (tmp_path / "workflows" / "quick.yaml").write_text(QUICK)
    settings = load({"data": str(tmp_path), "store": store, "trace": url}, environment={}).settings
    async with compose(settings, serves=True) as services:
        assert services.traces is not None
        name = "camera" if services.registry.device("camera") is None else "other"
        issued = await operations.add(services.registry, name, by="user:test", grants=["signal:front-door"])
        sending = asyncio.create_task(services.traces.run())
        yield services, Principal("device", name, issued.entry.secrets[0].since)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def test_a_delivered_signal_and_the_run_that_goes_on_are_one_trace(
    collector: tuple[Collector, str], tmp_path: Path
) -> None:
    found, url = collector
    async with traced(tmp_path, url) as (services, camera):
        run = await services.engine.start_run("front-door", {}, by="user:test")
        await services.engine.settled(run)
        raw = json.dumps({"who": "known", "note": MARKER}).encode()
        sent = await services.deliver.signal(camera, HTTP, workflow="front-door", key="verdict", raw=raw)
        await services.engine.settled(run)
    assert sent.words.receipt is not None
    receipt, spans = sent.words.receipt.id, found.spans()
    signal, went_on = spans["signal delivered"], spans["run suspended"]
    assert (signal["traceId"], signal["spanId"]) == (_trace(receipt), _signal(receipt))
    assert _told(signal) | {"wait": ""} == {
        "door": "http", "workflow": "front-door", "key": "verdict", "run": run, "wait": "",
        "receipt": receipt, "result": "delivered", "principal": "device:camera",
    }  # fmt: skip
    assert (went_on["traceId"], went_on["parentSpanId"]) == (signal["traceId"], signal["spanId"])
    assert int(signal["startTimeUnixNano"]) <= int(signal["endTimeUnixNano"])
    assert found.bodies[0]["resourceSpans"][0]["resource"]["attributes"][0]["value"] == {"stringValue": "wayside"}
    assert MARKER not in json.dumps(found.bodies)


async def test_a_collector_reads_what_is_posted(collector: tuple[Collector, str], tmp_path: Path) -> None:
    found, url = collector
    async with traced(tmp_path, url) as (services, camera):
        run = await services.engine.start_run("quick", {"good": False}, by="user:test")
        await services.engine.settled(run)
        await services.deliver.signal(camera, HTTP, workflow="front-door", key="verdict", raw=b'{"who":"known"}')
    spans = found.decoded()
    assert {(span.name, span.kind, span.status.code) for span in spans} == {
        ("run", Span.SPAN_KIND_INTERNAL, Status.STATUS_CODE_ERROR),
        ("step check", Span.SPAN_KIND_INTERNAL, Status.STATUS_CODE_ERROR),
        ("signal", Span.SPAN_KIND_CONSUMER, Status.STATUS_CODE_UNSET),
    }
    assert {(len(span.trace_id), len(span.span_id), len(span.parent_span_id)) for span in spans} == {
        (16, 8, 0), (16, 8, 8),
    }  # fmt: skip
    for span in spans:
        assert 0 <= span.end_time_unix_nano - span.start_time_unix_nano < 60e9
        assert all(it.key.startswith("wayside.") and it.value.string_value for it in span.attributes)


async def test_a_run_that_goes_on_elsewhere_stays_in_the_trace_of_its_signal(
    collector: tuple[Collector, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, url = collector
    store = f"sqlite://{tmp_path}/shared.db"
    async with (
        traced(tmp_path / "here", url, store) as (here, camera),
        traced(tmp_path / "there", url, store) as (there, _),
    ):
        run = await here.engine.start_run("front-door", {}, by="user:test")
        await here.engine.settled(run)
        monkeypatch.setattr(here.engine, "_continue", lambda _: None)
        sent = await here.deliver.signal(camera, HTTP, workflow="front-door", key="verdict", raw=b'{"who":"known"}')
        await there.engine.resume(run)
        await there.engine.settled(run)
    assert sent.words.receipt is not None
    went_on = [span for span in found.decoded() if span.name == "run"]
    receipt = sent.words.receipt.id
    # What was under way as the sender ended may have been sent twice.
    ids = {(span.span_id, span.trace_id.hex(), span.parent_span_id.hex()) for span in went_on if span.parent_span_id}
    assert [one[1:] for one in ids] == [(_trace(receipt), _signal(receipt))]


async def test_a_held_signal_is_in_the_trace_of_the_run_that_takes_it_and_a_repeat_hangs_below_it(
    collector: tuple[Collector, str], tmp_path: Path
) -> None:
    found, url = collector
    async with traced(tmp_path, url) as (services, camera):
        raw = b'{"who":"known"}'
        held, _ = [
            await services.deliver.signal(camera, HTTP, workflow="front-door", key="verdict", raw=raw, signal_id="one")
            for _ in range(2)
        ]
        refused = await services.deliver.signal(camera, HTTP, workflow="front-door", key="verdict", raw=b"{")
        run = await services.engine.start_run("front-door", {}, by="user:test")
        await services.engine.settled(run)
    assert held.words.receipt is not None
    signals = [
        span
        for body in found.bodies
        for span in body["resourceSpans"][0]["scopeSpans"][0]["spans"]
        if span["name"] == "signal"
    ]
    first, again, wrong = signals
    assert first["spanId"] == again["parentSpanId"] == _signal(held.words.receipt.id)
    assert first["traceId"] == again["traceId"] == _trace(held.words.receipt.id)
    assert wrong["status"] == {"code": 2}
    assert _told(wrong)["result"] == refused.words.error == "bad_payload"
    assert wrong["traceId"] != first["traceId"]


async def test_a_run_that_no_signal_moved_has_a_trace_of_its_own_with_its_steps(
    collector: tuple[Collector, str], tmp_path: Path
) -> None:
    found, url = collector
    async with traced(tmp_path, url) as (services, _):
        run = await services.engine.start_run("quick", {"good": False}, by="user:test")
        await services.engine.settled(run)
    spans = found.spans()
    whole, step = spans["run failed"], spans["step check failed"]
    assert whole["traceId"] == step["traceId"] == _trace(run)
    assert step["parentSpanId"] == whole["spanId"]
    assert "parentSpanId" not in whole
    assert (_told(step)["job"], _told(step)["reason"], step["status"]) == ("main", "task_failed", {"code": 2})


async def test_a_collector_that_is_away_costs_its_spans_and_nothing_else(
    collector: tuple[Collector, str], tmp_path: Path
) -> None:
    found, url = collector
    found.status = 503
    made = Traces(url, "one", SystemSource())
    sending = asyncio.create_task(made.run())
    made.took("mqtt", 0.001)
    async with asyncio.timeout(20):
        await found.came.wait()
        found.status = 200
        found.came.clear()
        made.took("mqtt", 0.001)
        await found.came.wait()
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    assert len(found.bodies) == 2


def test_what_waits_for_a_collector_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "MAX_WAITING", 3)
    made = Traces("http://127.0.0.1:1", "one", SystemSource())
    for _ in range(5):
        made.took("mqtt", 0.0)
    assert (len(made._waiting), made._lost) == (3, 2)
