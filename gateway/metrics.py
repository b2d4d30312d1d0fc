"""What is counted and measured, as Prometheus reads it: `wayside_*`, and never a device, a key or a run as a label.

Counting happens where signals pass, in plain numbers; text is made of them when somebody asks. What is counted is what
this instance did; what the store holds is the same at every instance.
"""

from __future__ import annotations

import asyncio
import contextlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from engine import names
from engine.errors import StoreUnavailable
from engine.events import EngineEvent
from gateway.audit import Entry

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from gateway.services import Services

# Seconds. A signal on a good disk takes a few milliseconds.
SIGNAL_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
# What the store is asked for at most when a gauge is read, and for how long the answer serves.
MAX_COUNTED: Final = 2_000
FRESH_SECONDS: Final = 10.0
OVERDUE: Final = timedelta(minutes=2)
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_READY_PARTS: Final = ("listener", "bridge", "store", "sweep")
_SIGNALS: Final = frozenset({"signal.delivered", "signal.held", "signal.duplicate", "signal.refused"})


class Spread:
    """A histogram: how many values were at most so large."""

    def __init__(self, buckets: Sequence[float] = SIGNAL_BUCKETS) -> None:
        self.buckets = tuple(buckets)
        self.counts = [0] * (len(buckets) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.buckets, value)] += 1
        self.total += value

    def cumulative(self) -> list[tuple[str, float]]:
        """Give each bucket's upper bound and how many values were not above it."""
        bounds, so_far, found = [*map(str, self.buckets), "+Inf"], 0, []
        for bound, count in zip(bounds, self.counts, strict=True):
            so_far += count
            found.append((bound, float(so_far)))
        return found


@dataclass(slots=True)
class Kept:
    """Counts of what the store holds, as of `at`."""

    at: float = -FRESH_SECONDS
    waits: int = 0
    held: int = 0
    overdue: int = 0


@dataclass(slots=True)
class Metrics:
    """One instance's numbers."""

    signals: Counter[tuple[str, str]] = field(default_factory=Counter)  # door, result
    signal_seconds: dict[str, Spread] = field(default_factory=dict)  # by door
    store_write_seconds: Spread = field(default_factory=Spread)
    logins: Counter[tuple[str, str]] = field(default_factory=Counter)  # door, result
    runs: Counter[str] = field(default_factory=Counter)  # by how they ended
    runs_started: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    waits: Counter[str] = field(default_factory=Counter)  # by how they were settled
    waits_opened: int = 0
    keys_held: int = 0
    early_expired: int = 0
    topics_refused: int = 0
    events: int = 0
    _kept: Kept = field(default_factory=Kept)

    # -- counting ----------------------------------------------------------------------------------------------------

    def entered(self, entry: Entry) -> None:
        """Count what the doors write down; for `Audit(counted=…)`."""
        self.events += 1
        action = entry.action
        if action in _SIGNALS:
            result = entry.result if action == "signal.refused" else action.partition(".")[2]
            self.signals[entry.door, result] += 1
        elif action == "login.accepted":
            self.logins[entry.door, "accepted"] += 1
        elif action == "login.refused":
            self.logins[entry.door, entry.result] += 1
        elif action == "topic.refused":
            self.topics_refused += 1

    def note(self, event: EngineEvent) -> None:
        """Count what the engine does; it is one of its observers."""
        match event.action:
            case "run.created":
                self.runs_started += 1
            case "run.ended":
                self.runs[event.result] += 1
            case "run.cancelled":
                self.runs["cancelled"] += 1
            case "step.ended":
                self.steps[event.result] += 1
            case "wait.opened":
                self.waits_opened += 1
            case "wait.settled":
                self.waits[event.result] += 1
            case "wait.key_held":
                self.keys_held += 1
            case "signal.expired":
                self.early_expired += 1
            case _:
                pass

    def took(self, door: str, seconds: float) -> None:
        """Measure one signal from its arrival to its answer."""
        spread = self.signal_seconds.get(door)
        if spread is None:
            spread = self.signal_seconds[door] = Spread()
        spread.add(seconds)

    # -- telling -----------------------------------------------------------------------------------------------------

    async def text(self, parts: Services) -> bytes:
        """Write everything down for Prometheus. The store is asked once in a while, and its silence is a metric too."""
        from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415  for those who ask alone

        await self._look(parts)
        missing = await parts.not_ready()
        families = list(self._families(parts, missing))
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Told(families))
        return generate_latest(registry)

    async def _look(self, parts: Services) -> None:
        store, now = parts.engine.store, parts.source.monotonic()
        if now - self._kept.at < FRESH_SECONDS:
            return
        with contextlib.suppress(StoreUnavailable, TimeoutError):
            async with asyncio.timeout(FRESH_SECONDS):
                late = (await store.now()) - OVERDUE
                self._kept = Kept(
                    now,
                    len(await store.list(names.WAITS, limit=MAX_COUNTED)),
                    len(await store.list(names.EARLY, limit=MAX_COUNTED)),
                    await self._overdue(parts, late),
                )

    async def _overdue(self, parts: Services, late: datetime) -> int:
        """Count deadlines that have passed a while ago and are still to be looked at: the sweeps do not keep up."""
        found = await parts.engine.store.list(names.DUE, limit=MAX_COUNTED)
        end = names.due(late, "", "")
        return sum(1 for record in found if record.key < end and names.parse_due(record.key)[0] == "deadline")

    def _families(self, parts: Services, missing: list[str]) -> Iterator[Metric]:
        yield from self._of_signals()
        yield from self._of_runs()
        yield from self._of_instance(parts, missing)
        yield from self._of_store(parts)

    def _of_signals(self) -> Iterator[Metric]:
        from prometheus_client.core import HistogramMetricFamily  # noqa: PLC0415

        yield counters(
            "wayside_signals", "Signals, by door and what came of them", ("door", "result"), self.signals.items()
        )
        spreads = HistogramMetricFamily(
            "wayside_signal_seconds", "From a signal's arrival to its durable answer", labels=["door"]
        )
        for door, spread in self.signal_seconds.items():
            spreads.add_metric([door], spread.cumulative(), spread.total)
        yield spreads
        yield counters(
            "wayside_logins",
            "Connections and requests, by door, let in or why not",
            ("door", "result"),
            self.logins.items(),
        )
        yield counter("wayside_topics_refused", "Messages to topics that mean nothing here", self.topics_refused)
        yield counter("wayside_early_signals_expired", "Held signals that no wait took in time", self.early_expired)

    def _of_runs(self) -> Iterator[Metric]:
        yield counter("wayside_runs_started", "Runs that were started here", self.runs_started)
        yield counters("wayside_runs_ended", "Runs that ended here, by how", ("result",), _single(self.runs))
        yield counters("wayside_steps_ended", "Steps that ended here, by how", ("result",), _single(self.steps))
        yield counter("wayside_waits_opened", "Waits that were opened here", self.waits_opened)
        yield counters("wayside_waits_settled", "Waits that were settled here", ("result",), _single(self.waits))
        yield counter("wayside_waits_key_held", "Steps that found their key held by another run", self.keys_held)

    def _of_instance(self, parts: Services, missing: list[str]) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415

        ready = GaugeMetricFamily("wayside_ready", "Whether a part is at work, as in /readyz", labels=["part"])
        for part in _READY_PARTS:
            if part != "bridge" or parts.settings.bridge.url is not None:
                ready.add_metric([part], 0.0 if part in missing else 1.0)
        yield ready
        engine = parts.engine
        swept = parts.source.monotonic() - engine.swept_at if engine.swept_at is not None else -1.0
        yield gauge("wayside_sweep_age_seconds", "Since the last sweep ended; -1 before the first", swept)
        yield gauge("wayside_connections", "MQTT connections to this instance", float(len(parts.connected())))
        devices = Counter(device.state for device in parts.registry.devices())
        states = GaugeMetricFamily("wayside_devices", "Devices, by state", labels=["state"])
        for state in ("active", "disabled"):
            states.add_metric([state], float(devices[state]))
        yield states
        problems = engine.catalog.problems()
        yield gauge("wayside_workflows", "Definitions in force", float(len(tuple(engine.catalog.names()))))
        broken = float(sum(1 for found in problems.values() if found))
        yield gauge("wayside_workflows_broken", "Files of definitions that have problems", broken)

    def _of_store(self, parts: Services) -> Iterator[Metric]:
        from prometheus_client.core import HistogramMetricFamily  # noqa: PLC0415

        writes = HistogramMetricFamily("wayside_store_write_seconds", "One durable write of audit events")
        writes.add_metric([], self.store_write_seconds.cumulative(), self.store_write_seconds.total)
        yield writes
        kept = self._kept
        yield gauge("wayside_waits_open", f"Open waits in the store, {MAX_COUNTED} at most", float(kept.waits))
        yield gauge("wayside_early_signals_held", f"Held signals in the store, {MAX_COUNTED} at most", float(kept.held))
        yield gauge(
            "wayside_waits_overdue",
            "Deadlines passed two minutes ago and not acted upon",
            float(kept.overdue),
        )
        yield counter("wayside_audit_events", "Audit events of this instance, coalesced ones included", self.events)
        yield gauge("wayside_audit_waiting", "Audit events that are not stored yet", float(parts.audit.waiting))
        yield counter("wayside_audit_lost", "Audit events lost while the store was away", parts.audit.lost)


class _Told:
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


def _single(counts: Counter[str]) -> list[tuple[tuple[str], int]]:
    return [((name,), count) for name, count in counts.items()]


def gauge(name: str, said: str, value: float) -> Metric:
    from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415

    return GaugeMetricFamily(name, said, value=value)


def counter(name: str, said: str, value: float) -> Metric:
    from prometheus_client.core import CounterMetricFamily  # noqa: PLC0415

    return CounterMetricFamily(name, said, value=value)


def counters(name: str, said: str, labels: Sequence[str], counts: Iterable[tuple[Sequence[str], int]]) -> Metric:
    from prometheus_client.core import CounterMetricFamily  # noqa: PLC0415

    family = CounterMetricFamily(name, said, labels=list(labels))
    for values, count in counts:
        family.add_metric(list(values), count)
    return family
