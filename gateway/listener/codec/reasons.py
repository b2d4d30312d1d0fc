"""MQTT 5 reason codes (section 2.4), what they become in MQTT 3.1.1, and the codec's one error."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Reason(IntEnum):
    """A reason code of MQTT 5 (section 2.4); below 0x80 is success."""

    SUCCESS = 0x00
    DISCONNECT_WITH_WILL = 0x04
    NO_SUBSCRIPTION_EXISTED = 0x11
    UNSPECIFIED = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_ID_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_ID_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F


# CONNACK return codes of MQTT 3.1.1 (section 3.2.2.3) for the reason codes that a refused CONNECT is given.
_RETURN_CODES: Final[dict[int, int]] = {
    Reason.SUCCESS: 0,
    Reason.UNSUPPORTED_PROTOCOL_VERSION: 1,
    Reason.CLIENT_ID_NOT_VALID: 2,
    Reason.BAD_USER_NAME_OR_PASSWORD: 4,
    Reason.NOT_AUTHORIZED: 5,
    Reason.BANNED: 5,
}
_RETURN_CODE_UNAVAILABLE: Final = 3


def return_code(reason: int) -> int:
    """Translate a CONNACK's reason code to MQTT 3.1.1; what has no code of its own is 3, server unavailable."""
    return _RETURN_CODES.get(reason, _RETURN_CODE_UNAVAILABLE)


class PacketError(Exception):
    """Bytes that are not an MQTT packet, or a packet that the standard does not allow: the connection ends.

    `reason` is what CONNACK or DISCONNECT says in MQTT 5. `version` is the protocol level of a CONNECT that was read as
    far as that, else 0. The text names the rule and never holds what was sent.
    """

    def __init__(self, reason: Reason, text: str, *, version: int = 0) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text
        self.version = version


def malformed(text: str) -> PacketError:
    """Make the error for bytes that cannot be parsed (section 1.2, Malformed Packet)."""
    return PacketError(Reason.MALFORMED_PACKET, text)


def violation(text: str) -> PacketError:
    """Make the error for a parsed packet that is not allowed (section 1.2, Protocol Error)."""
    return PacketError(Reason.PROTOCOL_ERROR, text)
