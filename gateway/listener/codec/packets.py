"""The fifteen control packets as values, the same for MQTT 3.1.1 and 5 (section 3; section 2.1.2 for the numbers).

What 3.1.1 lacks keeps its default: there are no properties, and no reasons outside CONNACK and SUBACK. A CONNACK's
`reason` is MQTT 5's here, whatever the version; the codec translates.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

CONNECT: Final = 1
CONNACK: Final = 2
PUBLISH: Final = 3
PUBACK: Final = 4
PUBREC: Final = 5
PUBREL: Final = 6
PUBCOMP: Final = 7
SUBSCRIBE: Final = 8
SUBACK: Final = 9
UNSUBSCRIBE: Final = 10
UNSUBACK: Final = 11
PINGREQ: Final = 12
PINGRESP: Final = 13
DISCONNECT: Final = 14
AUTH: Final = 15

MQTT_3_1_1: Final = 4
MQTT_5: Final = 5


class Properties(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of a packet or of a will (section 2.2.2.2); None or empty means that it is not there."""

    payload_format: int | None = None
    message_expiry: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_ids: tuple[int, ...] = ()
    session_expiry: int | None = None
    assigned_client_id: str | None = None
    server_keep_alive: int | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    request_problem: int | None = None
    will_delay: int | None = None
    request_response: int | None = None
    response_information: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_maximum: int | None = None
    topic_alias_maximum: int | None = None
    topic_alias: int | None = None
    maximum_qos: int | None = None
    retain_available: int | None = None
    user: tuple[tuple[str, str], ...] = ()
    maximum_packet_size: int | None = None
    wildcard_available: int | None = None
    subscription_ids_available: int | None = None
    shared_available: int | None = None


NO_PROPERTIES: Final = Properties()


class Will(msgspec.Struct, frozen=True, kw_only=True):
    """The will message of a CONNECT (3.1.3)."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = NO_PROPERTIES


class Connect(msgspec.Struct, frozen=True, kw_only=True):
    """CONNECT (3.1). `version` is 4 (MQTT 3.1.1) or 5; `keep_alive` is in seconds, 0 for none."""

    version: int
    client_id: str
    clean_start: bool = True
    keep_alive: int = 0
    username: str | None = None
    password: bytes | None = None
    will: Will | None = None
    properties: Properties = NO_PROPERTIES


class ConnAck(msgspec.Struct, frozen=True):
    """CONNACK (3.2)."""

    session_present: bool
    reason: int = 0
    properties: Properties = NO_PROPERTIES


class Publish(msgspec.Struct, frozen=True, kw_only=True):
    """PUBLISH (3.3). `packet_id` is None exactly at QoS 0; the topic is empty only beside a topic alias."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int | None = None
    properties: Properties = NO_PROPERTIES


class PubAck(msgspec.Struct, frozen=True):
    """PUBACK (3.4): the answer to QoS 1."""

    packet_id: int
    reason: int = 0
    properties: Properties = NO_PROPERTIES


class PubRec(msgspec.Struct, frozen=True):
    """PUBREC (3.5): the first answer to QoS 2."""

    packet_id: int
    reason: int = 0
    properties: Properties = NO_PROPERTIES


class PubRel(msgspec.Struct, frozen=True):
    """PUBREL (3.6): the sender of a QoS 2 PUBLISH lets the packet id go."""

    packet_id: int
    reason: int = 0
    properties: Properties = NO_PROPERTIES


class PubComp(msgspec.Struct, frozen=True):
    """PUBCOMP (3.7): the last answer to QoS 2."""

    packet_id: int
    reason: int = 0
    properties: Properties = NO_PROPERTIES


class Filter(msgspec.Struct, frozen=True):
    """A topic filter of a SUBSCRIBE with its options (3.8.3.1)."""

    topic_filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


class Subscribe(msgspec.Struct, frozen=True):
    """SUBSCRIBE (3.8)."""

    packet_id: int
    filters: tuple[Filter, ...]
    properties: Properties = NO_PROPERTIES


class SubAck(msgspec.Struct, frozen=True):
    """SUBACK (3.9): the granted QoS, or a reason of 0x80 and above, for each filter in order."""

    packet_id: int
    reasons: tuple[int, ...]
    properties: Properties = NO_PROPERTIES


class Unsubscribe(msgspec.Struct, frozen=True):
    """UNSUBSCRIBE (3.10)."""

    packet_id: int
    filters: tuple[str, ...]
    properties: Properties = NO_PROPERTIES


class UnsubAck(msgspec.Struct, frozen=True):
    """UNSUBACK (3.11); MQTT 3.1.1 has no reasons in it."""

    packet_id: int
    reasons: tuple[int, ...] = ()
    properties: Properties = NO_PROPERTIES


class PingReq(msgspec.Struct, frozen=True):
    """PINGREQ (3.12)."""


class PingResp(msgspec.Struct, frozen=True):
    """PINGRESP (3.13)."""


class Disconnect(msgspec.Struct, frozen=True):
    """DISCONNECT (3.14); a server sends one in MQTT 5 only."""

    reason: int = 0
    properties: Properties = NO_PROPERTIES


class Auth(msgspec.Struct, frozen=True):
    """AUTH (3.15), MQTT 5 only."""

    reason: int = 0
    properties: Properties = NO_PROPERTIES


Acknowledgement: TypeAlias = PubAck | PubRec | PubRel | PubComp
Packet: TypeAlias = (
    Connect
    | ConnAck
    | Publish
    | Acknowledgement
    | Subscribe
    | SubAck
    | Unsubscribe
    | UnsubAck
    | PingReq
    | PingResp
    | Disconnect
    | Auth
)
