"""One connection's conversation (section 4), pure: what may come when, and what is answered.

No sockets, no tasks, no clock of its own. It reaches the outside through a `Wire` and the application's port.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import Final

from gateway.listener import handshake as shake
from gateway.listener.aliases import IncomingAliases, OutgoingAliases
from gateway.listener.codec import MQTT_5, NO_PROPERTIES, Packet, PacketError, Properties, Reason
from gateway.listener.codec import packets as p
from gateway.listener.codec.reasons import violation
from gateway.listener.endings import is_presence
from gateway.listener.outgoing import encode_answer, encode_publish
from gateway.listener.port import Admitted, Denied, EndReason, Published, RefusalReason
from gateway.listener.quotas import Overhead, check_unreleased
from gateway.listener.session import Decision, Session
from gateway.listener.subscribing import subscribe, unsubscribe
from gateway.listener.wire import Surroundings, Wire

_FAILURE: Final = 0x80
_ENDS: Final[dict[Reason, EndReason]] = {Reason.PACKET_TOO_LARGE: "too_large", Reason.MESSAGE_RATE_TOO_HIGH: "rate"}
_KEPT_A_PACKET: Final = 10  # of kept presence, which a SUBSCRIBE is sent


class Phase(Enum):
    """Where a conversation stands."""

    NEW = auto()  # nothing but CONNECT may come
    AUTHENTICATING = auto()  # the application is asked; nothing is read on
    OPEN = auto()
    DRAINING = auto()  # the client has said all; what it published is still being decided
    ENDED = auto()


class Conversation:
    """The protocol's rules for one connection. `receive` is called with packets in order, and never when `blocked`."""

    __slots__ = (
        "_acks",
        "_aliases_in",
        "_aliases_out",
        "_around",
        "_connect",
        "_overhead",
        "_refuse",
        "_will",
        "_wire",
        "phase",
        "session",
        "terms",
    )

    def __init__(self, around: Surroundings, wire: Wire, *, refuse: RefusalReason | None = None) -> None:
        self._around = around
        self._wire = wire
        self._refuse = refuse
        self._connect: p.Connect | None = None  # until it is answered
        self._will: p.Will | None = None
        self._overhead = Overhead()
        self._acks: deque[Decision] | None = None  # in the order of the PUBLISHes (4.6)
        self._aliases_in: IncomingAliases | None = None
        self._aliases_out: OutgoingAliases | None = None
        self.phase = Phase.NEW
        self.session: Session | None = None
        self.terms: shake.Terms | None = None

    def blocked(self) -> bool:
        """Say whether the next packet has to wait."""
        if self.phase is Phase.OPEN:
            return self._acks is not None and len(self._acks) >= self._around.limits.concurrent_publishes
        return self.phase is not Phase.NEW

    def undecided(self) -> int:
        """PUBLISHes that the application has not decided, or that wait behind one."""
        return len(self._acks or ())

    # The client speaks.

    def receive(self, packet: Packet) -> None:
        """Take the next packet. Whatever the client did wrong ends the conversation; nothing is raised."""
        try:
            if self.phase is Phase.NEW and isinstance(packet, p.Connect):
                self._on_connect(packet)
            elif self.phase is Phase.OPEN:
                self._on_packet(packet)
            else:
                raise violation("the packet may not come now (3.1, 4.12)")
        except PacketError as error:
            self.malformed(error)

    def malformed(self, error: PacketError) -> None:
        """End the conversation over bytes that are no packet or a packet that is not allowed (4.13)."""
        if self.phase is Phase.NEW:
            if error.reason is Reason.UNSUPPORTED_PROTOCOL_VERSION:
                # 3.1.2.2 of both versions: the answer is in the version that the client is nearest to.
                self._write(shake.refused(error.reason), MQTT_5 if error.version > MQTT_5 else p.MQTT_3_1_1)
            elif error.version == MQTT_5:
                self._write(shake.refused(error.reason, error.text), MQTT_5)
        self.end(_ENDS.get(error.reason, "malformed"), error.reason, text=error.text)

    def end_of_stream(self) -> None:
        """Take note that nothing more will come; what was published before is decided and acknowledged first."""
        if self.phase is Phase.OPEN and self._acks:
            self.phase = Phase.DRAINING
        elif self.phase in {Phase.NEW, Phase.OPEN}:
            self.end("closed", None)

    # The application has answered.

    def admitted(self, who: Admitted) -> None:
        """Open the session of an authenticated CONNECT; only here anything of a named session is touched."""
        connect, terms, around = self._connect, self.terms, self._around
        if self.phase is not Phase.AUTHENTICATING or connect is None or terms is None:
            return
        if not shake.is_device_name(who.device):
            self.denied(Denied("unavailable"))
            return
        sessions, now = around.sessions, around.monotonic()
        persistent = terms.expiry_seconds > 0
        if (refusal := sessions.refusal(who, terms.client_id, persistent=persistent)) is not None:
            self._turn_away(refusal, who.device)
            return
        existing = sessions.find(who.device, terms.client_id)
        if existing is not None and existing.link is not None:
            existing.link.end("taken_over", Reason.SESSION_TAKEN_OVER)  # 3.1.4: the newest connection wins
        opened = sessions.open(who, terms.client_id, clean=terms.clean, expiry_seconds=terms.expiry_seconds)
        for ended in opened.ended:
            around.endings.end(ended, now)
        around.endings.resume(opened.session)
        self._connect = None
        self.phase = Phase.OPEN
        self.session = opened.session
        opened.session.link = self
        self._take_will(connect.will, who)
        self._send(shake.accepted(connect, terms, around.limits, who.device, present=opened.present))
        around.application.connected(who, terms.client_id, self._wire.address)
        if self._linked():  # the application may have closed the device just there
            opened.session.attach(self, terms.receive_maximum, now)

    def denied(self, denied: Denied) -> None:
        """Refuse a CONNECT (3.1.4, 3.2.2.2)."""
        if self.phase is Phase.AUTHENTICATING:
            self._send(shake.refused(shake.DENIALS[denied.reason]))
            self.end("closed", None)

    def settle(self, decision: Decision, *, stopping: bool = False) -> None:
        """Take the application's answer, or its failure, for one PUBLISH."""
        session = self.session
        assert session is not None
        if decision.failed:
            if session.received is not None and session.received.get(decision.packet_id or 0) is decision:
                del session.received[decision.packet_id or 0]
            self.end("unavailable", Reason.SERVER_SHUTTING_DOWN if stopping else Reason.SERVER_BUSY)
        self.flush()
        if session.link is not None and session.link is not self:
            session.link.flush()  # a QoS 2 PUBLISH that came again on a newer connection shares this decision

    # The session speaks: a Link.

    def send_publish(self, publish: p.Publish) -> bool:
        """Write a PUBLISH; False when the client may not be sent it."""
        terms = self.terms
        assert terms is not None
        if publish.qos == 0 and self._wire.congested():
            return False
        data = encode_publish(publish, terms, self._aliases_out)
        if data is None:
            return False
        self._wire.write(data)
        return True

    def flush(self) -> None:
        """Send replies and acknowledgements of what is decided, in the order of the PUBLISHes (4.6)."""
        acks = self._acks
        while acks and (acks[0].handled is not None or acks[0].failed):
            decision = acks.popleft()
            if decision.failed:
                self.end("unavailable", Reason.SERVER_BUSY)
            else:
                self._answer(decision)
        if not acks:
            self._acks = None
            if self.phase is Phase.DRAINING:
                self.end("closed", None)

    def end(self, reason: EndReason, code: Reason | None, *, will: bool = True, text: str = "") -> None:
        """Close the connection, telling an MQTT 5 client why (4.13); what is being decided goes on without it."""
        if self.phase is Phase.ENDED:
            return
        if code is not None and self._linked() and self._version() == MQTT_5:
            self._send(p.Disconnect(code, Properties(reason_string=text) if text else NO_PROPERTIES))
        self.phase = Phase.ENDED
        self._part(reason, will=will)
        self._connect = None
        self._wire.close()

    # CONNECT.

    def _on_connect(self, connect: p.Connect) -> None:
        around = self._around
        terms = shake.agree(connect, around.limits, around.fresh_name)
        if isinstance(terms, Reason):
            if terms is Reason.CLIENT_ID_NOT_VALID:
                around.application.refused("client_id", "", self._wire.address)
            self._write(shake.refused(terms), connect.version)
            self.end("closed", None)
            return
        self._connect, self.terms, self.phase = connect, terms, Phase.AUTHENTICATING
        if self._refuse is None and not around.connects.take(self._wire.address, around.monotonic()):
            self._refuse = "connects_per_second"
        if self._refuse is not None:
            self._turn_away(self._refuse, "")
        else:
            self._wire.authenticate(connect)

    def _turn_away(self, refusal: RefusalReason, device: str) -> None:
        reason, text = shake.REFUSALS[refusal]
        self._around.application.refused(refusal, device, self._wire.address)
        self._send(shake.refused(reason, text))
        self.end("closed", None)

    def _take_will(self, will: p.Will | None, who: Admitted) -> None:
        if will is not None and not is_presence(who.device, will.topic):
            self._around.application.will_dropped(who, will.topic)
            will = None
        self._will = will
        terms = self.terms
        assert terms is not None
        if terms.version == MQTT_5:
            self._aliases_in = IncomingAliases(self._around.limits.topic_aliases)
            if terms.alias_maximum:
                self._aliases_out = OutgoingAliases(min(terms.alias_maximum, self._around.limits.topic_aliases))

    # Every other packet.

    def _on_packet(self, packet: Packet) -> None:
        session = self.session
        assert session is not None
        match packet:
            case p.Publish():
                self._on_publish(packet, session)
            case p.PubAck():
                if not session.acknowledged(packet.packet_id, self._around.monotonic()):
                    self._count()
            case p.PubRel():
                self._on_pubrel(packet, session)
            case p.PubRec():
                # Nothing is sent at QoS 2; one from an earlier server's session is let go (4.3.3).
                self._count()
                self._send(p.PubRel(packet.packet_id, Reason.PACKET_ID_NOT_FOUND))
            case p.PubComp():
                self._count()
            case p.Subscribe():
                self._on_subscribe(packet, session)
            case p.Unsubscribe():
                self._count(len(packet.filters))
                self._send(unsubscribe(self._around, session, packet))
            case p.PingReq():
                self._count()
                self._send(p.PingResp())
            case p.Disconnect():
                self._on_disconnect(packet, session)
            case p.Connect() | p.ConnAck() | p.SubAck() | p.UnsubAck() | p.PingResp() | p.Auth():
                raise violation("a client may not send this packet now (3.1, 4.12)")

    def _count(self, packets: int = 1) -> None:
        self._overhead.count(self._around.limits, self._around.monotonic(), packets)

    def _on_publish(self, packet: p.Publish, session: Session) -> None:
        """PUBLISH: 3.3.4, 4.3 and, for a QoS 2 id that is not released, 4.3.3."""
        properties, topic = packet.properties, packet.topic
        if properties.subscription_ids:
            raise violation("a client's PUBLISH holds a subscription identifier (3.3.4)")
        if self._aliases_in is not None:
            topic = self._aliases_in.resolve(topic, properties.topic_alias)
        repeated = None
        if packet.packet_id is not None:
            if packet.qos == 2 and session.received is not None:
                repeated = session.received.get(packet.packet_id)
            if repeated is None:
                check_unreleased(self._around.limits, self._version(), session, self._acks or ())
        decision = repeated or Decision(
            Published(
                topic=topic,
                payload=packet.payload,
                qos=packet.qos,
                retain=packet.retain,
                dup=packet.dup,
                response_topic=properties.response_topic,
                correlation_data=properties.correlation_data,
                user_properties=properties.user,
                client_id=session.client_id,
            ),
            packet.packet_id,
        )
        if self._acks is None:
            self._acks = deque()
        self._acks.append(decision)
        if repeated is not None:
            self._count()
            self.flush()
            return
        if packet.qos == 2 and packet.packet_id is not None:
            session.received = session.received or {}
            session.received[packet.packet_id] = decision
        self._wire.decide(decision)

    def _on_pubrel(self, packet: p.PubRel, session: Session) -> None:
        """PUBREL: 3.6 and 4.3.3."""
        decision = session.received.get(packet.packet_id) if session.received is not None else None
        if decision is None or session.received is None:
            self._count()
        else:
            if decision.handled is None:
                raise violation("PUBREL came before PUBREC (4.3.3)")
            del session.received[packet.packet_id]
            if not session.received:
                session.received = None
        self._send(p.PubComp(packet.packet_id, Reason.SUCCESS if decision is not None else Reason.PACKET_ID_NOT_FOUND))

    def _on_subscribe(self, packet: p.Subscribe, session: Session) -> None:
        """SUBSCRIBE: 3.8.4."""
        self._count(len(packet.filters))
        granted, kept = subscribe(self._around, session, packet)
        self._count(len(kept) // _KEPT_A_PACKET)
        self._send(granted)
        for message in kept:
            session.deliver(message, self._around.monotonic())

    def _on_disconnect(self, packet: p.Disconnect, session: Session) -> None:
        """DISCONNECT: 3.14.4; the will is gone unless reason 0x04 asks for it."""
        expiry = packet.properties.session_expiry
        if expiry is not None:
            if expiry and not session.expiry_seconds:
                raise violation("DISCONNECT sets a session expiry that CONNECT did not (3.14.2.2.2)")
            session.expiry_seconds = min(expiry, self._around.limits.session_seconds)
        self._part("disconnected", will=packet.reason == Reason.DISCONNECT_WITH_WILL)
        self.phase = Phase.DRAINING
        self.flush()

    # The server speaks.

    def _answer(self, decision: Decision) -> None:
        handled, session = decision.handled, self.session
        assert handled is not None
        assert session is not None
        if not decision.replied:
            decision.replied = True
            now = self._around.monotonic()
            for reply in handled.replies:
                self._around.sessions.reply(reply.device or session.who.device, reply, now)
            if handled.presence is not None:
                self._around.endings.tell(
                    session.who, session.client_id, handled.presence, decision.qos, now, retain=decision.retain
                )
        if decision.packet_id is None or self.phase is Phase.ENDED:
            return
        properties = Properties(reason_string=handled.reason_string) if handled.reason_string else NO_PROPERTIES
        if decision.qos == 1:
            self._send(p.PubAck(decision.packet_id, handled.reason, properties))
            return
        if handled.reason >= _FAILURE and self._version() == MQTT_5 and session.received is not None:
            session.received.pop(decision.packet_id, None)  # 4.3.3: the id is free again
        self._send(p.PubRec(decision.packet_id, handled.reason, properties))

    def _send(self, packet: Packet) -> None:
        terms = self.terms
        assert terms is not None
        self._write(packet, terms.version)

    def _write(self, packet: Packet, version: int) -> None:
        if (data := encode_answer(packet, version, self.terms)) is not None:
            self._wire.write(data)

    def _part(self, reason: EndReason, *, will: bool) -> None:
        """Take the conversation out of its session, once."""
        session = self.session
        if session is None or not self._linked():
            return
        left, self._will = self._will if will else None, None
        self._around.endings.part(session, left, self._around.monotonic())
        self._around.application.disconnected(session.who, session.client_id, self._wire.address, reason)

    def _linked(self) -> bool:
        return self.session is not None and self.session.link is self

    def _version(self) -> int:
        return self.terms.version if self.terms is not None else 0
