"""Proves the laws of a session, whatever comes between: order, at least once, DUP, the window, the queue's bound."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.listener.codec import Reason
from gateway.listener.codec.packets import Publish
from gateway.listener.limits import ListenerLimits
from gateway.listener.port import Admitted, EndReason
from gateway.listener.session import Delivery, Message, Session

LIMITS = ListenerLimits(window=4, queue_messages=6)


@dataclass
class Client:
    """The other end of a link: what it was sent and has not acknowledged, oldest first."""

    receive_maximum: int
    unacknowledged: dict[int, Publish] = field(default_factory=dict)
    heard: list[Publish] = field(default_factory=list)

    def send_publish(self, publish: Publish) -> bool:
        assert publish.packet_id is not None
        assert publish.packet_id not in self.unacknowledged
        self.unacknowledged[publish.packet_id] = publish
        self.heard.append(publish)
        return True

    def flush(self) -> None:
        raise AssertionError

    def end(self, reason: EndReason, code: Reason | None, *, will: bool = True, text: str = "") -> None:
        raise AssertionError


class SessionLaws(RuleBasedStateMachine):
    """Messages, acknowledgements, losses of the connection and returns, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.session = Session(Admitted("lamp"), "c1", 60, LIMITS)
        self.client: Client | None = None
        self.numbers = 0
        self.accepted: list[bytes] = []
        self.first_heard: list[bytes] = []
        self.sent_before: dict[int, bytes] = {}  # sent on an earlier connection, not acknowledged

    @rule()
    def deliver(self) -> None:
        payload = b"%d" % self.numbers
        self.numbers += 1
        waiting = self.session.waiting()
        delivery = self.session.deliver(Message(topic="t", payload=payload, qos=1), 0.0)
        if delivery is Delivery.DROPPED:
            assert waiting == LIMITS.queue_messages
        else:
            self.accepted.append(payload)
        assert (delivery is Delivery.KEPT) == (self.client is None and delivery is not Delivery.DROPPED)
        self._listen()

    @precondition(lambda self: self.client is None)
    @rule(receive_maximum=st.integers(1, 6))
    def connect(self, receive_maximum: int) -> None:
        self.client = Client(receive_maximum)
        self.session.attach(self.client, receive_maximum, 0.0)
        self._listen()

    @precondition(lambda self: self.client is not None)
    @rule()
    def lose(self) -> None:
        assert self.client is not None
        self.sent_before |= {number: one.payload for number, one in self.client.unacknowledged.items()}
        self.session.detach()
        self.client = None

    @precondition(lambda self: self.client is not None and self.client.unacknowledged)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        assert self.client is not None
        number = data.draw(st.sampled_from(sorted(self.client.unacknowledged)))
        del self.client.unacknowledged[number]
        self.sent_before.pop(number, None)
        assert self.session.acknowledged(number, 0.0)
        self._listen()

    @rule(number=st.integers(1, 65_535))
    def acknowledge_nonsense(self, number: int) -> None:
        if self.client is None or (number not in self.client.unacknowledged and number not in self.sent_before):
            before = self.session.unacknowledged()
            if number not in self.sent_before:
                assert not self.session.acknowledged(number, 0.0)
                assert self.session.unacknowledged() == before

    def _listen(self) -> None:
        if self.client is None:
            return
        for publish in self.client.heard:
            assert publish.packet_id is not None
            assert publish.dup == (publish.packet_id in self.sent_before)
            if publish.dup:
                assert self.sent_before[publish.packet_id] == publish.payload
            else:
                self.first_heard.append(publish.payload)
        self.client.heard.clear()

    @invariant()
    def what_is_heard_is_what_was_accepted_in_order(self) -> None:
        assert self.first_heard == self.accepted[: len(self.first_heard)]

    @invariant()
    def the_window_and_the_queue_hold(self) -> None:
        if self.client is not None:
            assert len(self.client.unacknowledged) <= min(LIMITS.window, self.client.receive_maximum)
        assert self.session.waiting() <= LIMITS.queue_messages

    def teardown(self) -> None:
        """In the end everything that was accepted arrives."""
        if self.client is None:
            self.connect(receive_maximum=2)
        assert self.client is not None
        while self.client.unacknowledged:
            number = next(iter(self.client.unacknowledged))
            del self.client.unacknowledged[number]
            self.sent_before.pop(number, None)
            self.session.acknowledged(number, 0.0)
            self._listen()
        assert self.first_heard == self.accepted
        assert (self.session.waiting(), self.session.unacknowledged()) == (0, 0)


TestSessionLaws: Any = SessionLaws.TestCase
TestSessionLaws.settings = settings(max_examples=60, stateful_step_count=40)
