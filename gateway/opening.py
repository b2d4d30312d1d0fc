"""Opening the doors beside the plain MQTT and HTTP ones: over TLS, over WebSocket."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from engine.errors import BadInput
from gateway.http.sockets import bound_to, listen
from gateway.listener.server import Listener
from gateway.settings import Address, Settings
from gateway.tls import Contexts

_NAMES: Final = {
    "mqtt": "MQTT",
    "mqtts": "MQTT over TLS",
    "mqtt_ws": "MQTT over WebSocket",
    "mqtt_wss": "MQTT over WSS",
}


@dataclass(frozen=True, slots=True)
class More:
    """The further doors that are open: `doors` maps their names to `HOST:PORT`, `https` is bound and not yet served."""

    doors: dict[str, str]
    https: socket.socket | None


async def open_mqtt(listener: Listener, name: str, address: Address, *, tls: ssl.SSLContext | None = None) -> str:
    """Open one MQTT door; return its `HOST:PORT`. Raises `BadInput` if the port cannot be had."""
    start: Callable[..., Awaitable[tuple[str, int]]] = (
        listener.start_websocket if name in {"mqtt_ws", "mqtt_wss"} else listener.start_tcp
    )
    try:
        host, port = await start(address.host, address.port, tls=tls)
    except OSError as fault:
        flag = name.replace("_", "-")
        raise BadInput(
            f"{_NAMES[name]} cannot listen on {address} ({fault.strerror})",
            hint=f"another program may have the port: choose one with --{flag} HOST:PORT (port 0 takes a free one)",
        ) from None
    return str(Address(host, port))


async def open_more(listener: Listener, settings: Settings, contexts: Contexts | None) -> More:
    """Open the doors that the settings ask for beside the plain ones."""
    doors: dict[str, str] = {}
    https: socket.socket | None = None
    if settings.mqtt_ws is not None:
        doors["mqtt_ws"] = await open_mqtt(listener, "mqtt_ws", settings.mqtt_ws)
    if contexts is not None:
        for name, address in (("mqtts", settings.mqtts), ("mqtt_wss", settings.mqtt_wss)):
            if address is not None:
                doors[name] = await open_mqtt(listener, name, address, tls=contexts.mqtt)
        if settings.https is not None:
            https = listen(settings.https)
            doors["https"] = bound_to(https)
    return More(doors, https)
