"""Proves that two independent codecs read what ours writes, and that ours reads what they write.

`mqtt5` (Rust) is the oracle for MQTT 5, amqtt's packet classes for MQTT 3.1.1.
"""

from __future__ import annotations

import mqtt5
import msgspec
from amqtt.adapters import BufferReader
from amqtt.mqtt import packet_dict
from amqtt.mqtt.packet import MQTTFixedHeader
from hypothesis import given

from gateway.listener.codec import MQTT_3_1_1, MQTT_5, Packet, StreamDecoder, encode
from gateway.listener.codec import packets as p
from tests.gateway.listener import strategies as some


@given(some.packets(MQTT_5).filter(lambda packet: packet != p.Auth()))  # it does not know the two-byte form (3.15.2.1)
def test_mqtt5_reads_our_packets_and_we_read_its(packet: Packet) -> None:
    raw = encode(packet, MQTT_5)
    theirs, size = mqtt5.read(memoryview(raw))
    assert size == len(raw)
    again = theirs.write()
    decoder = StreamDecoder(65_536, MQTT_5)
    decoder.feed(again)
    ours = decoder.next()
    assert ours is not None
    assert msgspec.structs.astuple(ours) == msgspec.structs.astuple(packet)


async def _through_amqtt(raw: bytes) -> bytes:
    reader = BufferReader(raw)
    header = await MQTTFixedHeader.from_stream(reader)
    assert header is not None
    packet = await packet_dict[header.packet_type].from_stream(reader, fixed_header=header)
    raw_again: bytes = packet.to_bytes()
    return raw_again


def _known_to_amqtt(packet: Packet) -> bool:
    # It draws a client id where there is none, and takes a password for text.
    return not isinstance(packet, p.Connect) or (packet.client_id != "" and (packet.password or b"").isascii())


@given(some.packets(MQTT_3_1_1).filter(_known_to_amqtt))
async def test_amqtt_reads_our_packets_and_writes_the_same_bytes(packet: Packet) -> None:
    raw = encode(packet, MQTT_3_1_1)
    assert await _through_amqtt(raw) == raw
