"""One connection to a broker: with `handshake`, all that reaches into aiomqtt, for what it has no words for.

aiomqtt 2.5 has no manual acknowledgement (empicano/aiomqtt#345), an incoming queue that throws away what does not fit,
and reads a packet in three system calls. Here a message is handed on as it comes, acknowledged when the bridge says
so, and the stream is read a block at a time and left unread while the bridge has enough to do: the broker waits, and
nothing is thrown away. What is relied on of `client._client` (paho-mqtt 2) is proved by `test_seam.py` and, for TLS, by
`test_connecting.py` in `tests/brokers`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import aiomqtt
from aiomqtt.exceptions import MqttConnectError
from paho.mqtt.subscribeoptions import SubscribeOptions

from gateway import logs
from gateway.bridge import handshake
from gateway.bridge.handshake import EndedEarly, Options, client_for, note_alerts, under_tls
from gateway.bridge.heard import MORE, Heard, published
from gateway.bridge.url import BrokerUrl
from gateway.bridge.words import plain, refused, unreached

# Longer than it takes to decide what is in flight: the answer comes behind it in the stream.
ANSWER_SECONDS: Final = 60.0
READ_BYTES: Final = 65_536
# How exactly it is known when a connection ended that was closed while this process, or its machine, was asleep.
TICK_SECONDS: Final = 1.0
_PUBACK: Final = 0x40
_log = logs.get_logger("bridge")
_UNSUPPORTED: Final = frozenset({1, 132})  # CONNACK: unacceptable protocol version (3.1.1: 3.2.2.3, 5: 3.2.2.2)
_FAILED: Final = 0x80


class BrokerFault(Exception):
    """The broker refused, or the connection is lost.

    `wrong_protocol`: it may speak another version of MQTT; `said`: it has said that it does.
    """

    def __init__(self, reason: str, *, wrong_protocol: bool = False, said: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.wrong_protocol = wrong_protocol
        self.said = said


@dataclass(frozen=True, slots=True)
class Subscription:
    """A filter, at QoS 1. `as_published` keeps the retain flag of a live message (MQTT 5)."""

    topic_filter: str
    as_published: bool = False


class Connection:
    """A connection that is open. Made by `connect`; of no use once `lost` has returned.

    `ended_at` is when it was last known to work, by `monotonic`: what the broker has held back since then is as old.
    """

    def __init__(
        self,
        client: aiomqtt.Client,
        paho: Any,  # noqa: ANN401 - it has no public type
        version: int,
        heard: Callable[[Heard], None],
        monotonic: Callable[[], float],
    ) -> None:
        self.version = version
        self.ended_at: float | None = None
        self._monotonic = monotonic
        self._heard_at = self._awake_at = monotonic()
        self._tick: asyncio.TimerHandle | None = None
        self._socket: Any = None
        self._cut_off = False
        self._heard = heard
        self.session_present = False
        self.max_packet_bytes: int | None = None
        self._client = client
        self._paho = paho
        self._buffer = bytearray()
        self._ended = False
        self._paused = False
        self._owed: list[bytes] = []
        self._loop = asyncio.get_running_loop()

    # -- reading -----------------------------------------------------------------------------------------------------

    def _take_over_reading(self) -> None:
        """Read instead of aiomqtt from the packet on that follows CONNACK; not before `resume`."""
        if self._socket is not None:
            return
        self._socket = self._paho.socket()
        self._paho._sock_recv = self._from_buffer  # noqa: SLF001 - see the module's text
        self._paused = True
        # What TLS has taken off the wire already: aiomqtt would try for ever to have paho read it.
        if waiting := getattr(self._socket, "pending", int)():
            self._buffer += self._socket.recv(waiting)
        self._loop.remove_reader(self._socket.fileno())
        self._heard_at = self._monotonic()
        self._stay_awake()

    def _stay_awake(self) -> None:
        self._awake_at = self._monotonic()
        self._tick = self._loop.call_later(TICK_SECONDS, self._stay_awake)

    def _note_end(self) -> None:
        """Remember since when there may have been no connection, as soon as it is known that there is none.

        An end that the broker's machine told is as late as it comes, if this process was awake for it. One that is
        told by silence may be as early as the last word.
        """
        if self.ended_at is None:
            self.ended_at = self._awake_at if self._cut_off else self._heard_at
        self._rest()

    def _rest(self) -> None:
        if self._tick is not None:
            self._tick.cancel()

    def _leave(self) -> None:
        """Take note that this side ends the connection, which works if something was heard within a keep-alive."""
        now = self._monotonic()
        self._cut_off = now - self._heard_at <= handshake.KEEP_ALIVE_SECONDS + TICK_SECONDS
        self._note_end()

    def _readable(self) -> None:
        try:
            while True:
                block = self._socket.recv(READ_BYTES)
                if block:
                    self._heard_at = self._monotonic()
                else:
                    self._ended = self._cut_off = True
                self._buffer += block
                if not block or not getattr(self._socket, "pending", int)():
                    break
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError as fault:
            self._ended, self._cut_off = True, isinstance(fault, ConnectionError)
        self._parse()

    def _parse(self) -> None:
        """Read what is there, until nothing is, or the bridge has enough; what is no PUBLISH is paho's."""
        try:
            self._parse_packets()
        except Exception as fault:  # noqa: BLE001 - no reader would be left, and nobody would be told
            _log.error("the broker sent what cannot be read", fault=type(fault).__name__)
            self.abort()

    def _parse_packets(self) -> None:
        at = 0
        while (at < len(self._buffer) or self._ended) and not self._paused and self._paho.socket() is not None:
            # Between packets; paho may be in the middle of one, of which the rest is its own.
            found = published(self._buffer, self.version, at) if self._paho._in_packet["command"] == 0 else None  # noqa: SLF001
            if found is not None and (heard := found[0]) is not None:
                at = found[1]
                self._heard(heard)
                continue
            if found is MORE and not self._ended:
                break
            del self._buffer[:at]
            at, before = 0, len(self._buffer)
            self._paho.loop_read()
            if len(self._buffer) == before:
                break
        del self._buffer[:at]

    def _from_buffer(self, size: int) -> bytes:
        """Stand in for a read of the socket."""
        if not self._buffer:
            if self._ended:
                return b""
            raise BlockingIOError
        block = bytes(self._buffer[:size])
        del self._buffer[:size]
        return block

    def pause(self) -> None:
        """Read no more, so that the broker keeps what it has: for a keep-alive's time at most it notices nothing."""
        if not self._paused and self._paho.socket() is not None:
            self._paused = True
            self._loop.remove_reader(self._socket.fileno())

    def resume(self) -> None:
        """Read on."""
        if self._paused and self._paho.socket() is not None:
            self._paused = False
            self._loop.add_reader(self._socket.fileno(), self._readable)
            self._loop.call_soon(self._parse)

    async def lost(self) -> None:
        """Return when the connection has ended."""
        with contextlib.suppress(aiomqtt.MqttError, OSError):
            await asyncio.shield(self._client._disconnected)  # noqa: SLF001

    def abort(self) -> None:
        """End the connection without a word, so that the broker publishes its will."""
        self._note_end()
        self._paho._sock_close()  # noqa: SLF001
        if not self._client._disconnected.done():  # noqa: SLF001
            self._client._disconnected.set_result(None)  # noqa: SLF001

    # -- writing -----------------------------------------------------------------------------------------------------

    def acknowledge(self, mids: Iterable[int]) -> None:
        """Acknowledge messages, in this order, in one write (MQTT 5, 3.4; [MQTT-4.6.0-2])."""
        self._write(b"".join(struct.pack("!BBH", _PUBACK, 2, mid) for mid in mids))

    def send(self, topic: str, payload: bytes, *, retain: bool = False, correlation_data: bytes | None = None) -> None:
        """Publish at QoS 0, without waiting: it is written before any acknowledgement that is asked for later."""
        name = topic.encode()
        head = struct.pack("!H", len(name)) + name
        if self.version == 5:
            properties = b""
            if correlation_data is not None:
                properties = b"\x09" + struct.pack("!H", len(correlation_data)) + correlation_data
            head += _length(len(properties)) + properties
        packet = (b"\x31" if retain else b"\x30") + _length(len(head) + len(payload)) + head + payload
        if self.max_packet_bytes is None or len(packet) <= self.max_packet_bytes:
            # A larger one would end the connection, and again when what it answers is sent again ([MQTT-3.2.2-15]).
            self._write(packet)

    def _write(self, data: bytes) -> None:
        """Collect what is written in one turn of the event loop, so that it is one system call."""
        if not self._owed:
            self._loop.call_soon(self._flush)
        self._owed.append(data)

    def _flush(self) -> None:
        data, self._owed = b"".join(self._owed), []
        if data and self._paho.socket() is not None:
            # paho writes what is queued as it is; as an acknowledgement, it expects nothing of it.
            self._paho._packet_queue(_PUBACK, data, 0, 1)  # noqa: SLF001

    def takes(self, topic: str, payload: bytes) -> bool:
        """Tell whether the broker takes a PUBLISH of that size at QoS 1; over MQTT 3.1.1 it does not say."""
        rest = 2 + len(topic.encode()) + 2 + 1 + len(payload)
        return self.max_packet_bytes is None or 1 + len(_length(rest)) + rest <= self.max_packet_bytes

    async def publish(self, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False) -> None:
        """Publish and wait for the broker's PUBACK; raises `BrokerFault`."""
        try:
            await self._client.publish(topic, payload, qos=qos, retain=retain)
        except (aiomqtt.MqttError, ValueError) as fault:
            raise BrokerFault(plain(fault)) from None

    async def subscribe(self, wanted: Sequence[Subscription]) -> list[str]:
        """Subscribe; return the filters that the broker refused. Raises `BrokerFault`."""
        topics: list[Any]
        if self.version == 5:
            topics = [
                (it.topic_filter, SubscribeOptions(qos=1, retainAsPublished=it.as_published, retainHandling=2))
                for it in wanted
            ]
        else:
            topics = [(it.topic_filter, 1) for it in wanted]
        try:
            codes = await self._client.subscribe(topics)
        except (aiomqtt.MqttError, ValueError) as fault:
            raise BrokerFault(plain(fault)) from None
        if len(codes) != len(wanted):
            raise BrokerFault("the broker's SUBACK has not one code for each filter")
        granted = [code if isinstance(code, int) else code.value for code in codes]
        return [it.topic_filter for it, code in zip(wanted, granted, strict=True) if code >= _FAILED]

    async def unsubscribe(self, topic_filters: Sequence[str]) -> None:
        """End subscriptions; raises `BrokerFault`."""
        try:
            await self._client.unsubscribe(list(topic_filters))
        except (aiomqtt.MqttError, ValueError) as fault:
            raise BrokerFault(plain(fault)) from None


def _length(size: int) -> bytes:
    """Write a variable byte integer (MQTT 5, 1.5.5)."""
    out = bytearray()
    while True:
        size, digit = divmod(size, 128)
        out.append(digit | (0x80 if size else 0))
        if not size:
            return bytes(out)


@contextlib.asynccontextmanager
async def connect(
    options: Options, heard: Callable[[Heard], None], monotonic: Callable[[], float] | None = None
) -> AsyncIterator[Connection]:
    """Connect, hand every message to `heard` on the event loop, and disconnect at the end. Raises `BrokerFault`.

    Nothing is heard before the context is entered. `monotonic` goes on while the machine sleeps; without it the event
    loop's own clock is taken.
    """
    client = client_for(options)
    paho: Any = client._client  # noqa: SLF001 - see the module's text
    connection = Connection(client, paho, options.version, heard, monotonic or asyncio.get_running_loop().time)
    paho._ssl_wrap_socket = lambda plain_socket: under_tls(plain_socket, paho, options.url.host)  # noqa: SLF001
    paho.manual_ack_set(on=True)
    _note_answers(client, paho, connection)
    alerts = note_alerts(paho)
    try:
        await _enter(client, paho, alerts, options.url)
    except BaseException:
        connection._rest()  # noqa: SLF001
        raise
    client.timeout = ANSWER_SECONDS
    connection.resume()
    try:
        yield connection
    finally:
        connection._leave()  # noqa: SLF001
        connection._flush()  # noqa: SLF001
        with contextlib.suppress(aiomqtt.MqttError, OSError):
            await client.__aexit__(None, None, None)
        if client._disconnected.done() and not client._disconnected.cancelled():  # noqa: SLF001
            client._disconnected.exception()  # noqa: SLF001 - it was seen


async def _enter(client: aiomqtt.Client, paho: Any, alerts: list[ssl.SSLError], url: BrokerUrl) -> None:  # noqa: ANN401
    try:
        await client.__aenter__()
    except MqttConnectError as fault:
        code = fault.rc if isinstance(fault.rc, int) else getattr(fault.rc, "value", None)
        raise BrokerFault(refused(code, fault, url), wrong_protocol=code in _UNSUPPORTED, said=True) from None
    except (aiomqtt.MqttError, ssl.SSLError, ValueError) as fault:
        # Reached, and no CONNACK: some hang up on a version that they do not know, some say nothing at all.
        reached = not alerts and (paho.socket() is not None or isinstance(fault, EndedEarly))
        paho._sock_close()  # noqa: SLF001 - aiomqtt leaves it open after a time-out
        why = unreached(fault, alerts[-1] if alerts else None, url)
        raise BrokerFault(why, wrong_protocol=reached) from None
    if paho.socket() is None:
        raise BrokerFault("the broker hung up behind its CONNACK")


def _note_answers(client: aiomqtt.Client, paho: Any, connection: Connection) -> None:  # noqa: ANN401
    """Have CONNACK's session flag noted, and a connection that ends before CONNACK told at once."""

    def connected(paho: Any, data: Any, flags: Any, code: Any, properties: Any = None) -> None:  # noqa: ANN401
        connection.session_present = bool(flags.session_present)
        connection.max_packet_bytes = getattr(properties, "MaximumPacketSize", None)
        client._on_connect(paho, data, flags, code, properties)  # noqa: SLF001
        if client._connected.done() and client._connected.exception() is None:  # noqa: SLF001
            # Here, and not later: what the session held comes in one burst with this, and no word of it is paho's.
            connection._take_over_reading()  # noqa: SLF001

    def disconnected(paho: Any, data: Any, flags: Any, code: Any, properties: Any = None) -> None:  # noqa: ANN401
        connection._note_end()  # noqa: SLF001
        waiting = client._connected  # noqa: SLF001
        if not waiting.done():
            waiting.set_exception(
                EndedEarly("the broker hung up instead of answering; where it speaks TLS, write mqtts://")
            )
        client._on_disconnect(paho, data, flags, code, properties)  # noqa: SLF001

    paho.on_connect, paho.on_disconnect = connected, disconnected
