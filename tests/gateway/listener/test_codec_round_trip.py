"""Proves that every valid packet survives the codec, however its bytes are cut, and that no bytes at all upset it."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.listener.codec import MQTT_3_1_1, MQTT_5, Packet, PacketError, Properties, Reason, StreamDecoder, encode
from gateway.listener.codec import packets as p
from tests.gateway.listener import strategies as some

LIMIT = 65_536


def same(left: Packet, right: Packet) -> bool:
    # A property that is absent and one set to None are the same thing.
    return msgspec.structs.astuple(left) == msgspec.structs.astuple(right)


@given(some.versioned)
def test_a_packet_is_read_as_it_was_written(versioned: tuple[int, Packet]) -> None:
    version, packet = versioned
    decoder = StreamDecoder(LIMIT, version)
    decoder.feed(encode(packet, version))
    read = decoder.next()
    assert read is not None
    assert same(read, packet)
    assert decoder.next() is None
    assert decoder.buffered() == 0


@given(st.data(), some.versions)
def test_a_stream_is_read_alike_however_it_is_cut_and_joined(data: st.DataObject, version: int) -> None:
    sent = data.draw(st.lists(some.packets(version), max_size=6))
    stream = b"".join(encode(packet, version) for packet in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    decoder = StreamDecoder(LIMIT, version)
    read: list[Packet] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        decoder.feed(stream[start:end])
        while (packet := decoder.next()) is not None:
            read.append(packet)
    assert len(read) == len(sent)
    assert all(same(one, other) for one, other in zip(read, sent, strict=True))


@given(st.binary(max_size=300), st.sampled_from([0, MQTT_3_1_1, MQTT_5]))
@example(b"\x10\x80\x80\x80\x80", 0)
@example(b"\x30\x03\x00\x01\xff", MQTT_5)
def test_no_bytes_raise_anything_but_the_codec_s_own_error(stream: bytes, version: int) -> None:
    decoder = StreamDecoder(128, version)
    with contextlib.suppress(PacketError):
        for start in range(0, len(stream), 7):
            decoder.feed(stream[start : start + 7])
            while decoder.next() is not None:
                pass
            assert decoder.buffered() <= 128


@given(some.versioned, st.data())
def test_a_damaged_packet_is_refused_or_read_and_never_upsets_the_decoder(
    versioned: tuple[int, Packet], data: st.DataObject
) -> None:
    version, packet = versioned
    raw = bytearray(encode(packet, version))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    decoder = StreamDecoder(LIMIT, data.draw(st.sampled_from([0, version])))
    decoder.feed(bytes(raw))
    with contextlib.suppress(PacketError):
        while decoder.next() is not None:
            assert decoder.buffered() < len(raw)


def test_a_packet_over_the_limit_is_refused_before_its_body_arrives() -> None:
    decoder = StreamDecoder(1_000, MQTT_5)
    decoder.feed(b"\x30\xff\xff\xff\x7f")
    with pytest.raises(PacketError) as refused:
        decoder.next()
    assert refused.value.reason is Reason.PACKET_TOO_LARGE


@pytest.mark.parametrize(("size", "fits"), [(997, True), (998, False)])
def test_the_limit_counts_the_whole_packet(size: int, fits: bool) -> None:
    packet = encode(p.Publish(topic="a", payload=bytes(size - 3)), MQTT_3_1_1)
    decoder = StreamDecoder(1_000, MQTT_3_1_1)
    decoder.feed(packet)
    assert len(packet) == size + 3
    if fits:
        assert decoder.next() is not None
    else:
        with pytest.raises(PacketError):
            decoder.next()


def test_a_packet_that_comes_byte_by_byte_is_read_in_linear_memory() -> None:
    packet = encode(p.Publish(topic="a", payload=bytes(60_000)), MQTT_5)
    decoder = StreamDecoder(LIMIT, MQTT_5)
    for at in range(len(packet) - 1):
        decoder.feed(packet[at : at + 1])
    assert decoder.next() is None
    assert decoder.buffered() == len(packet) - 1
    decoder.feed(packet[-1:])
    assert isinstance(decoder.next(), p.Publish)


def test_an_error_s_text_never_holds_what_was_sent() -> None:
    decoder = StreamDecoder(LIMIT, MQTT_3_1_1)
    decoder.feed(b"\x30\x0a\x00\x06secr\xfft12")
    with pytest.raises(PacketError) as refused:
        decoder.next()
    assert "secr" not in repr(refused.value)
    assert refused.value.__cause__ is None


def test_the_numbers_of_all_properties_are_those_of_the_standard() -> None:
    # 2.2.2.2: written out once more, so that a slip in the table is seen.
    packet = p.Publish(
        topic="t",
        payload=b"",
        properties=Properties(
            payload_format=1,
            message_expiry=2,
            content_type="c",
            response_topic="r",
            correlation_data=b"d",
            subscription_ids=(5,),
            topic_alias=3,
            user=(("k", "v"),),
        ),
    )
    assert encode(packet, MQTT_5)[5:] == (
        b"\x1f\x01\x01\x02\x00\x00\x00\x02\x03\x00\x01c\x08\x00\x01r\x09\x00\x01d\x0b\x05\x23\x00\x03\x26\x00\x01k\x00\x01v"
    )
