"""Traces: from a signal's arrival to the run that went on with it, as spans over OTLP/HTTP (JSON), when asked for.

A trace is named after the signal's receipt, so that instances which share a store write into the same one; a run that
goes on elsewhere finds the receipt in what is recorded. What no signal moved has a trace of its own, named after the
run. Spans carry names and ids, as the audit log does: a payload does not fit in. A collector that is away costs nothing
but its spans.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict, deque
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from engine.clock import Source, wall_clock
from engine.events import EngineEvent
from gateway import logs
from gateway.audit import Entry

if TYPE_CHECKING:
    import httpx

FLUSH_SECONDS: Final = 1.0
EXPORT_SECONDS: Final = 5.0
MAX_WAITING: Final = 10_000
MAX_RUNS: Final = 10_000
BATCH: Final = 500
# OpenTelemetry's numbers: kinds of spans, and the status of one that failed.
_INTERNAL, _CONSUMER, _ERROR = 1, 5, 2
_ENDINGS: Final = frozenset({"run.suspended", "run.ended", "run.cancelled", "run.damaged"})
_FAILED: Final = frozenset({"failed", "timed_out", "cancelled", "refused"})

_entry: ContextVar[Entry | None] = ContextVar("entry", default=None)
_log = logs.get_logger("traces")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Begun:
    trace: str
    span: str
    parent: str
    at: int


class Traces:
    """Hears what the doors and the engine do, and sends it to a collector from a task of its own."""

    def __init__(self, endpoint: str, instance: str, source: Source) -> None:
        self._url = f"{endpoint.rstrip('/')}/v1/traces"
        self._source = source
        self._resource = _attributes({"service.name": "wayside", "service.instance.id": instance})
        self._waiting: deque[dict[str, Any]] = deque(maxlen=MAX_WAITING)
        self._more = asyncio.Event()
        self._receipts: OrderedDict[str, str] = OrderedDict()  # by run
        self._begun: OrderedDict[tuple[str, str], _Begun] = OrderedDict()  # by run and step
        self._lost = 0
        self._away = False

    # -- what is heard -----------------------------------------------------------------------------------------------

    def entered(self, entry: Entry) -> None:
        """Take an audit entry; for `Audit(counted=…)`. The signal that it is about has not been answered yet."""
        if entry.action.startswith("signal."):
            _entry.set(entry)

    def took(self, door: str, seconds: float) -> None:
        """Make the span of a signal that was answered `seconds` after it came; for `Deliver.took`."""
        entry, now = _entry.get(), _now()
        _entry.set(None)
        told = {"wayside.door": door}
        seed, failed = self._source.nonce(), False
        if entry is not None:
            told |= _named(workflow=entry.workflow, key=entry.key, run=entry.run, wait=entry.wait)
            told |= _named(receipt=entry.receipt, result=entry.result, principal=entry.principal)
            seed, failed = entry.receipt or seed, entry.action == "signal.refused"
        first = entry is not None and entry.receipt != "" and entry.action in {"signal.delivered", "signal.held"}
        span = _Begun(
            trace=_trace(seed),
            span=_signal(seed) if first else self._source.nonce()[:16],
            parent="" if first or entry is None or not entry.receipt else _signal(seed),
            at=now - round(seconds * 1e9),
        )
        self._end(span, "signal", told, kind=_CONSUMER, failed=failed)

    def note(self, event: EngineEvent) -> None:
        """Take what the engine does; this is one of its observers."""
        if event.action == "wait.settled" and event.receipt:
            self._receipts[event.run] = event.receipt
            _bound(self._receipts)
        elif event.action in {"run.created", "run.resumed"}:
            self._begin_run(event.run, event.receipt or self._receipts.get(event.run, ""))
        elif event.action == "step.started":
            run = self._begun.get((event.run, ""))
            trace, parent = (run.trace, run.span) if run is not None else (_trace(event.run), "")
            self._begin(event.run, f"{event.job}.{event.step}", trace, parent)
        elif event.action == "step.ended":
            self._close(event.run, f"{event.job}.{event.step}", event)
        elif event.action in _ENDINGS:
            self._close(event.run, "", event)
            self._receipts.pop(event.run, None)

    def _begin_run(self, run: str, receipt: str) -> None:
        self._begin(run, "", _trace(receipt or run), _signal(receipt) if receipt else "")

    def _begin(self, run: str, step: str, trace: str, parent: str) -> None:
        self._begun[run, step] = _Begun(trace=trace, span=self._source.nonce()[:16], parent=parent, at=_now())
        _bound(self._begun)

    def _close(self, run: str, step: str, event: EngineEvent) -> None:
        begun = self._begun.pop((run, step), None)
        if begun is None:
            return  # begun elsewhere, or before the gateway started
        result = event.result or event.action.partition(".")[2]
        told = _named(workflow=event.workflow, run=run, job=event.job, step=event.step, result=result)
        told |= _named(reason=event.reason)
        self._end(begun, f"step {event.step}" if step else "run", told, kind=_INTERNAL, failed=result in _FAILED)

    def _end(self, begun: _Begun, name: str, told: dict[str, str], *, kind: int, failed: bool) -> None:
        if len(self._waiting) == MAX_WAITING:
            self._lost += 1
        span: dict[str, Any] = {
            "traceId": begun.trace,
            "spanId": begun.span,
            "name": name,
            "kind": kind,
            "startTimeUnixNano": str(begun.at),
            "endTimeUnixNano": str(max(begun.at, _now())),
            "attributes": _attributes(told),
        }
        if begun.parent:
            span["parentSpanId"] = begun.parent
        if failed:
            span["status"] = {"code": _ERROR}
        self._waiting.append(span)
        self._more.set()

    # -- what is sent ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Send what has been heard, once a second at most, until cancelled; then what is left, once."""
        import httpx  # noqa: PLC0415  for those who trace alone

        async with httpx.AsyncClient(timeout=EXPORT_SECONDS, trust_env=False) as client:
            try:
                while True:
                    await self._more.wait()
                    await asyncio.sleep(FLUSH_SECONDS)
                    self._more.clear()
                    while self._waiting:
                        await self._send(client)
            finally:
                if self._waiting and not self._away:
                    await self._send(client)

    async def _send(self, client: httpx.AsyncClient) -> None:
        import httpx  # noqa: PLC0415

        spans = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
        scope = {"scope": {"name": "wayside"}, "spans": spans}
        body = {"resourceSpans": [{"resource": {"attributes": self._resource}, "scopeSpans": [scope]}]}
        try:
            answer = await client.post(self._url, json=body)
            failed = "" if answer.is_success else f"HTTP {answer.status_code}"
        except httpx.HTTPError as fault:
            failed = type(fault).__name__
        except asyncio.CancelledError:
            self._waiting.extendleft(reversed(spans))
            raise
        if failed:
            self._lost += len(spans)
        if failed and not self._away:
            _log.warning("spans are not taken", reason=failed)
        elif not failed and self._away:
            _log.info("spans are taken again", lost=self._lost)
        self._away = bool(failed)


def _now() -> int:
    return round(wall_clock().timestamp() * 1_000_000) * 1_000


def _trace(seed: str) -> str:
    return hashlib.sha256(f"trace\0{seed}".encode()).hexdigest()[:32]


def _signal(receipt: str) -> str:
    return hashlib.sha256(f"signal\0{receipt}".encode()).hexdigest()[:16]


def _named(**values: str) -> dict[str, str]:
    return {f"wayside.{name}": value for name, value in values.items() if value}


def _attributes(values: dict[str, str]) -> list[dict[str, Any]]:
    return [{"key": name, "value": {"stringValue": value}} for name, value in values.items()]


def _bound(kept: OrderedDict[Any, Any]) -> None:
    if len(kept) > MAX_RUNS:
        kept.popitem(last=False)
