"""Proves the MQTT door: topics to requests, replies and reason codes, wills, bans, and grants that change meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from devices import operations
from devices.credentials import make_token
from devices.registry import Registry
from engine.errors import StoreUnavailable
from engine.results import Contended, NoOpenWait, NotDeclared, Receipt, Taken
from gateway.listener.port import Admitted, Application, Certificate, Denied, Handled, Published, Unavailable
from gateway.mqtt_door import MqttDoor
from tests.support.doors import Definition, Gatehouse, ScriptedEngine
from tests.support.source import HandSource, stopped_at

ADDRESS = "192.0.2.1"
TAKEN = Taken(receipt=Receipt("a" * 26, datetime(2026, 1, 1, tzinfo=UTC)), state="delivered")
GRANT = "signal:front-door/kitchen-verdict"
TOPIC = "signals/front-door/kitchen-verdict"
KNOWN = b'{"verdict":"known"}'


class Connections:
    """The listener as far as the door commands it."""

    def __init__(self) -> None:
        self.open: list[Admitted] = []
        self.closed: list[str] = []
        self.rechecked: list[Admitted] = []

    def close_device(self, device: str) -> int:
        self.open = [it for it in self.open if it.device != device]
        self.closed.append(device)
        return 1

    def close_connections(self, device: str, ended: Callable[[Admitted], bool]) -> int:
        gone = [it for it in self.open if it.device == device and ended(it)]
        self.open = [it for it in self.open if it not in gone]
        self.closed += [device] * len(gone)
        return len(gone)

    def recheck_device(self, device: str, who: Admitted) -> None:
        assert who.device == device
        self.rechecked.append(who)


class Site:
    def __init__(self) -> None:
        self.engine = ScriptedEngine(TAKEN)
        self.house = Gatehouse(self.engine)
        self.door = MqttDoor(
            self.house.deliver, self.house.authority, self.house.limits, self.house.audit, self.house.source
        )
        self.connections = Connections()
        self.door.attach(self.connections, self.house.registry)

    async def connect(self, name: str | None, token: str) -> Admitted | Denied:
        return await self.door.connect(
            username=name, password=token.encode(), certificate=None, client_id="c", address=ADDRESS
        )

    async def device(self, name: str, *grants: str) -> Admitted:
        issued = await operations.add(self.house.registry, name, grants=grants, by="user:admin")
        admitted = await self.connected(name, issued.token)
        self.connections.rechecked.clear()
        return admitted

    async def connected(self, name: str, token: str) -> Admitted:
        admitted = await self.connect(name, token)
        assert isinstance(admitted, Admitted)
        self.announce(admitted)
        return admitted

    def announce(self, admitted: Admitted) -> None:
        self.connections.open.append(admitted)
        self.door.connected(admitted, "c", ADDRESS)

    async def publish(
        self,
        who: Admitted,
        topic: str = TOPIC,
        payload: bytes = KNOWN,
        *,
        retain: bool = False,
        response_topic: str | None = None,
        correlation_data: bytes | None = None,
        user_properties: tuple[tuple[str, str], ...] = (),
    ) -> Handled:
        message = Published(
            topic,
            payload,
            1,
            retain=retain,
            response_topic=response_topic,
            correlation_data=correlation_data,
            user_properties=user_properties,
        )
        return await self.door.publish(who, message, address=ADDRESS)


@pytest.fixture
def site() -> Site:
    return Site()


def said(handled: Handled) -> dict[str, object]:
    (reply,) = handled.replies
    words: dict[str, object] = json.loads(reply.payload)
    return words


def test_the_door_is_an_application_of_the_listener(site: Site) -> None:
    application: Application = site.door
    assert application is site.door


# -- connecting ----------------------------------------------------------------------------------------------------


async def test_a_device_connects_by_its_name_and_token_and_that_is_an_event(site: Site) -> None:
    admitted = await site.device("kitchen", GRANT)
    assert (admitted.device, admitted.max_connections, admitted.max_sessions) == ("kitchen", 8, 4)
    await site.house.audit.written()
    (event,) = await site.house.events("login.")
    assert (event.action, event.principal, event.address) == ("login.accepted", "device:kitchen", ADDRESS)


@pytest.mark.parametrize("name", ["kitchen", "nobody", "Not A Name", None])
async def test_a_stranger_is_denied_alike_whatever_name_it_gives(site: Site, name: str | None) -> None:
    await operations.add(site.house.registry, "kitchen", by="user:admin")
    answers = [await site.connect(name, make_token("device", 1)) for _ in range(20)]
    assert set(answers) == {Denied("bad_credentials")}


async def test_a_disabled_device_is_denied_as_such(site: Site) -> None:
    issued = await operations.add(site.house.registry, "kitchen", by="user:admin")
    await operations.disable(site.house.registry, "kitchen", by="user:admin")
    assert await site.connect("kitchen", issued.token) == Denied("disabled")


async def test_connects_over_the_rate_are_denied_and_count_only_for_who_proved_its_name(site: Site) -> None:
    issued = await operations.add(site.house.registry, "kitchen", by="user:admin")
    for _ in range(50):
        await site.connect("kitchen", make_token("device", 1))
    answers = [await site.connect("kitchen", issued.token) for _ in range(21)]
    assert [isinstance(answer, Admitted) for answer in answers] == [True] * 20 + [False]
    assert answers[-1] == Denied("rate")


async def _banned(site: Site) -> str:
    """Have the kitchen flood the door until it is shut out; give its token."""
    issued = await operations.add(site.house.registry, "kitchen", grants=[GRANT], by="user:admin")
    admitted = await site.connect("kitchen", issued.token)
    assert isinstance(admitted, Admitted)
    for _ in range(31 * 60):
        site.house.source.advance(1 / 60)
        await site.publish(admitted, "off/the/map")
        if site.connections.closed:
            break
    assert site.connections.closed == ["kitchen"]
    assert await site.connect("kitchen", issued.token) == Denied("banned")
    return issued.token


async def test_a_banned_device_is_kept_out_until_the_ban_is_over(site: Site) -> None:
    token = await _banned(site)
    site.house.source.advance(31)
    assert isinstance(await site.connect("kitchen", token), Admitted)


async def test_who_gets_the_name_of_a_banned_device_that_was_deleted_begins_afresh(site: Site) -> None:
    await _banned(site)
    await operations.delete(site.house.registry, "kitchen", by="user:admin")
    issued = await operations.add(site.house.registry, "kitchen", grants=[GRANT], by="user:admin")
    assert isinstance(await site.connect("kitchen", issued.token), Admitted)


# -- publishing ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", [TOPIC, f"d/kitchen/{TOPIC}"])
async def test_a_signal_is_answered_on_its_own_reply_topic_in_either_form(site: Site, topic: str) -> None:
    handled = await site.publish(await site.device("kitchen", GRANT), topic)
    (reply,) = handled.replies
    assert reply.topic == "replies/signals/front-door/kitchen-verdict/accepted"
    assert (handled.reason, handled.reason_string) == (0x00, "")
    assert said(handled)["receipt"] == "a" * 26


async def test_the_signal_id_comes_from_the_topic_or_from_the_user_property(site: Site) -> None:
    kitchen = await site.device("kitchen", GRANT)
    assert said(await site.publish(kitchen, f"{TOPIC}/s-1"))["id"] == "s-1"
    assert said(await site.publish(kitchen, user_properties=(("signal-id", "s-2"), ("other", "x"))))["id"] == "s-2"
    both = await site.publish(kitchen, f"{TOPIC}/s-3", user_properties=(("signal-id", "s-3"),))
    assert said(both)["id"] == "s-3"
    assert [call[-1] for call in site.engine.asked] == ["s-1", "s-2", "s-3"]


async def test_two_different_signal_ids_or_a_malformed_one_deliver_nothing(site: Site) -> None:
    kitchen = await site.device("kitchen", GRANT)
    two = await site.publish(kitchen, f"{TOPIC}/s-1", user_properties=(("signal-id", "s-2"),))
    malformed = await site.publish(kitchen, user_properties=(("signal-id", "a b"),))
    assert (said(two)["error"], said(malformed)["error"]) == ("bad_topic", "bad_topic")
    assert site.engine.asked == []


@pytest.mark.parametrize(
    ("answer", "error", "reason"), [(NotDeclared(), "not_found", 0x87), (NoOpenWait(None), "no_open_wait", 0x83)]
)
async def test_a_refusal_goes_to_the_rejected_topic_with_its_reason(
    site: Site, answer: NotDeclared | NoOpenWait, error: str, reason: int
) -> None:
    site.engine.answer = answer
    handled = await site.publish(await site.device("kitchen", GRANT))
    assert handled.replies[0].topic == "replies/signals/front-door/kitchen-verdict/rejected"
    assert (said(handled)["error"], handled.reason) == (error, reason)
    assert handled.reason_string


async def test_correlation_data_is_echoed_and_only_an_own_response_topic_is_taken(site: Site) -> None:
    kitchen = await site.device("kitchen", GRANT)
    own = await site.publish(kitchen, response_topic="replies/mine", correlation_data=b"\x01")
    assert (own.replies[0].response_topic, own.replies[0].correlation_data) == ("replies/mine", b"\x01")
    foreign = await site.publish(kitchen, response_topic="d/hall/replies/x")
    assert foreign.replies[0].response_topic is None


async def test_a_retained_signal_is_refused(site: Site) -> None:
    handled = await site.publish(await site.device("kitchen", GRANT), retain=True)
    assert (said(handled)["error"], handled.reason) == ("retained_not_allowed", 0x83)
    assert site.engine.asked == []


async def test_a_run_and_a_question_are_answered_where_they_belong(site: Site) -> None:
    site.engine.catalog.found["front-door"] = Definition(trigger_topic=True)
    kitchen = await site.device("kitchen", "run:front-door", "read:front-door")
    run = await site.publish(kitchen, "runs/front-door/7", b"")
    assert run.replies[0].topic == "replies/runs/front-door/-/accepted"
    waits = await site.publish(kitchen, "get/waits/front-door", b"")
    assert waits.replies[0].topic == "replies/waits/front-door/-/accepted"
    assert said(waits)["waits"] == []


@pytest.mark.parametrize("fault", [StoreUnavailable("away"), Contended()])
async def test_nothing_is_acknowledged_when_nothing_was_decided(
    site: Site, fault: StoreUnavailable | Contended
) -> None:
    site.engine.answer = fault
    with pytest.raises(Unavailable) as refused:
        await site.publish(await site.device("kitchen", GRANT))
    assert not refused.value.stopping


async def test_a_stopping_gateway_says_so(site: Site) -> None:
    kitchen = await site.device("kitchen", GRANT)
    site.house.deliver.stop()
    with pytest.raises(Unavailable) as refused:
        await site.publish(kitchen)
    assert refused.value.stopping


async def test_off_the_map_is_acknowledged_and_answered_once_a_minute_with_the_right_form(site: Site) -> None:
    kitchen = await site.device("kitchen", GRANT)
    first = await site.publish(kitchen, "signals/front-door")
    assert first.replies[0].topic == "replies/-/-/-/rejected"
    assert said(first)["error"] == "bad_topic"
    assert str(said(first)["hint"]).startswith("signals/<workflow>/<key>")
    site.house.source.advance(59)
    assert (await site.publish(kitchen, "tele/door/STATE")).replies == ()
    site.house.source.advance(1)
    assert len((await site.publish(kitchen, f"d/hall/{TOPIC}")).replies) == 1
    assert site.engine.asked == []


async def test_presence_is_handed_on_and_not_answered(site: Site) -> None:
    kitchen = await site.device("kitchen")
    assert await site.publish(kitchen, "status", b"online", retain=True) == Handled(presence=b"online")
    assert await site.publish(kitchen, "d/kitchen/status", b"") == Handled(presence=b"")
    large = await site.publish(kitchen, "status", bytes(16_385))
    assert (large.presence, large.replies, large.reason) == (None, (), 0x97)


async def test_presence_counts_as_signals_do(site: Site) -> None:
    kitchen = await site.device("kitchen")
    told = [await site.publish(kitchen, "status", b"online") for _ in range(21)]
    assert [handled.presence for handled in told] == [b"online"] * 20 + [None]
    assert (told[-1].replies, told[-1].reason) == ((), 0x97)
    assert "online" not in repr(told)


async def test_a_will_elsewhere_is_an_event_that_does_not_quote_it(site: Site) -> None:
    kitchen = await site.device("kitchen")
    site.door.will_dropped(kitchen, "a/secret/topic")
    await site.house.audit.close()
    (event,) = await site.house.events("device.will_dropped")
    assert event.principal == "device:kitchen"
    assert all(b"secret" not in record.value for record in await site.house.store.list("audit/"))


async def test_an_unusual_end_of_a_connection_is_an_event(site: Site) -> None:
    one, two = await site.device("kitchen"), await site.device("hall")
    site.door.disconnected(one, "c", ADDRESS, "closed")
    site.door.disconnected(two, "c", ADDRESS, "too_large")
    site.door.refused("device_connections", "hall", ADDRESS)
    await site.house.audit.close()
    ended = await site.house.events("device.disconnected")
    assert [(event.principal, event.result) for event in ended] == [("device:hall", "too_large")]
    assert [event.result for event in await site.house.events("login.refused")] == ["device_connections"]


# -- subscribing, and changes meanwhile ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic_filter", "allowed"),
    [
        ("replies/#", True),
        ("d/kitchen/replies/#", True),
        ("d/hall/replies/#", False),
        ("lamps/kitchen", True),
        ("lamps/#", True),
        ("sirens/#", False),
        ("signals/#", False),
        ("#", False),
    ],
)
async def test_a_device_hears_its_replies_and_what_it_is_granted(site: Site, topic_filter: str, allowed: bool) -> None:
    kitchen = await site.device("kitchen", "listen:lamps/#")
    assert site.door.may_subscribe(kitchen, topic_filter) is allowed


@pytest.mark.parametrize("end", ["revoke", "disable", "delete"])
async def test_a_device_that_is_put_out_is_closed_at_once_and_hears_nothing(site: Site, end: str) -> None:
    kitchen = await site.device("kitchen", GRANT)
    await getattr(operations, end)(site.house.registry, "kitchen", by="user:admin")
    assert site.connections.closed == ["kitchen"]
    assert not site.door.may_subscribe(kitchen, "replies/#")
    assert said(await site.publish(kitchen))["error"] == "unauthorized"


async def test_a_changed_grant_has_the_subscriptions_looked_at_again(site: Site) -> None:
    kitchen = await site.device("kitchen", "listen:lamps/#")
    await operations.ungrant(site.house.registry, "kitchen", "listen:lamps/#", by="user:admin")
    (rechecked,) = site.connections.rechecked
    assert not site.door.may_subscribe(rechecked, "lamps/x")
    assert not site.door.may_subscribe(kitchen, "lamps/x")
    assert site.door.may_subscribe(rechecked, "replies/#")
    assert site.connections.closed == []


async def test_finishing_a_rotation_closes_who_came_in_by_the_old_token_and_nobody_else(site: Site) -> None:
    await site.device("kitchen", "listen:lamps/#")
    rotated = await operations.rotate(site.house.registry, "kitchen", by="user:admin")
    newer = await site.connected("kitchen", rotated.token)
    await operations.ungrant(site.house.registry, "kitchen", "listen:lamps/#", by="user:admin")
    assert site.connections.closed == []
    await operations.finish_rotation(site.house.registry, "kitchen", by="user:admin")
    assert site.connections.closed == ["kitchen"]
    assert site.connections.open == [newer]


async def test_a_certificate_s_connection_ends_with_a_revocation_that_is_heard_of_together_with_what_came_then(
    site: Site,
) -> None:
    elsewhere = Registry(site.house.store, HandSource(label="elsewhere"))
    issued = await operations.add(site.house.registry, "kitchen", by="user:admin")

    async def by_certificate(good_since: int) -> Admitted:
        shown = Certificate(("kitchen",), good_since)
        admitted = await site.door.connect(
            username=None, password=None, certificate=shown, client_id="c", address=ADDRESS
        )
        assert isinstance(admitted, Admitted)
        site.announce(admitted)
        return admitted

    await by_certificate(1_000)
    newer = await by_certificate(3_000)
    await site.connected("kitchen", issued.token)
    await operations.rotate(elsewhere, "kitchen", by="user:admin")
    await site.house.registry.refresh()
    assert site.connections.closed == []
    # Of the device's own token and two certificates, a revocation leaves the certificate that is newer than it.
    await operations.revoke(elsewhere, "kitchen", by="user:admin", clock=stopped_at(2_000))
    await operations.rotate(elsewhere, "kitchen", by="user:admin")
    await site.house.registry.refresh()
    assert site.connections.open == [newer]


async def test_a_credential_that_ends_while_its_connect_is_accepted_is_closed(site: Site) -> None:
    issued = await operations.add(site.house.registry, "kitchen", by="user:admin")
    admitted = await site.connect("kitchen", issued.token)
    assert isinstance(admitted, Admitted)
    await operations.revoke(site.house.registry, "kitchen", by="user:admin")
    site.connections.closed.clear()
    site.announce(admitted)
    assert site.connections.closed == ["kitchen"]
