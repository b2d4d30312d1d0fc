"""One instance's parts, put together over a store: for a gateway that serves, and for a command that acts by itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, ParamSpec

from devices.exports.verifiers import maker
from devices.model import Rate
from devices.registry import Registry
from engine.clock import Source, SystemSource
from engine.events import EngineEvent, Observer
from engine.service import Engine, EngineSettings
from engine.store.base import AtOnce, Record
from engine.store.open import open_store
from engine.workflows.loading import Catalog
from gateway import data, logs
from gateway.audit import Audit
from gateway.auth import Authority
from gateway.definitions import tell_changes
from gateway.deliver import Deliver
from gateway.limits import DeviceLimits, Rates
from gateway.live import Live
from gateway.metrics import Metrics
from gateway.outbox import Outbox
from gateway.seen import LastSeen
from gateway.services import Services
from gateway.sessions import Sessions
from gateway.settings import LimitsTable, Settings

if TYPE_CHECKING:
    from gateway.sinks import Sinks
    from gateway.traces import Traces

P = ParamSpec("P")
_log = logs.get_logger("gateway")


class _Relay:
    """The engine's observer: it exists before the audit log, which is named after the engine's instance."""

    def __init__(self) -> None:
        self.audit: Observer | None = None
        self.observers: tuple[Observer, ...] = ()

    def note(self, event: EngineEvent) -> None:
        self.note_within(event)
        self.note_after(event)

    def note_within(self, event: EngineEvent) -> None:
        """Have it written down by the same commit."""
        if self.audit is not None:
            self.audit.note(event)

    def note_after(self, event: EngineEvent) -> None:
        for observer in self.observers:
            observer.note(event)


@contextlib.asynccontextmanager
async def compose(settings: Settings, *, sweeps: bool = True, serves: bool = False) -> AsyncIterator[Services]:
    """Put one instance's parts together over the store; let go of everything at the end.

    Without `sweeps` it drives only the runs that it is asked about, as a single command should; with `serves` audit
    events may go to standard output, and who was seen is written down. Raises `WaysideError` for a directory or a
    store that cannot be used.
    """
    data.prepare(settings.data, settings.workflow_directory)
    source = SystemSource()
    store = open_store(settings.store_url)
    try:
        catalog = Catalog(settings.workflow_directory)
        tell_changes(catalog.reload())
        relay, outbox = _Relay(), Outbox(store, source)
        engine = Engine(
            store,
            catalog,
            observer=relay,
            publisher=outbox,
            source=source,
            settings=_engine_settings(settings, sweeps=sweeps),
            locks=settings.data / data.LOCKS,
        )
        metrics = Metrics()
        traces = _traces(settings, engine.instance, source) if serves else None
        audit = Audit(
            store,
            engine.instance,
            source,
            heard=lambda record: _heard(engine, audit, heard_by, record),
            counted=metrics.entered if traces is None else _both(metrics.entered, traces.entered),
            took=metrics.store_write_seconds.add,
        )
        if isinstance(store, AtOnce):
            store.carry(audit)
        live, sinks = Live(store, engine.instance), _sinks(settings, prints=serves)
        heard_by = (live.stored,) if sinks is None else (live.stored, sinks.stored)
        relay.audit = audit
        relay.observers = (live, metrics) if traces is None else (live, metrics, traces)
        registry = Registry(store, source, noted=audit.revised, verify=maker(settings.bridge.verifiers))
        async with engine:
            await registry.load()
            known = await data.ensure_admin(registry, settings.data, shared=settings.shares_store)
            services = _services(settings, source, engine, registry, audit, outbox, live)
            await services.last_seen.load()
            services.metrics, services.traces = metrics, traces
            # A store in memory is empty each time.
            services.lost = not known and settings.store != "memory:"
            services.deliver.took = metrics.took if traces is None else _both(metrics.took, traces.took)
            yield services
            if serves:
                await services.last_seen.close()
        await audit.end()
        if sinks is not None:
            await asyncio.to_thread(sinks.close)
    finally:
        await store.close()


def _heard(engine: Engine, audit: Audit, others: Iterable[Callable[[Record], None]], record: Record) -> None:
    engine.audit_head = audit.head
    for heard in others:
        heard(record)


def _sinks(settings: Settings, *, prints: bool) -> Sinks | None:
    """Open what takes a copy of the audit log: imported only where there is one."""
    table = settings.audit
    if not (table.file or table.syslog or (table.stdout and prints)):
        return None
    from gateway.sinks import open_sinks  # noqa: PLC0415

    return open_sinks(table, prints=prints)


def _traces(settings: Settings, instance: str, source: Source) -> Traces | None:
    """Make what sends spans: imported only where there is a collector."""
    if not settings.trace:
        return None
    from gateway.traces import Traces  # noqa: PLC0415

    return Traces(settings.trace, instance, source)


def _both(one: Callable[P, None], other: Callable[P, None]) -> Callable[P, None]:
    def both(*given: P.args, **named: P.kwargs) -> None:
        one(*given, **named)
        other(*given, **named)

    return both


def _services(  # noqa: PLR0917  each of another type
    settings: Settings,
    source: Source,
    engine: Engine,
    registry: Registry,
    audit: Audit,
    outbox: Outbox,
    live: Live,
) -> Services:
    authority = Authority(registry, source)
    limits = DeviceLimits(rates_of(settings.limits))
    return Services(
        settings=settings,
        source=source,
        engine=engine,
        registry=registry,
        authority=authority,
        limits=limits,
        deliver=Deliver(engine, authority, limits, audit, source),
        audit=audit,
        outbox=outbox,
        live=live,
        sessions=Sessions(source),
        last_seen=LastSeen(engine.store, authority, source, engine.instance),
    )


def _engine_settings(settings: Settings, *, sweeps: bool) -> EngineSettings:
    table = settings.engine
    return EngineSettings(
        sweep_interval_seconds=table.sweep_interval,
        heartbeat_seconds=table.heartbeat,
        retention_seconds=table.retention or None,
        stop_grace_seconds=table.stop_grace,
        sweeps=sweeps,
    )


def rates_of(table: LimitsTable) -> Rates:
    return Rates(
        signals=Rate(per_second=table.signals_per_second, burst=table.signals_burst),
        runs=Rate(per_second=table.runs_per_second, burst=table.runs_burst),
        reads=Rate(per_second=table.reads_per_second, burst=table.reads_burst),
        connects=Rate(per_second=table.connects_per_second, burst=table.connects_burst),
    )
