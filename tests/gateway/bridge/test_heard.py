"""Proves that a PUBLISH is read off the stream as it was written, or left to paho, whatever else is in the stream."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from gateway.bridge.heard import Heard, published
from tests.support.plain_mqtt import PUBLISH, packet, text

TOPICS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=40)
PAYLOADS = st.binary(max_size=300)


def written(heard: Heard, version: int, properties: bytes = b"") -> bytes:
    kind = PUBLISH | (2 if heard.mid else 0) | (8 if heard.dup else 0) | heard.retain
    mid = struct.pack("!H", heard.mid) if heard.mid else b""
    extra = bytes([len(properties)]) + properties if version == 5 else b""
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
def test_a_publish_that_is_not_whole_is_left(heard: Heard, version: int) -> None:
    data = written(heard, version)
    assert all(published(bytearray(data[:size]), version) is None for size in range(len(data)))


@given(messages())
def test_a_publish_with_properties_is_left_to_paho(heard: Heard) -> None:
    assert published(bytearray(written(heard, 5, b"\x01\x01")), 5) is None


@given(st.binary(max_size=60), st.sampled_from([3, 5]))
def test_whatever_comes_it_reads_no_further_than_the_packet_and_never_fails(data: bytes, version: int) -> None:
    found = published(bytearray(data), version)
    if found is not None:
        heard, size = found
        assert size <= len(data)
        assert data[0] & 0xF0 == PUBLISH
        assert not data[0] & 0x04
        assert heard.topic
        assert bool(heard.mid) == bool(data[0] & 0x02)


def test_a_large_publish_and_one_of_qos_2_are_left_to_paho() -> None:
    assert published(bytearray(packet(PUBLISH, text("t") + bytes(16_384))), 3) is None
    assert published(bytearray(packet(PUBLISH | 4, text("t") + b"\0\x01x")), 3) is None
