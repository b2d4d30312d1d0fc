"""What may be written to a client: within its largest packet, in the detail that it wants, shortened by aliases."""

from __future__ import annotations

import msgspec

from gateway.listener.aliases import OutgoingAliases
from gateway.listener.codec import MQTT_5, NO_PROPERTIES, Packet, encode
from gateway.listener.codec import packets as p
from gateway.listener.handshake import Terms


def encode_publish(publish: p.Publish, terms: Terms, aliases: OutgoingAliases | None) -> bytes | None:
    """Write a PUBLISH, or return None when it is larger than the client takes (3.1.2.11.4)."""
    shorter, remember = (publish, None) if aliases is None else aliases.shorten(publish)
    data = encode(shorter, terms.version)
    if terms.packet_bytes is not None and len(data) > terms.packet_bytes:
        return None
    if remember is not None:
        remember()
    return data


def encode_answer(packet: Packet, version: int, terms: Terms | None) -> bytes | None:
    """Write another packet, without its reason string where that is not wanted or too much; None when still too large.

    `terms` is None where none were agreed on: a CONNECT that was not even parsed.
    """
    data = encode(packet, version)
    if terms is None or version != MQTT_5:
        return data
    properties = getattr(packet, "properties", NO_PROPERTIES)
    unwanted = not terms.problem_information and not isinstance(packet, p.ConnAck | p.Disconnect)  # 3.1.2.11.7
    if properties.reason_string is not None and (unwanted or _too_large(data, terms)):
        data = encode(msgspec.structs.replace(packet, properties=NO_PROPERTIES), version)
    return None if _too_large(data, terms) else data


def _too_large(data: bytes, terms: Terms) -> bool:
    return terms.packet_bytes is not None and len(data) > terms.packet_bytes
