"""Fuzz the MQTT decoder with atheris: nothing but the codec's own error may come out of it, in bounded memory.

    pip install atheris
    python -m tests.fuzz.listener_decoder [--seconds 600] [--corpus DIRECTORY]

The first byte of an input chooses the version (0: a CONNECT decides) and how the rest is cut into segments. What is
read is written again and read once more: both readings have to be the same. Ends with 1 at the first finding, which
libFuzzer writes to a file.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import atheris  # type: ignore[import-not-found, import-untyped, unused-ignore]

with atheris.instrument_imports(include=["gateway.listener.codec"]):
    from gateway.listener.codec import MQTT_3_1_1, MQTT_5, Packet, PacketError, StreamDecoder, encode
    from gateway.listener.codec import packets as p

LIMIT = 4_096
VERSIONS = (0, MQTT_3_1_1, MQTT_5)
SEGMENTS = (1, 2, 7, 64, 65_536)


def read(data: bytes) -> None:
    """Decode one input; an exception is a finding."""
    if not data:
        return
    decoder = StreamDecoder(LIMIT, VERSIONS[data[0] % len(VERSIONS)])
    size = SEGMENTS[data[0] // len(VERSIONS) % len(SEGMENTS)]
    stream = data[1:]
    try:
        for start in range(0, len(stream), size):
            decoder.feed(stream[start : start + size])
            while (packet := decoder.next()) is not None:
                again(packet, decoder.version)
            assert decoder.buffered() <= LIMIT
    except PacketError as error:
        assert error.reason >= 0x80  # noqa: PT017 - not a test, and the error is allowed, not expected


def again(packet: Packet, version: int) -> None:
    """Write a packet that was read, and read it back."""
    if isinstance(packet, p.ConnAck) and packet.reason != 0:
        return  # a refusal has fewer codes in 3.1.1, and never says that a session is present
    if isinstance(packet, p.SubAck) and version == MQTT_3_1_1:
        return
    decoder = StreamDecoder(2 * LIMIT, version)
    decoder.feed(encode(packet, version))
    assert decoder.next() == packet


def seeds(directory: Path) -> None:
    """Write a few valid packets to start from."""
    will = p.Will(topic="status", payload=b"offline", qos=1, properties=p.Properties(will_delay=5))
    connect = p.Connect(version=MQTT_5, client_id="c", username="door", password=b"x", will=will)
    rich = p.Properties(topic_alias=1, correlation_data=b"c", response_topic="replies/x", user=(("a", "b"),))
    samples: list[tuple[int, Packet]] = [
        (0, connect),
        (0, p.Connect(version=MQTT_3_1_1, client_id="c", username="door", password=b"x")),
        (2, p.Publish(topic="signals/a/b", payload=b"{}", qos=1, packet_id=1, properties=rich)),
        (1, p.Publish(topic="signals/a/b", payload=b"{}")),
        (2, p.Subscribe(1, (p.Filter("replies/#", 1), p.Filter("a/+", 2, no_local=True)))),
        (1, p.Unsubscribe(1, ("replies/#",))),
        (2, p.PubAck(1, 0x87, p.Properties(reason_string="not_found"))),
        (2, p.Disconnect(4, p.Properties(session_expiry=5))),
    ]
    for number, (choice, packet) in enumerate(samples):
        version = packet.version if isinstance(packet, p.Connect) else VERSIONS[choice]
        (directory / f"seed-{number}").write_bytes(bytes((choice,)) + encode(packet, version))


def main() -> None:
    """Run until the time is over or something is found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--corpus", type=Path)
    options = parser.parse_args()
    corpus = options.corpus or Path(tempfile.mkdtemp(prefix="fuzz-listener-"))
    seeds(corpus)
    arguments = [f"-max_total_time={options.seconds}", "-max_len=2048", "-rss_limit_mb=512", "-timeout=5", str(corpus)]
    atheris.Setup([sys.argv[0], *arguments], read)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
