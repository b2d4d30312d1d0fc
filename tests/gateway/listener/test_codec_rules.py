"""Proves that each rule of the standard for what a packet may hold is kept, one byte string a rule."""

from __future__ import annotations

import pytest

from gateway.listener.codec import MQTT_3_1_1, MQTT_5, PacketError, Properties, Reason, StreamDecoder, encode
from gateway.listener.codec import packets as p
from gateway.listener.codec.primitives import encode_variable_integer

MALFORMED, VIOLATION = Reason.MALFORMED_PACKET, Reason.PROTOCOL_ERROR


def framed(first: int, body: bytes) -> bytes:
    return bytes((first,)) + encode_variable_integer(len(body)) + body


def connect(version: int, flags: int, rest: bytes, properties: bytes = b"\x00") -> bytes:
    body = b"\x00\x04MQTT" + bytes((version, flags)) + b"\x00\x3c" + (properties if version == MQTT_5 else b"") + rest
    return framed(0x10, body)


def publish(properties: bytes) -> bytes:
    return framed(0x30, b"\x00\x01t" + bytes((len(properties),)) + properties)


def refused(raw: bytes, version: int) -> Reason:
    decoder = StreamDecoder(65_536, version)
    decoder.feed(raw)
    with pytest.raises(PacketError) as error:
        decoder.next()
    return error.value.reason


BOTH = [
    pytest.param(b"\x10\x02\x00\x04", MALFORMED, id="2.1.4: shorter than its fields"),
    pytest.param(b"\xe0\x80\x80\x80\x80\x01", MALFORMED, id="1.5.5: a length of five bytes"),
    pytest.param(b"\x60\x02\x00\x01", MALFORMED, id="3.6.1: PUBREL without its flags"),
    pytest.param(b"\x42\x02\x00\x01", MALFORMED, id="3.4.1: PUBACK with flags"),
    pytest.param(b"\xc1\x00", MALFORMED, id="3.12.1: PINGREQ with flags"),
    pytest.param(b"\xa0\x05\x00\x01\x00\x01a", MALFORMED, id="3.10.1: UNSUBSCRIBE without its flags"),
    pytest.param(b"\x40\x02\x00\x00", VIOLATION, id="2.2.1: packet id 0 in PUBACK"),
    pytest.param(b"\x62\x02\x00\x00", VIOLATION, id="2.2.1: packet id 0 in PUBREL"),
    pytest.param(b"\xd0\x01\x00", MALFORMED, id="3.13: PINGRESP with a body"),
    pytest.param(b"\x20\x03\x02\x00\x00", MALFORMED, id="3.2.2.1: a reserved flag of CONNACK"),
]


@pytest.mark.parametrize(("raw", "reason"), BOTH)
@pytest.mark.parametrize("version", [MQTT_3_1_1, MQTT_5])
def test_a_rule_of_both_versions(raw: bytes, reason: Reason, version: int) -> None:
    assert refused(raw, version) is reason


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        pytest.param(connect(4, 0x03, b"\x00\x00"), MALFORMED, id="3.1.2.3: the reserved flag"),
        pytest.param(connect(5, 0x03, b"\x00\x00"), MALFORMED, id="3.1.2.3: the reserved flag in 5"),
        pytest.param(connect(4, 0x0A, b"\x00\x00"), MALFORMED, id="3.1.2.6: a will's QoS without a will"),
        pytest.param(connect(5, 0x22, b"\x00\x00"), MALFORMED, id="3.1.2.7: a will's retain without a will"),
        pytest.param(connect(4, 0x1E, b"\x00\x00\x00\x01t\x00\x00"), MALFORMED, id="3.1.2.6: a will's QoS of 3"),
        pytest.param(connect(4, 0x06, b"\x00\x00\x00\x00\x00\x00"), 0x90, id="4.7.3: a will without a topic"),
        pytest.param(connect(4, 0x06, b"\x00\x00\x00\x01#\x00\x00"), 0x90, id="4.7.1: a will on a wildcard"),
        pytest.param(connect(4, 0x42, b"\x00\x00\x00\x00"), MALFORMED, id="3.1.2.9 of 3.1.1: password without user"),
        pytest.param(connect(4, 0x82, b"\x00\x00"), MALFORMED, id="3.1.3: no user name where one is flagged"),
        pytest.param(connect(4, 0x02, b"\x00\x00\x00"), MALFORMED, id="3.1.3: more than its fields"),
        pytest.param(connect(5, 0x02, b"\x00\x00", b"\x03\x21\x00\x00"), VIOLATION, id="3.1.2.11.3: receive maximum 0"),
        pytest.param(connect(5, 0x02, b"\x00\x00", b"\x05\x27\0\0\0\0"), VIOLATION, id="3.1.2.11.4: packet size 0"),
        pytest.param(connect(5, 0x02, b"\x00\x00", b"\x02\x17\x02"), VIOLATION, id="3.1.2.11.7: a flag of 2"),
        pytest.param(connect(5, 0x02, b"\x00\x00", b"\x04\x17\x00\x17\x00"), VIOLATION, id="2.2.2.2: twice"),
        pytest.param(connect(5, 0x02, b"\x00\x00", b"\x03\x16\x00\x00"), VIOLATION, id="3.1.2.11.10: data, no method"),
        pytest.param(connect(5, 0x02, b"\x00\x00", b"\x02\x01\x00"), MALFORMED, id="2.2.2.2: another packet's"),
        pytest.param(connect(5, 0x02, b"\x00\x00", b"\x02\x7e\x00"), MALFORMED, id="2.2.2.2: unknown"),
        pytest.param(connect(5, 0x02, b"\x00\x00", b"\x7f\x17"), MALFORMED, id="2.2.2.1: longer than the packet"),
        pytest.param(connect(5, 0x02, b"\x00\x00", b"\x80\x00"), MALFORMED, id="1.5.5: an overlong integer"),
        pytest.param(connect(6, 0x02, b"\x00\x00"), 0x84, id="3.1.2.2: level 6"),
        pytest.param(b"\x20\x02\x00\x00", VIOLATION, id="3.1: CONNACK first"),
    ],
)
def test_a_rule_of_connect(raw: bytes, reason: int) -> None:
    assert refused(raw, 0) == reason


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        pytest.param(publish(b"\x23\x00\x00"), Reason.TOPIC_ALIAS_INVALID, id="3.3.2.3.4: alias 0"),
        pytest.param(publish(b"\x0b\x00"), VIOLATION, id="3.3.2.3.8: subscription identifier 0"),
        pytest.param(publish(b"\x01\x02"), VIOLATION, id="3.3.2.3.2: payload format 2"),
        pytest.param(publish(b"\x08\x00\x01+"), VIOLATION, id="3.3.2.3.5: a wildcard to respond to"),
        pytest.param(publish(b"\x08\x00\x00"), VIOLATION, id="3.3.2.3.5: no topic to respond to"),
        pytest.param(publish(b"\x09\x00\x05a"), MALFORMED, id="1.5.6: binary data cut off"),
        pytest.param(publish(b"\x11\x00\x00\x00\x01"), MALFORMED, id="2.2.2.2: session expiry in PUBLISH"),
        pytest.param(b"\x82\x03\x00\x01\x00", VIOLATION, id="3.8.3: no filter"),
        pytest.param(b"\x82\x06\x00\x01\x00\x00\x00\x00", VIOLATION, id="4.7.3: an empty filter"),
        pytest.param(b"\x82\x07\x00\x01\x00\x00\x01a\x40", MALFORMED, id="3.8.3.1: a reserved option"),
        pytest.param(b"\x82\x07\x00\x01\x00\x00\x01a\x03", VIOLATION, id="3.8.3.1: QoS 3"),
        pytest.param(b"\x82\x07\x00\x01\x00\x00\x01a\x30", VIOLATION, id="3.8.3.1: retain handling 3"),
        pytest.param(
            b"\x82\x10\x00\x01\x00\x00\x0a$share/g/a\x04", VIOLATION, id="3.8.3.1: No Local on a shared subscription"
        ),
        pytest.param(b"\x82\x09\x00\x01\x02\x0b\x00\x00\x01a\x00", VIOLATION, id="3.8.2.1.2: identifier 0"),
        pytest.param(b"\x82\x0b\x00\x01\x04\x0b\x01\x0b\x02\x00\x01a\x00", VIOLATION, id="3.8.2.1.2: two identifiers"),
        pytest.param(b"\xa2\x03\x00\x01\x00", VIOLATION, id="3.10.3: no filter"),
        pytest.param(b"\xe0\x03\x00\x00\x00", MALFORMED, id="3.14.2: more than its fields"),
    ],
)
def test_a_rule_of_mqtt_5(raw: bytes, reason: Reason) -> None:
    assert refused(raw, MQTT_5) is reason


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        pytest.param(b"\xf0\x00", MALFORMED, id="AUTH is not of 3.1.1"),
        pytest.param(b"\x82\x06\x00\x01\x00\x01a\x04", MALFORMED, id="3.8.3: an option of MQTT 5"),
        pytest.param(b"\x40\x03\x00\x01\x00", MALFORMED, id="3.4: PUBACK with a reason"),
        pytest.param(b"\xe0\x01\x00", MALFORMED, id="3.14: DISCONNECT with a reason"),
        pytest.param(b"\x20\x02\x00\x06", MALFORMED, id="3.2.2.3: a reserved return code"),
    ],
)
def test_a_rule_of_mqtt_3_1_1(raw: bytes, reason: Reason) -> None:
    assert refused(raw, MQTT_3_1_1) is reason


def test_what_an_acknowledgement_does_not_say_is_left_out() -> None:
    assert encode(p.PubAck(1), MQTT_5) == b"\x40\x02\x00\x01"  # 3.4.2.1
    assert encode(p.PubAck(1, 0x87), MQTT_5) == b"\x40\x03\x00\x01\x87"
    assert encode(p.PubAck(1, 0x87), MQTT_3_1_1) == b"\x40\x02\x00\x01"
    assert encode(p.Disconnect(), MQTT_5) == b"\xe0\x00"
    assert encode(p.Disconnect(0x8B), MQTT_5) == b"\xe0\x01\x8b"


def test_a_field_too_long_for_the_standard_is_the_writer_s_mistake() -> None:
    with pytest.raises(ValueError, match="65,535"):
        encode(p.PubAck(1, 0, Properties(reason_string="x" * 65_536)), MQTT_5)
    with pytest.raises(ValueError, match="268,435,455"):
        encode_variable_integer(268_435_456)


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        (0, b"\x00"),
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (16_383, b"\xff\x7f"),
        (16_384, b"\x80\x80\x01"),
        (2_097_151, b"\xff\xff\x7f"),
        (2_097_152, b"\x80\x80\x80\x01"),
        (268_435_455, b"\xff\xff\xff\x7f"),
    ],
)
def test_variable_byte_integers_are_those_of_the_standard_s_table(value: int, raw: bytes) -> None:
    assert encode_variable_integer(value) == raw
