"""What a CONNECT asks for and what it gets (sections 3.1 and 3.2), as pure functions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

from engine.limits import NAME_PATTERN
from gateway.listener.codec import MQTT_5, NO_PROPERTIES, Properties, Reason
from gateway.listener.codec.packets import ConnAck, Connect
from gateway.listener.limits import ListenerLimits
from gateway.listener.port import DenialReason, RefusalReason

DENIALS: Final[dict[DenialReason, Reason]] = {
    "bad_credentials": Reason.BAD_USER_NAME_OR_PASSWORD,
    "disabled": Reason.NOT_AUTHORIZED,
    "banned": Reason.BANNED,
    "rate": Reason.CONNECTION_RATE_EXCEEDED,
    "busy": Reason.SERVER_BUSY,
    "unavailable": Reason.SERVER_UNAVAILABLE,
}
# What a CONNECT is told that the listener turns away by itself.
REFUSALS: Final[dict[RefusalReason, tuple[Reason, str]]] = {
    "connections": (Reason.SERVER_BUSY, "too many connections"),
    "connects_per_second": (Reason.CONNECTION_RATE_EXCEEDED, "too many connects a second"),
    "device_connections": (Reason.QUOTA_EXCEEDED, "too many connections of this device"),
    "device_sessions": (Reason.QUOTA_EXCEEDED, "too many persistent sessions of this device"),
    "sessions": (Reason.SERVER_BUSY, "too many sessions"),
}
_DEVICE: Final = re.compile(NAME_PATTERN)
_UNLIMITED: Final = 65_535  # receive maximum of a client that names none (3.1.2.11.3)


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What a connection has agreed on. Times are in seconds."""

    version: int
    client_id: str
    assigned: bool
    clean: bool
    expiry_seconds: int
    keep_alive: int
    receive_maximum: int
    packet_bytes: int | None  # the largest packet that the client takes
    alias_maximum: int
    problem_information: bool


def agree(connect: Connect, limits: ListenerLimits, fresh_name: Callable[[], str]) -> Terms | Reason:
    """Work out the terms of a CONNECT, or the reason why it is refused whoever sends it."""
    asked = connect.properties
    if asked.authentication_method is not None:
        return Reason.BAD_AUTHENTICATION_METHOD  # 4.12: none is offered
    client_id = connect.client_id
    if not client_id and connect.version != MQTT_5 and not connect.clean_start:
        return Reason.CLIENT_ID_NOT_VALID  # 3.1.3.1 of MQTT 3.1.1
    if len(client_id.encode()) > limits.client_id_bytes or any(_is_control(one) for one in client_id):
        return Reason.CLIENT_ID_NOT_VALID
    if connect.version == MQTT_5:
        expiry = min(asked.session_expiry or 0, limits.session_seconds)
    else:
        expiry = 0 if connect.clean_start else limits.session_seconds
    keep_alive = connect.keep_alive
    if connect.version == MQTT_5 and not 0 < keep_alive <= limits.max_keep_alive_seconds:
        keep_alive = limits.max_keep_alive_seconds  # 3.2.2.3.14
    return Terms(
        version=connect.version,
        client_id=client_id or f"auto-{fresh_name()}",
        assigned=not client_id,
        clean=connect.clean_start,
        expiry_seconds=expiry,
        keep_alive=keep_alive,
        receive_maximum=asked.receive_maximum or _UNLIMITED,
        packet_bytes=asked.maximum_packet_size,
        alias_maximum=asked.topic_alias_maximum or 0,
        problem_information=asked.request_problem != 0,
    )


def accepted(connect: Connect, terms: Terms, limits: ListenerLimits, device: str, *, present: bool) -> ConnAck:
    """Make the CONNACK of a connection: what it was not given as asked, and what this server takes (3.2.2.3)."""
    if terms.version != MQTT_5:
        return ConnAck(present)
    asked = connect.properties
    properties = Properties(
        session_expiry=terms.expiry_seconds if terms.expiry_seconds != (asked.session_expiry or 0) else None,
        assigned_client_id=terms.client_id if terms.assigned else None,
        server_keep_alive=terms.keep_alive if terms.keep_alive != connect.keep_alive else None,
        receive_maximum=limits.receive_maximum,
        topic_alias_maximum=limits.topic_aliases,
        maximum_packet_size=limits.packet_bytes,
        shared_available=0,
        response_information=f"d/{device}/replies/" if asked.request_response else None,
    )
    return ConnAck(present, 0, properties)


def refused(reason: Reason, text: str = "") -> ConnAck:
    """Make the CONNACK of a refusal, with a reason string where there is something to say (3.2.2.3.9)."""
    return ConnAck(
        session_present=False, reason=reason, properties=Properties(reason_string=text) if text else NO_PROPERTIES
    )


def is_device_name(name: str) -> bool:
    """Check an authenticated device's name once more: it goes into topics, where a wildcard would widen it."""
    return _DEVICE.fullmatch(name) is not None


def _is_control(character: str) -> bool:
    return character < " " or "\x7f" <= character <= "\x9f"
