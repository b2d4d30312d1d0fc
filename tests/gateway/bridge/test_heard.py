"""Proves that a PUBLISH is read off the stream as it was written, whatever else is in the stream."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from gateway.bridge.heard import MORE, Heard, published
from gateway.listener.codec.primitives import encode_variable_integer
from tests.support.plain_mqtt import PUBLISH, packet, text

TOPICS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=40)
PAYLOADS = st.binary(max_size=300)


# What MQTT 5 lets a broker send (1.5.4), the mark that some take for the beginning of a file among it.
BYTE_ORDER_MARK = "\ufeff"


def written(heard: Heard, version: int, properties: bytes = b"") -> bytes:
    kind = PUBLISH | (2 if heard.mid else 0) | (8 if heard.dup else 0) | heard.retain
    mid = struct.pack("!H", heard.mid) if heard.mid else b""
    extra = encode_variable_integer(len(properties)) + properties if version == 5 else b""
    return packet(kind, text(heard.topic) + mid + extra + heard.payload)


@st.composite
def messages(draw: st.DrawFn) -> Heard:
    mid = draw(st.integers(0, 65_535))
    return Heard(draw(TOPICS), draw(PAYLOADS), mid, draw(st.booleans()), bool(mid) and draw(st.booleans()))


@given(messages(), st.sampled_from([3, 5]), PAYLOADS, PAYLOADS)
def test_a_publish_is_read_as_it_was_written_whatever_is_around_it(
    heard: Heard, version: int, before: bytes, rest: bytes
) -> None:
    data = written(heard, version)
    found = published(bytearray(before + data + rest), version, len(before))
    assert found == (heard, len(before) + len(data))


@given(messages(), st.sampled_from([3, 5]))
def test_a_publish_that_is_not_whole_is_waited_for(heard: Heard, version: int) -> None:
    data = written(heard, version)
    assert all(published(bytearray(data[:size]), version) is MORE for size in range(1, len(data)))


@given(messages(), st.lists(st.tuples(TOPICS, TOPICS | st.just(BYTE_ORDER_MARK)), min_size=1, max_size=5))
def test_the_properties_of_a_message_come_through(plain: Heard, user: list[tuple[str, str]]) -> None:
    pairs = b"".join(b"\x26" + text(name) + text(value) for name, value in user)
    properties = b"\x01\x01" + b"\x08" + text("a/b") + b"\x09\0\x02\x01\x02" + pairs
    heard = structs.replace(plain, response_topic="a/b", correlation_data=b"\x01\x02", user_properties=tuple(user))
    data = written(plain, 5, properties)
    assert published(bytearray(data), 5) == (heard, len(data))


@given(messages(), st.sampled_from([b"\x26\0\x01a\0\x01\0", b"\x7e\x01", b"\x26\xff\xff", b"\x26\0\x01\xff\0\0"]))
def test_a_message_with_properties_that_are_none_is_told_without_a_topic(heard: Heard, properties: bytes) -> None:
    data = written(heard, 5, properties)
    assert published(bytearray(data), 5) == (Heard("", b"", heard.mid, heard.retain, heard.dup), len(data))


def test_a_topic_that_is_no_text_is_told_as_none() -> None:
    data = packet(PUBLISH | 2, b"\0\x02\xff\xfe\0\x07x")
    assert published(bytearray(data), 3) == (Heard("", b"x", 7, retain=False, dup=False), len(data))


@given(st.binary(max_size=60), st.sampled_from([3, 5]))
def test_whatever_comes_it_reads_no_further_than_the_packet_and_never_fails(data: bytes, version: int) -> None:
    found = published(bytearray(data), version)
    if found is not None:
        heard, size = found
        assert size <= len(data)
        assert data[0] & 0xF0 == PUBLISH
        assert not data[0] & 0x04
        assert heard is None or bool(heard.mid) == bool(data[0] & 0x02)


@pytest.mark.parametrize("size", [16_383, 16_384, 2_097_152])
def test_a_large_publish_is_read_too(size: int) -> None:
    data = packet(PUBLISH, text("t") + bytes(size))
    found = published(bytearray(data), 3)
    assert found is not None
    assert (found[0] and len(found[0].payload), found[1]) == (size, len(data))


def test_what_is_no_publish_of_qos_0_or_1_is_left_to_paho() -> None:
    assert published(bytearray(packet(PUBLISH | 4, text("t") + b"\0\x01x")), 3) is None
    assert published(bytearray(packet(PUBLISH | 2, text("t") + b"\0\0x")), 3) is None
    assert published(bytearray(b"\x30\x80\x80\x80\x80\x01"), 3) is None
    assert published(bytearray(packet(0xD0, b"")), 3) is None
