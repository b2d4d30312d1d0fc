"""Proves that no packets in any order upset a conversation, and what always holds of its answers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.listener.codec import MQTT_3_1_1, Packet, StreamDecoder
from gateway.listener.codec import packets as p
from gateway.listener.conversation import Conversation, Phase
from gateway.listener.endings import Endings
from gateway.listener.limits import ListenerLimits
from gateway.listener.port import Admitted, Handled, Reply
from gateway.listener.presences import Presences
from gateway.listener.session import Decision
from gateway.listener.sessions import Sessions
from gateway.listener.strangers import Connects
from gateway.listener.wire import Surroundings
from tests.gateway.listener import strategies as some
from tests.gateway.listener.client import connect
from tests.gateway.listener.fake import FakeApplication

LIMITS = ListenerLimits(concurrent_publishes=4, receive_maximum=3)


class Wire:
    """Writes down what a conversation wants of it."""

    address = "192.0.2.1"

    def __init__(self, version: int) -> None:
        self.decoder = StreamDecoder(1_000_000, version)
        self.closed = False
        self.undecided: list[Decision] = []
        self.said: list[Packet] = []

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.decoder.feed(data)
        while (packet := self.decoder.next()) is not None:
            self.said.append(packet)

    def congested(self) -> bool:
        return False

    def authenticate(self, connect: p.Connect) -> None:
        pass

    def decide(self, decision: Decision) -> None:
        self.undecided.append(decision)

    def close(self) -> None:
        self.closed = True


def surroundings() -> Surroundings:
    application = FakeApplication()
    sessions = Sessions(LIMITS, application.may_subscribe, lambda _: None)
    presences = Presences(LIMITS)
    return Surroundings(
        application=application,
        limits=LIMITS,
        sessions=sessions,
        endings=Endings(application, sessions, presences, lambda *_: None, lambda _: None),
        presences=presences,
        connects=Connects(1, 10, 0.0),
        monotonic=lambda: 0.0,
        fresh_name=lambda: "fresh",
    )


def opened(version: int) -> tuple[Conversation, Wire]:
    wire = Wire(version)
    conversation = Conversation(surroundings(), wire)
    conversation.receive(connect("lamp", version=version, clean_start=False))
    conversation.admitted(Admitted("lamp"))
    assert conversation.phase is Phase.OPEN
    wire.said.clear()
    return conversation, wire


def settle(conversation: Conversation, decision: Decision, *, failed: bool) -> None:
    decision.failed = failed
    if not failed:
        decision.handled = Handled((Reply("replies/a/b/c/accepted", b"{}"),))
    conversation.settle(decision)


@given(st.data(), some.versions)
def test_any_packets_in_any_order_are_answered_or_end_the_conversation(data: st.DataObject, version: int) -> None:
    conversation, wire = opened(version)
    for _ in range(data.draw(st.integers(0, 12))):
        if conversation.phase is Phase.ENDED:
            break
        if wire.undecided and (conversation.blocked() or data.draw(st.booleans())):
            decision = wire.undecided.pop(data.draw(st.integers(0, len(wire.undecided) - 1)))
            settle(conversation, decision, failed=data.draw(st.integers(0, 9)) == 0)
        elif not conversation.blocked():
            conversation.receive(data.draw(some.packets(version)))
    for decision in wire.undecided:
        settle(conversation, decision, failed=False)
    conversation.end_of_stream()
    assert (conversation.phase is Phase.ENDED) == wire.closed
    assert conversation.phase in {Phase.ENDED, Phase.OPEN} or conversation.undecided()


@given(st.lists(st.integers(1, 2), min_size=1, max_size=4), st.data(), some.versions)
def test_publishes_are_acknowledged_once_each_in_their_order(
    levels: list[int], data: st.DataObject, version: int
) -> None:
    levels = levels[:3] if version != MQTT_3_1_1 else levels
    conversation, wire = opened(version)
    for number, qos in enumerate(levels, 1):
        assert not conversation.blocked()
        conversation.receive(p.Publish(topic="signals/a/b", payload=b"{}", qos=qos, packet_id=number))
    assert wire.said == []
    order = data.draw(st.permutations(wire.undecided))
    for position, decision in enumerate(order):
        settle(conversation, decision, failed=False)
        done = {id(one) for one in order[: position + 1]}
        ready = 0
        while ready < len(levels) and id(wire.undecided[ready]) in done:
            ready += 1
        acknowledged = [(type(one), one.packet_id) for one in wire.said if isinstance(one, p.PubAck | p.PubRec)]
        assert acknowledged == [
            (p.PubAck if qos == 1 else p.PubRec, number) for number, qos in enumerate(levels[:ready], 1)
        ]


@given(st.integers(0, 3), st.integers(0, 3), some.versions)
def test_an_undecided_publish_is_never_acknowledged_nor_is_what_follows_it(
    before: int, after: int, version: int
) -> None:
    conversation, wire = opened(version)
    count = min(before + 1 + after, 3)
    failing = min(before, count - 1)
    for number in range(1, count + 1):
        conversation.receive(p.Publish(topic="signals/a/b", payload=b"{}", qos=1, packet_id=number))
    for position, decision in enumerate(wire.undecided):
        settle(conversation, decision, failed=position == failing)
    assert [one.packet_id for one in wire.said if isinstance(one, p.PubAck)] == list(range(1, failing + 1))
    assert wire.closed
