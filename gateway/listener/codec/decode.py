"""Bodies to packets (section 3), each rule beside the section that states it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.listener.codec import packets as p
from gateway.listener.codec.packets import MQTT_3_1_1, MQTT_5, NO_PROPERTIES, Packet, Properties
from gateway.listener.codec.primitives import Reader
from gateway.listener.codec.properties import WILL, decode_properties
from gateway.listener.codec.reasons import PacketError, Reason, malformed, violation

# Reasons for the return codes of a 3.1.1 CONNACK (3.2.2.3 there), for reading what a server sent.
_RETURN_CODES: Final = (
    Reason.SUCCESS,
    Reason.UNSUPPORTED_PROTOCOL_VERSION,
    Reason.CLIENT_ID_NOT_VALID,
    Reason.SERVER_UNAVAILABLE,
    Reason.BAD_USER_NAME_OR_PASSWORD,
    Reason.NOT_AUTHORIZED,
)


def decode(first: int, body: bytes, version: int) -> Packet:
    """Parse the packet whose first byte is `first`; a CONNECT brings its own version. Raises `PacketError`."""
    kind = first >> 4
    flags = first & 0x0F
    if kind == p.PUBLISH:
        return _publish(flags, Reader(body), version)
    # 2.1.3: the flags of every other packet are fixed.
    if kind not in _DECODERS or flags != (2 if kind in _FLAGS_OF_TWO else 0):
        raise malformed("the first byte is that of no packet (2.1.2, 2.1.3)")
    if version != MQTT_5 and kind == p.AUTH:
        raise malformed("AUTH is not a packet of MQTT 3.1.1")
    reader = Reader(body)
    packet = _DECODERS[kind](reader, version)
    reader.finish()
    return packet


def _connect(reader: Reader, version: int) -> Packet:
    """CONNECT: 3.1.2 and 3.1.3."""
    del version
    name = reader.text()
    level = reader.byte()
    if name == "MQIsdp" and level == 3:
        raise PacketError(Reason.UNSUPPORTED_PROTOCOL_VERSION, "MQTT 3.1 is not spoken here", version=level)
    if name != "MQTT":
        raise violation("the protocol name is not MQTT (3.1.2.1)")
    if level not in {MQTT_3_1_1, MQTT_5}:
        raise PacketError(
            Reason.UNSUPPORTED_PROTOCOL_VERSION, "the protocol level is neither 4 nor 5 (3.1.2.2)", version=level
        )
    try:
        return _connect_rest(reader, level)
    except PacketError as error:
        error.version = level
        raise


def _connect_rest(reader: Reader, version: int) -> Packet:
    flags = reader.byte()
    if flags & 0x01:
        raise malformed("the reserved flag of CONNECT is set (3.1.2.3)")
    if not flags & 0x04 and flags & 0x38:
        raise malformed("a will's flags are set without a will (3.1.2.6, 3.1.2.7)")
    if version == MQTT_3_1_1 and flags & 0x40 and not flags & 0x80:
        raise malformed("a password without a user name (3.1.2.9 of MQTT 3.1.1)")
    keep_alive = reader.u16()
    properties = _properties(reader, p.CONNECT, version)
    if properties.authentication_data is not None and properties.authentication_method is None:
        raise violation("authentication data without a method (3.1.2.11.10)")
    client_id = reader.text()
    will = _will(reader, flags, version) if flags & 0x04 else None
    return p.Connect(
        version=version,
        client_id=client_id,
        clean_start=bool(flags & 0x02),
        keep_alive=keep_alive,
        will=will,
        username=reader.text() if flags & 0x80 else None,
        password=reader.binary() if flags & 0x40 else None,
        properties=properties,
    )


def _will(reader: Reader, flags: int, version: int) -> p.Will:
    """The will: 3.1.3.2 to 3.1.3.4."""
    qos = flags >> 3 & 3
    if qos == 3:
        raise malformed("the will's QoS is 3 (3.1.2.6)")
    properties = _properties(reader, WILL, version)
    topic = reader.text()
    if not topic or "+" in topic or "#" in topic:
        raise PacketError(Reason.TOPIC_NAME_INVALID, "the will's topic is empty or holds a wildcard (4.7)")
    payload = reader.binary()
    return p.Will(topic=topic, payload=payload, qos=qos, retain=bool(flags & 0x20), properties=properties)


def _connack(reader: Reader, version: int) -> Packet:
    """CONNACK: 3.2.2."""
    flags, code = reader.byte(), reader.byte()
    if flags > 1:
        raise malformed("a reserved flag of CONNACK is set (3.2.2.1)")
    if version != MQTT_5:
        if code >= len(_RETURN_CODES):
            raise malformed("the return code is reserved (3.2.2.3 of MQTT 3.1.1)")
        code = _RETURN_CODES[code]
    return p.ConnAck(bool(flags), code, _properties(reader, p.CONNACK, version))


def _publish(flags: int, reader: Reader, version: int) -> Packet:
    """PUBLISH: 3.3.1 and 3.3.2."""
    qos = flags >> 1 & 3
    dup = bool(flags & 0x08)
    if qos == 3:
        raise malformed("the QoS is 3 (3.3.1.2)")
    if dup and qos == 0:
        raise malformed("DUP is set at QoS 0 (3.3.1.1)")
    topic = reader.text()
    if "+" in topic or "#" in topic:
        raise PacketError(Reason.TOPIC_NAME_INVALID, "the topic holds a wildcard (3.3.2.1)")
    packet_id = _packet_id(reader) if qos else None
    properties = _properties(reader, p.PUBLISH, version)
    if not topic and properties.topic_alias is None:
        raise violation("the topic is empty (3.3.2.1, 4.7.3)")
    response = properties.response_topic
    if response is not None and (not response or "+" in response or "#" in response):
        raise violation("the response topic is empty or holds a wildcard (3.3.2.3.5)")
    return p.Publish(
        topic=topic,
        payload=reader.rest(),
        qos=qos,
        retain=bool(flags & 0x01),
        dup=dup,
        packet_id=packet_id,
        properties=properties,
    )


def _acknowledgement(kind: int, packet: Callable[[int, int, Properties], Packet]) -> Callable[[Reader, int], Packet]:
    """PUBACK, PUBREC, PUBREL, PUBCOMP: 3.4.2 to 3.7.2; reason and properties may be left out (3.4.2.1)."""

    def decoder(reader: Reader, version: int) -> Packet:
        number = _packet_id(reader)
        if version != MQTT_5 or not reader.left():
            return packet(number, 0, NO_PROPERTIES)
        reason = reader.byte()
        return packet(number, reason, decode_properties(reader, kind) if reader.left() else NO_PROPERTIES)

    return decoder


def _subscribe(reader: Reader, version: int) -> Packet:
    """SUBSCRIBE: 3.8.2 and 3.8.3."""
    number = _packet_id(reader)
    properties = _properties(reader, p.SUBSCRIBE, version)
    filters: list[p.Filter] = []
    while reader.left():
        filters.append(_filter(reader, version))
    if not filters:
        raise violation("SUBSCRIBE names no topic filter (3.8.3)")
    return p.Subscribe(number, tuple(filters), properties)


def _filter(reader: Reader, version: int) -> p.Filter:
    """A topic filter and its options: 3.8.3.1."""
    topic_filter = _topic_filter(reader)
    options = reader.byte()
    if options & (0xC0 if version == MQTT_5 else 0xFC):
        raise malformed("a reserved subscription option is set (3.8.3.1)")
    if options & 3 == 3:
        raise violation("the requested QoS is 3 (3.8.3.1)")
    if options & 0x30 == 0x30:
        raise violation("the retain handling is 3 (3.8.3.1)")
    if options & 0x04 and topic_filter.startswith("$share/"):
        raise violation("No Local on a shared subscription (3.8.3.1)")
    return p.Filter(topic_filter, options & 3, bool(options & 0x04), bool(options & 0x08), options >> 4 & 3)


def _suback(reader: Reader, version: int) -> Packet:
    """SUBACK: 3.9.2 and 3.9.3."""
    number = _packet_id(reader)
    properties = _properties(reader, p.SUBACK, version)
    return p.SubAck(number, tuple(reader.rest()), properties)


def _unsubscribe(reader: Reader, version: int) -> Packet:
    """UNSUBSCRIBE: 3.10.2 and 3.10.3."""
    number = _packet_id(reader)
    properties = _properties(reader, p.UNSUBSCRIBE, version)
    filters: list[str] = []
    while reader.left():
        filters.append(_topic_filter(reader))
    if not filters:
        raise violation("UNSUBSCRIBE names no topic filter (3.10.3)")
    return p.Unsubscribe(number, tuple(filters), properties)


def _unsuback(reader: Reader, version: int) -> Packet:
    """UNSUBACK: 3.11.2 and 3.11.3."""
    number = _packet_id(reader)
    properties = _properties(reader, p.UNSUBACK, version)
    return p.UnsubAck(number, tuple(reader.rest()) if version == MQTT_5 else (), properties)


def _disconnect(reader: Reader, version: int) -> Packet:
    """DISCONNECT: 3.14.2; reason and properties may be left out."""
    if version != MQTT_5 or not reader.left():
        return p.Disconnect()
    reason = reader.byte()
    return p.Disconnect(reason, decode_properties(reader, p.DISCONNECT) if reader.left() else NO_PROPERTIES)


def _auth(reader: Reader, version: int) -> Packet:
    """AUTH: 3.15.2; reason and properties may be left out."""
    del version
    if not reader.left():
        return p.Auth()
    reason = reader.byte()
    return p.Auth(reason, decode_properties(reader, p.AUTH) if reader.left() else NO_PROPERTIES)


def _properties(reader: Reader, kind: int, version: int) -> Properties:
    return decode_properties(reader, kind) if version == MQTT_5 else NO_PROPERTIES


def _packet_id(reader: Reader) -> int:
    number = reader.u16()
    if number == 0:
        raise violation("the packet id is zero (2.2.1)")
    return number


def _topic_filter(reader: Reader) -> str:
    topic_filter = reader.text()
    if not topic_filter:
        raise violation("a topic filter is empty (4.7.3)")
    return topic_filter


_FLAGS_OF_TWO: Final = frozenset({p.PUBREL, p.SUBSCRIBE, p.UNSUBSCRIBE})
_DECODERS: Final[dict[int, Callable[[Reader, int], Packet]]] = {
    p.CONNECT: _connect,
    p.CONNACK: _connack,
    p.PUBACK: _acknowledgement(p.PUBACK, p.PubAck),
    p.PUBREC: _acknowledgement(p.PUBREC, p.PubRec),
    p.PUBREL: _acknowledgement(p.PUBREL, p.PubRel),
    p.PUBCOMP: _acknowledgement(p.PUBCOMP, p.PubComp),
    p.SUBSCRIBE: _subscribe,
    p.SUBACK: _suback,
    p.UNSUBSCRIBE: _unsubscribe,
    p.UNSUBACK: _unsuback,
    p.PINGREQ: lambda _reader, _version: p.PingReq(),
    p.PINGRESP: lambda _reader, _version: p.PingResp(),
    p.DISCONNECT: _disconnect,
    p.AUTH: _auth,
}
