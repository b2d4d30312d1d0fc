"""Every bound of the listener, by name and with its unit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    """What one listener takes. The defaults are for a gateway of a few thousand devices on one process."""

    # Connections.
    max_connections: int = 12_000
    refusals_at_once: int = 256  # connections over the limit that are still read, to be told why
    strangers_an_address: int = 4_000  # connections of one address that have not authenticated
    connects_per_second: float = 500.0
    connects_burst: int = 2_000
    connect_seconds: float = 5.0  # from the accepted connection to its CONNECT
    authenticate_seconds: float = 10.0
    connect_bytes: int = 4_096
    packet_bytes: int = 65_536
    client_id_bytes: int = 256
    max_keep_alive_seconds: int = 3_600  # what MQTT 5 is told when it asks for more or for none
    stall_seconds: float = 30.0  # a client that does not read what it is sent is closed after this
    unsent_bytes: int = 262_144  # and at once when this much waits for it

    # From the client.
    receive_maximum: int = 32
    concurrent_publishes: int = 40
    unreleased_ids: int = 256  # QoS 2 ids of a 3.1.1 client, which knows no receive maximum
    topic_aliases: int = 16
    # What is no new PUBLISH and nothing that one brings with it: PINGREQ, each filter of SUBSCRIBE and UNSUBSCRIBE, an
    # acknowledgement of nothing, a repeat. The application counts PUBLISHes.
    packets_per_second: float = 20.0
    packets_burst: int = 600

    # To the client, and sessions.
    window: int = 20  # unacknowledged QoS 1 messages to one client
    queue_messages: int = 100
    queue_bytes: int = 262_144
    subscriptions: int = 100
    filters_in_a_packet: int = 256  # a SUBSCRIBE of 64 KiB has room for 16,000, each a question to the application
    filter_levels: int = 32
    filter_bytes: int = 1_024
    presences: int = 50_000  # retained messages on `status`, the last of each device
    presence_bytes: int = 1_024  # a longer one is passed on and not kept
    presence_burst_bytes: int = 131_072  # of kept ones for one SUBSCRIBE
    session_seconds: int = 86_400
    max_sessions: int = 50_000

    def __post_init__(self) -> None:
        assert self.connect_bytes <= self.packet_bytes <= self.unsent_bytes
        assert self.presence_bytes < self.presence_burst_bytes < self.unsent_bytes
        # Else a client that sends more than it was allowed would only be read later, and never be told.
        assert self.receive_maximum < self.concurrent_publishes
        assert self.filters_in_a_packet < self.packets_burst
        assert self.max_keep_alive_seconds <= 65_535
