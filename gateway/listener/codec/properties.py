"""Properties of MQTT 5 (section 2.2.2): one table says each one's number, type, bounds and packets."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any, Final, NamedTuple

from gateway.listener.codec import packets as p
from gateway.listener.codec.packets import NO_PROPERTIES, Properties
from gateway.listener.codec.primitives import (
    Reader,
    encode_binary,
    encode_text,
    encode_u16,
    encode_u32,
    encode_variable_integer,
)
from gateway.listener.codec.reasons import PacketError, Reason, malformed, violation

WILL: Final = 0  # stands for the will's own properties where packet types are numbers


class _Kind(Enum):
    FLAG = auto()  # one byte, 0 or 1
    U16 = auto()
    U32 = auto()
    VARIABLE = auto()
    TEXT = auto()
    BINARY = auto()
    PAIR = auto()


class _Rule(NamedTuple):
    name: str
    kind: _Kind
    packets: frozenset[int]
    nonzero: bool = False


_ANSWERS: Final = (p.CONNACK, p.PUBACK, p.PUBREC, p.PUBREL, p.PUBCOMP, p.SUBACK, p.UNSUBACK, p.DISCONNECT, p.AUTH)


def _rule(name: str, kind: _Kind, *packets: int, nonzero: bool = False) -> _Rule:
    return _Rule(name, kind, frozenset(packets), nonzero)


# Section 2.2.2.2, table 2-4.
_RULES: Final[dict[int, _Rule]] = {
    0x01: _rule("payload_format", _Kind.FLAG, p.PUBLISH, WILL),
    0x02: _rule("message_expiry", _Kind.U32, p.PUBLISH, WILL),
    0x03: _rule("content_type", _Kind.TEXT, p.PUBLISH, WILL),
    0x08: _rule("response_topic", _Kind.TEXT, p.PUBLISH, WILL),
    0x09: _rule("correlation_data", _Kind.BINARY, p.PUBLISH, WILL),
    0x0B: _rule("subscription_ids", _Kind.VARIABLE, p.PUBLISH, p.SUBSCRIBE, nonzero=True),
    0x11: _rule("session_expiry", _Kind.U32, p.CONNECT, p.CONNACK, p.DISCONNECT),
    0x12: _rule("assigned_client_id", _Kind.TEXT, p.CONNACK),
    0x13: _rule("server_keep_alive", _Kind.U16, p.CONNACK),
    0x15: _rule("authentication_method", _Kind.TEXT, p.CONNECT, p.CONNACK, p.AUTH),
    0x16: _rule("authentication_data", _Kind.BINARY, p.CONNECT, p.CONNACK, p.AUTH),
    0x17: _rule("request_problem", _Kind.FLAG, p.CONNECT),
    0x18: _rule("will_delay", _Kind.U32, WILL),
    0x19: _rule("request_response", _Kind.FLAG, p.CONNECT),
    0x1A: _rule("response_information", _Kind.TEXT, p.CONNACK),
    0x1C: _rule("server_reference", _Kind.TEXT, p.CONNACK, p.DISCONNECT),
    0x1F: _rule("reason_string", _Kind.TEXT, *_ANSWERS),
    0x21: _rule("receive_maximum", _Kind.U16, p.CONNECT, p.CONNACK, nonzero=True),
    0x22: _rule("topic_alias_maximum", _Kind.U16, p.CONNECT, p.CONNACK),
    0x23: _rule("topic_alias", _Kind.U16, p.PUBLISH),
    0x24: _rule("maximum_qos", _Kind.FLAG, p.CONNACK),
    0x25: _rule("retain_available", _Kind.FLAG, p.CONNACK),
    0x26: _rule("user", _Kind.PAIR, p.CONNECT, p.PUBLISH, WILL, p.SUBSCRIBE, p.UNSUBSCRIBE, *_ANSWERS),
    0x27: _rule("maximum_packet_size", _Kind.U32, p.CONNECT, p.CONNACK, nonzero=True),
    0x28: _rule("wildcard_available", _Kind.FLAG, p.CONNACK),
    0x29: _rule("subscription_ids_available", _Kind.FLAG, p.CONNACK),
    0x2A: _rule("shared_available", _Kind.FLAG, p.CONNACK),
}
_NUMBERS: Final = {rule.name: number for number, rule in _RULES.items()}
_REPEATABLE: Final = frozenset({"user", "subscription_ids"})


def decode_properties(reader: Reader, packet_type: int) -> Properties:
    """Read the properties of a packet of `packet_type` (or `WILL`); check type, bounds and repetition."""
    length = reader.variable_integer()
    if length == 0:
        return NO_PROPERTIES
    part = reader.part(length)
    values: dict[str, Any] = {}
    while part.left():
        rule = _RULES.get(part.variable_integer())
        if rule is None or packet_type not in rule.packets:
            raise malformed("a property does not belong to this packet (2.2.2.2)")
        value = _decode_value(part, rule)
        if rule.name in _REPEATABLE and (rule.name == "user" or packet_type == p.PUBLISH):
            values.setdefault(rule.name, []).append(value)
        elif rule.name in values:
            raise violation("a property occurs twice (2.2.2.2)")
        else:
            values[rule.name] = [value] if rule.name in _REPEATABLE else value
    for name in _REPEATABLE & values.keys():
        values[name] = tuple(values[name])
    return Properties(**values)


def encode_properties(properties: Properties) -> bytes:
    """Write `properties` with their length in front, in the order of the table; the sender chooses what belongs."""
    if properties is NO_PROPERTIES:
        return b"\x00"
    out = bytearray()
    for name, number in _NUMBERS.items():
        value = getattr(properties, name)
        if value is None:
            continue
        for one in value if name in _REPEATABLE else (value,):
            out.append(number)
            out += _encode_value(_RULES[number].kind, one)
    return encode_variable_integer(len(out)) + bytes(out)


def _decode_value(part: Reader, rule: _Rule) -> object:
    value: object
    match rule.kind:
        case _Kind.FLAG:
            value = part.byte()
            if value > 1:
                raise violation("a flag among the properties is neither 0 nor 1 (2.2.2.2)")
        case _Kind.U16:
            value = part.u16()
        case _Kind.U32:
            value = part.u32()
        case _Kind.VARIABLE:
            value = part.variable_integer()
        case _Kind.TEXT:
            value = part.text()
        case _Kind.BINARY:
            value = part.binary()
        case _Kind.PAIR:
            return part.text(), part.text()
    if value == 0:
        if rule.nonzero:
            raise violation("a property that may not be zero is zero (2.2.2.2)")
        if rule.name == "topic_alias":
            raise PacketError(Reason.TOPIC_ALIAS_INVALID, "a topic alias is zero (3.3.2.3.4)")
    return value


def _encode_value(kind: _Kind, value: Any) -> bytes:  # noqa: ANN401 - the table pairs each kind with its field's type
    match kind:
        case _Kind.FLAG:
            return bytes((value,))
        case _Kind.U16:
            return encode_u16(value)
        case _Kind.U32:
            return encode_u32(value)
        case _Kind.VARIABLE:
            return encode_variable_integer(value)
        case _Kind.TEXT:
            return encode_text(value)
        case _Kind.BINARY:
            return encode_binary(value)
        case _Kind.PAIR:
            return encode_text(value[0]) + encode_text(value[1])
