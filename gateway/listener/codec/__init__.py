"""The MQTT 3.1.1 and 5 codec: bytes in, packets out, and the reverse. No sockets, no clock, no state but a buffer.

Sections are those of the MQTT 5.0 standard unless MQTT 3.1.1 is named.
"""

from gateway.listener.codec.encode import encode
from gateway.listener.codec.packets import MQTT_3_1_1, MQTT_5, NO_PROPERTIES, Packet, Properties
from gateway.listener.codec.reasons import PacketError, Reason
from gateway.listener.codec.stream import StreamDecoder

__all__ = [
    "MQTT_3_1_1",
    "MQTT_5",
    "NO_PROPERTIES",
    "Packet",
    "PacketError",
    "Properties",
    "Reason",
    "StreamDecoder",
    "encode",
]
