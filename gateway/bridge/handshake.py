"""How the bridge begins a connection: what aiomqtt's client is made of, TLS, and what is told when it fails.

Beside `connection`, the only module that reaches into aiomqtt and paho-mqtt, for what they have no words for.
"""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from typing import Any, Final

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from gateway.bridge.url import BrokerUrl

CONNECT_SECONDS: Final = 5.0
KEEP_ALIVE_SECONDS: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Will:
    """What the broker publishes when the connection ends without a word, at QoS 1."""

    topic: str
    payload: bytes
    retain: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to connect. `in_flight` is the receive maximum (MQTT 5); a session outlives its connection if `keep`."""

    url: BrokerUrl
    client_id: str
    version: int
    keep: bool = True
    session_expiry_seconds: int = 86_400
    in_flight: int = 200
    will: Will | None = None


class EndedEarly(aiomqtt.MqttError):
    """The broker hung up instead of answering CONNECT, as some do to a version that they do not know."""


def client_for(options: Options) -> aiomqtt.Client:
    """Make a client that is not connected yet."""
    url, properties = options.url, None
    more: dict[str, Any] = {}
    if options.version == 5:
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.ReceiveMaximum = options.in_flight
        properties.SessionExpiryInterval = options.session_expiry_seconds if options.keep else 0
        more["clean_start"] = not options.keep
    else:
        more["clean_session"] = not options.keep
    will = options.will
    return aiomqtt.Client(
        url.host,
        url.port,
        username=url.username,
        password=url.password,
        identifier=options.client_id,
        protocol=aiomqtt.ProtocolVersion.V5 if options.version == 5 else aiomqtt.ProtocolVersion.V311,
        will=aiomqtt.Will(will.topic, will.payload, qos=1, retain=will.retain) if will else None,
        tls_context=url.tls_context(),
        timeout=CONNECT_SECONDS,
        keepalive=KEEP_ALIVE_SECONDS,
        properties=properties,
        **more,
    )


def under_tls(plain_socket: socket.socket, paho: Any, host: str) -> ssl.SSLSocket:  # noqa: ANN401
    """Shake hands; unlike paho's own, this closes the socket when that fails."""
    context: ssl.SSLContext = paho._ssl_context  # noqa: SLF001 - see the module's text
    made = context.wrap_socket(plain_socket, server_hostname=host, do_handshake_on_connect=False)
    try:
        made.settimeout(CONNECT_SECONDS)
        made.do_handshake()
    except BaseException:
        made.close()
        raise
    return made


def note_alerts(paho: Any) -> list[ssl.SSLError]:  # noqa: ANN401
    """Keep what TLS says as the connection is made: a refused client certificate comes at the first read (TLS 1.3)."""
    found: list[ssl.SSLError] = []
    read = paho._sock_recv  # noqa: SLF001 - see the module's text

    def noting(size: int) -> bytes:
        try:
            data: bytes = read(size)
        except ssl.SSLError as fault:
            found.append(fault)
            # paho would print it; for paho the connection has ended.
            return b""
        return data

    paho._sock_recv = noting  # noqa: SLF001
    return found
