"""Packets to bytes (section 3)."""

from __future__ import annotations

from typing import assert_never

from gateway.listener.codec import packets as p
from gateway.listener.codec.packets import MQTT_5, NO_PROPERTIES, Packet
from gateway.listener.codec.primitives import encode_binary, encode_text, encode_u16, encode_variable_integer
from gateway.listener.codec.properties import encode_properties
from gateway.listener.codec.reasons import return_code

_PROTOCOL_NAME = encode_text("MQTT")
_UNSUPPORTED = 0x80


def encode(packet: Packet, version: int) -> bytes:  # noqa: C901, PLR0911, PLR0912 - one line a packet type
    """Write `packet` for protocol `version` 4 or 5. Raises ValueError when a field is too long for the standard."""
    match packet:
        case p.Publish():
            return _publish(packet, version)
        case p.PubAck():
            return _acknowledgement(p.PUBACK << 4, packet, version)
        case p.PubRec():
            return _acknowledgement(p.PUBREC << 4, packet, version)
        case p.PubRel():
            return _acknowledgement(p.PUBREL << 4 | 2, packet, version)
        case p.PubComp():
            return _acknowledgement(p.PUBCOMP << 4, packet, version)
        case p.PingReq():
            return b"\xc0\x00"
        case p.PingResp():
            return b"\xd0\x00"
        case p.Connect():
            return _connect(packet)
        case p.ConnAck():
            return _connack(packet, version)
        case p.Subscribe():
            return _subscribe(packet, version)
        case p.SubAck():
            return _suback(packet, version)
        case p.Unsubscribe():
            body = _id_and_properties(packet, version) + b"".join(map(encode_text, packet.filters))
            return _frame(p.UNSUBSCRIBE << 4 | 2, body)
        case p.UnsubAck():
            reasons = bytes(packet.reasons) if version == MQTT_5 else b""
            return _frame(p.UNSUBACK << 4, _id_and_properties(packet, version) + reasons)
        case p.Disconnect():
            return _reason_only(p.DISCONNECT << 4, packet, version)
        case p.Auth():
            return _reason_only(p.AUTH << 4, packet, version)
        case _:
            assert_never(packet)


def _frame(first: int, body: bytes) -> bytes:
    return bytes((first,)) + encode_variable_integer(len(body)) + body


def _connect(packet: p.Connect) -> bytes:
    """CONNECT: 3.1.2 and 3.1.3."""
    five = packet.version == MQTT_5
    flags = packet.clean_start << 1
    body = encode_text(packet.client_id)
    if (will := packet.will) is not None:
        flags |= 0x04 | will.qos << 3 | will.retain << 5
        body += (
            (encode_properties(will.properties) if five else b"")
            + encode_text(will.topic)
            + encode_binary(will.payload)
        )
    if packet.username is not None:
        flags |= 0x80
        body += encode_text(packet.username)
    if packet.password is not None:
        flags |= 0x40
        body += encode_binary(packet.password)
    head = _PROTOCOL_NAME + bytes((packet.version, flags)) + encode_u16(packet.keep_alive)
    return _frame(p.CONNECT << 4, head + (encode_properties(packet.properties) if five else b"") + body)


def _connack(packet: p.ConnAck, version: int) -> bytes:
    """CONNACK: 3.2.2. Session Present is 0 in a refusal."""
    present = packet.session_present and packet.reason == 0
    if version != MQTT_5:
        return bytes((p.CONNACK << 4, 2, present, return_code(packet.reason)))
    return _frame(p.CONNACK << 4, bytes((present, packet.reason)) + encode_properties(packet.properties))


def _publish(packet: p.Publish, version: int) -> bytes:
    """PUBLISH: 3.3.1 and 3.3.2."""
    topic = encode_text(packet.topic)
    number = b"" if packet.packet_id is None else encode_u16(packet.packet_id)
    properties = encode_properties(packet.properties) if version == MQTT_5 else b""
    first = p.PUBLISH << 4 | packet.dup << 3 | packet.qos << 1 | packet.retain
    length = len(topic) + len(number) + len(properties) + len(packet.payload)
    return b"".join((bytes((first,)), encode_variable_integer(length), topic, number, properties, packet.payload))


def _acknowledgement(first: int, packet: p.Acknowledgement, version: int) -> bytes:
    """PUBACK, PUBREC, PUBREL, PUBCOMP: 3.4.2; what says nothing is left out (3.4.2.1)."""
    number = encode_u16(packet.packet_id)
    if version != MQTT_5 or (packet.reason == 0 and packet.properties == NO_PROPERTIES):
        return bytes((first, 2)) + number
    if packet.properties == NO_PROPERTIES:
        return bytes((first, 3)) + number + bytes((packet.reason,))
    return _frame(first, number + bytes((packet.reason,)) + encode_properties(packet.properties))


def _id_and_properties(packet: p.Subscribe | p.SubAck | p.Unsubscribe | p.UnsubAck, version: int) -> bytes:
    return encode_u16(packet.packet_id) + (encode_properties(packet.properties) if version == MQTT_5 else b"")


def _subscribe(packet: p.Subscribe, version: int) -> bytes:
    """SUBSCRIBE: 3.8.2 and 3.8.3."""
    body = _id_and_properties(packet, version)
    for one in packet.filters:
        options = one.qos
        if version == MQTT_5:
            options |= one.no_local << 2 | one.retain_as_published << 3 | one.retain_handling << 4
        body += encode_text(one.topic_filter) + bytes((options,))
    return _frame(p.SUBSCRIBE << 4 | 2, body)


def _suback(packet: p.SubAck, version: int) -> bytes:
    """SUBACK: 3.9.3; MQTT 3.1.1 has one code for every refusal, 0x80."""
    reasons = packet.reasons if version == MQTT_5 else (min(one, _UNSUPPORTED) for one in packet.reasons)
    return _frame(p.SUBACK << 4, _id_and_properties(packet, version) + bytes(reasons))


def _reason_only(first: int, packet: p.Disconnect | p.Auth, version: int) -> bytes:
    """DISCONNECT and AUTH: 3.14.2, 3.15.2; what says nothing is left out."""
    if version != MQTT_5 or (packet.reason == 0 and packet.properties == NO_PROPERTIES):
        return bytes((first, 0))
    if packet.properties == NO_PROPERTIES and isinstance(packet, p.Disconnect):
        return bytes((first, 1, packet.reason))
    return _frame(first, bytes((packet.reason,)) + encode_properties(packet.properties))
