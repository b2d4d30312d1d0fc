"""The composition root: what a gateway is made of, in which order it starts, and how it stops. Start reading here.

`composing.compose` puts the parts of one instance together, for `serve` and, without doors, for a command that acts on
a store that no gateway serves. `serve` adds the doors, the tasks that keep following, and the way out.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from engine.errors import BadInput, WaysideError
from gateway import data, definitions, logs, tls
from gateway.composing import compose, rates_of
from gateway.config import Loaded
from gateway.http.sockets import bound_to, listen
from gateway.listener.descriptors import connections_that_fit, left_for_http, raise_limit
from gateway.listener.limits import ListenerLimits
from gateway.listener.server import Listener
from gateway.maps import Maps
from gateway.mqtt_door import MqttDoor
from gateway.opening import More, open_more, open_mqtt
from gateway.presence import Presence, announce
from gateway.readiness import StoreLook
from gateway.reload import reread
from gateway.retention import Retention
from gateway.services import Services
from gateway.settings import Settings

if TYPE_CHECKING:
    from gateway.bridge.service import Bridge
    from gateway.http.server import Server

CATALOG_SECONDS: Final = 1.0
LATE_SWEEPS: Final = 4
DAY_SECONDS: Final = 86_400
FORCED_EXIT_STATUS: Final = 3

_log = logs.get_logger("gateway")


async def serve(loaded: Loaded, *, ready: Callable[[Presence], None], load: Callable[[], Loaded] | None = None) -> int:
    """Run a gateway until SIGTERM or SIGINT; return the exit status.

    `ready` is told once every door is open; `load` reads the settings again on SIGHUP.
    """
    settings = loaded.settings
    os.umask(0o077)
    _configure_logs(settings)
    for warning in loaded.warnings:
        _log.warning(warning)
    async with compose(settings, serves=True) as services:
        if data.exposed(settings.data):
            _log.warning("others can read the data directory; chmod 700 it", directory=settings.data)
        if services.lost:
            _log.warning(data.LOST, directory=settings.data)
        try:
            await _Gateway(services, loaded, load or (lambda: loaded)).run(ready)
        except BaseExceptionGroup as failed:
            raise _cause(failed) from None
    _log.info("stopped")
    return 0


def _configure_logs(settings: Settings) -> None:
    console = settings.log.format == "console" or (settings.log.format == "auto" and sys.stderr.isatty())
    logs.configure(level=settings.log.level, console=console)


def _bounded(max_connections: int) -> int:
    """Have as many connections as may be open at once, and say so where those are fewer than were wanted."""
    descriptors = raise_limit()
    fit = connections_that_fit(max_connections, descriptors)
    if fit < max_connections:
        _log.warning(
            "fewer connections than listener.max_connections: too few files may be open (ulimit -n, LimitNOFILE)",
            max_connections=max_connections,
            connections=fit,
            open_files=descriptors,
        )
    return fit


def _cause(failed: BaseExceptionGroup[BaseException]) -> WaysideError:
    """Give what a person should be told of a part that failed; the log has where it was."""
    causes: list[BaseException] = [failed]
    while isinstance(causes[0], BaseExceptionGroup):
        causes = [*causes[0].exceptions, *causes[1:]]
    for cause in causes:
        if isinstance(cause, WaysideError):
            return cause
    _log.error("a part failed", exc_info=causes[0])
    return WaysideError(
        f"a part of the gateway failed ({type(causes[0]).__name__})", hint="its log says where; what was stored is safe"
    )


class _Gateway:
    """The doors of one instance and the tasks beside them."""

    def __init__(self, services: Services, loaded: Loaded, load: Callable[[], Loaded]) -> None:
        self._services = services
        self._load = load
        self._settings = services.settings
        self._retention = Retention(
            services.engine.store,
            services.audit,
            int(self._settings.audit.retention // DAY_SECONDS),
            lambda count: _log.info("old audit events removed", count=count),
        )
        self._maps = Maps(self._settings.map, loaded.maps)
        door = MqttDoor(
            services.deliver, services.authority, services.limits, services.audit, services.source, maps=self._maps
        )
        table = self._settings.listener
        limits = ListenerLimits(
            max_connections=_bounded(table.max_connections),
            connects_per_second=table.connects_per_second,
            connects_burst=table.connects_burst,
        )
        self._listener = Listener(door, limits, services.source)
        door.attach(self._listener, services.registry)
        services.outbox.attach(self._listener)
        services.connections_of = self._connections_of
        services.connected = self._listener.connections
        services.not_ready = self._not_ready
        self._store_look = StoreLook(services.engine.store, services.source)
        self._stop = asyncio.Event()
        self._listening = False
        self._tls = tls.contexts(self._settings)
        self._more = More({}, None)
        self._bridge: Bridge | None = None

    async def run(self, ready: Callable[[Presence], None]) -> None:
        """Open the doors, MQTT last, and close them again when a signal says so."""
        services, http = self._services, listen(self._settings.http)
        await services.outbox.start()
        self._take_signals()
        try:
            async with asyncio.TaskGroup() as group:
                following = [
                    group.create_task(services.registry.follow(), name="registry"),
                    group.create_task(services.audit.run(), name="audit"),
                    group.create_task(self._retention.run(), name="audit retention"),
                    group.create_task(services.last_seen.run(), name="last seen"),
                    group.create_task(services.outbox.follow(), name="outbox"),
                    group.create_task(services.live.follow(), name="live"),
                    group.create_task(self._follow_catalog(), name="catalog"),
                ]
                if services.traces is not None:
                    following.append(group.create_task(services.traces.run(), name="traces"))
                if self._settings.bridge.url is not None:
                    self._bridge = self._make_bridge()
                    following.append(group.create_task(self._bridge.run(), name="bridge"))
                presence = await self._open_mqtt(bound_to(http))
                with announce(self._settings.data, presence):
                    ready(presence)
                    # Who calls by HTTP is connected already, and waits for this at most; devices do not have to.
                    servers = await asyncio.to_thread(self._http_servers)
                    for server, door in zip(servers, (http, self._more.https), strict=False):
                        group.create_task(server.serve([door] if door else None), name="http")
                    _settle_memory()
                    await self._stop.wait()
                await self._close_doors(servers)
                for task in following:
                    task.cancel()
        finally:
            http.close()
            if self._bridge is not None:
                await self._bridge.close()

    async def _open_mqtt(self, http: str) -> Presence:
        """Open the last door: a device that gets in finds everything behind it at work."""
        mqtt = await open_mqtt(self._listener, "mqtt", self._settings.mqtt)
        self._more = await open_more(self._listener, self._settings, self._tls)
        self._listening = True
        self._services.doors.update(mqtt=mqtt, http=http, **self._more.doors)
        instance = self._services.engine.instance
        return Presence(instance=instance, pid=os.getpid(), mqtt=mqtt, http=http, more=self._more.doors)

    async def _close_doors(self, servers: list[Server]) -> None:
        """Take nothing more, and finish what is in flight."""
        _log.info("stopping")
        self._listening = False
        self._services.stopping.set()
        for server in servers:
            server.stop()
        grace = self._settings.engine.stop_grace
        if self._bridge is not None:
            await asyncio.gather(self._listener.stop(grace), self._bridge.stop(grace))
        else:
            await self._listener.stop(grace)
        self._services.deliver.stop()

    def _make_bridge(self) -> Bridge:
        """Make the door to a broker: imported only where there is one."""
        from gateway.bridge.make import make_bridge  # noqa: PLC0415

        bridge = make_bridge(self._services, self._maps)
        assert bridge is not None
        return bridge

    def _http_servers(self) -> list[Server]:
        """Make the HTTP door's server, and the one over TLS: importing them takes as long as the rest of a start."""
        from gateway.http.app import create_app  # noqa: PLC0415
        from gateway.http.front import Front  # noqa: PLC0415
        from gateway.http.server import MAX_CONNECTIONS, Server  # noqa: PLC0415
        from gateway.proxies import Proxies  # noqa: PLC0415

        app, settings, grace = create_app(self._services), self._settings, self._settings.engine.stop_grace
        certified = tls.names(self._tls) if self._tls is not None else ()
        front = Front(app, hosts=(*settings.http_hosts, *certified), not_ready=self._not_ready)
        only = not (settings.http.loopback or settings.allow_plaintext)
        plain = Proxies(front, settings.proxies, only=only) if settings.trusted_proxies else front
        secure = self._tls is not None and self._more.https is not None
        connections = self._listener.limits.max_connections
        most = left_for_http(MAX_CONNECTIONS, connections, raise_limit(), doors=1 + secure)
        servers = [Server(plain, grace_seconds=grace, most=most)]
        if self._tls is not None and secure:
            encrypted = Proxies(front, settings.proxies) if settings.trusted_proxies else front
            servers.append(Server(encrypted, grace_seconds=grace, most=most, tls=self._tls.http))
        return servers

    async def _follow_catalog(self) -> None:
        """Take up edits of definitions: a few microseconds a second while there are none."""
        while True:
            await asyncio.sleep(CATALOG_SECONDS)
            self._reread_definitions()

    def _reread_definitions(self) -> None:
        definitions.reread(self._services.engine.catalog, self._services.audit)

    def _connections_of(self, device: str) -> int:
        return sum(1 for connection in self._listener.connections() if connection.device == device)

    async def _not_ready(self) -> list[str]:
        """Name what is missing for taking signals: the listener, the store, a sweep on time."""
        missing = [] if self._listening else ["listener"]
        if self._bridge is not None and not self._bridge.ready:
            missing.append("bridge")
        engine = self._services.engine
        if not await self._store_look.answers() or not engine.writable:
            missing.append("store")
        late = LATE_SWEEPS * engine.settings.sweep_interval_seconds
        if engine.swept_at is None or self._services.source.monotonic() - engine.swept_at > late:
            missing.append("sweep")
        return missing

    # -- signals -----------------------------------------------------------------------------------------------------

    def _take_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._asked_to_stop)
        loop.add_signal_handler(signal.SIGHUP, self._reload)

    def _asked_to_stop(self) -> None:
        if self._stop.is_set():
            # The second time: at once. What was acknowledged is on the disk.
            os._exit(FORCED_EXIT_STATUS)
        self._stop.set()

    def _reload(self) -> None:
        if self._tls is not None:
            try:
                self._tls.reload()
                _log.info("certificate reread")
            except BadInput as fault:
                _log.error("the certificate that is in force stays", reason=fault.message)
        self._reread_definitions()
        services = self._services
        services.settings = reread(services.settings, self._load, apply=self._apply, log=_log, note=services.audit.add)

    def _apply(self, settings: Settings) -> None:
        """Put into force what changes without a restart."""
        _configure_logs(settings)
        self._services.limits.change(rates_of(settings.limits))
        self._retention.days = int(settings.audit.retention // DAY_SECONDS)


def _settle_memory() -> None:
    """Collect once, and exempt what the start has made from later collections."""
    gc.collect()
    gc.freeze()
    gc.enable()


__all__ = ["Presence", "WaysideError", "compose", "serve"]
