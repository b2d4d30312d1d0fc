"""Proves who gets in and who does not, that failing takes one path whoever is named, and that standing ends at once."""

from __future__ import annotations

import pytest

from devices import operations
from devices.credentials import make_token
from devices.registry import Registry
from engine.errors import StoreUnavailable
from engine.store.memory import ManualClock, MemoryStore
from gateway.auth import CERTIFICATE, Authority, Principal, Rejected
from tests.support.source import HandSource, stopped_at

ADDRESS = "192.0.2.1"
STRANGER = make_token("device", 7)


class House:
    """A store with an instance that serves and another process that changes the registry."""

    def __init__(self) -> None:
        self.store = MemoryStore(ManualClock())
        self.source = HandSource()
        self.here = Registry(self.store, self.source)
        self.elsewhere = Registry(self.store, HandSource(label="elsewhere"))
        self.authority = Authority(self.here, self.source)
        self.reads: list[str] = []
        self.store.before_operation = self._note

    async def _note(self, operation: str, key: str) -> None:
        self.reads.append(f"{operation} {key}")

    async def device(self, name: str | None, token: str | bytes | None) -> Principal | Rejected:
        password = token.encode() if isinstance(token, str) else token
        return await self.authority.device(name, password, address=ADDRESS)


@pytest.fixture
def house() -> House:
    return House()


async def test_a_device_gets_in_with_its_name_and_token_without_any_read(house: House) -> None:
    issued = await operations.add(house.here, "kitchen", by="user:admin")
    house.reads.clear()
    assert await house.device("kitchen", issued.token) == Principal("device", "kitchen", 1)
    assert await house.authority.bearer(issued.token, address=ADDRESS) == Principal("device", "kitchen", 1)
    assert house.reads == []
    assert house.authority.last_seen("device", "kitchen") is not None
    assert house.authority.last_seen("device", "hall") is None


async def test_a_device_that_another_process_has_just_added_gets_in(house: House) -> None:
    issued = await operations.add(house.elsewhere, "kitchen", by="user:admin")
    assert await house.device("kitchen", issued.token) == Principal("device", "kitchen", 1)
    again = await operations.rotate(house.elsewhere, "kitchen", by="user:admin")
    assert await house.authority.bearer(again.token, address=ADDRESS) == Principal("device", "kitchen", 2)


async def test_a_wrong_token_and_an_unknown_name_take_the_same_reads_and_get_the_same_answer(house: House) -> None:
    await operations.add(house.here, "kitchen", by="user:admin")
    await operations.add(house.here, "revoked", by="user:admin")
    await operations.revoke(house.here, "revoked", by="user:admin")
    await house.here.refresh()
    answers = []
    for name in ("kitchen", "revoked", "nobody"):
        house.reads.clear()
        answers.append((await house.device(name, STRANGER), tuple(house.reads)))
    assert {rejected.reason for rejected, _ in answers if isinstance(rejected, Rejected)} == {"bad_credentials"}
    assert {reads for _, reads in answers} == {("list changes/",)}


@pytest.mark.parametrize("name", [None, "", "Kitchen", "kitchen\x00", "a/b"])
@pytest.mark.parametrize("token", [None, b"", b"\xff", b"x" * 10_000, "wsd_wrong"])
async def test_what_is_no_name_or_no_token_costs_no_read(
    house: House, name: str | None, token: str | bytes | None
) -> None:
    assert isinstance(await house.device(name, token), Rejected)
    assert isinstance(await house.device("kitchen", token), Rejected)
    assert house.reads == []


async def test_a_name_is_only_as_good_as_its_own_token(house: House) -> None:
    await operations.add(house.here, "kitchen", by="user:admin")
    hall = await operations.add(house.here, "hall", by="user:admin")
    operator = await operations.add_operator(house.here, "ann", rights=["admin"], by="user:admin")
    assert isinstance(await house.device("kitchen", hall.token), Rejected)
    assert isinstance(await house.device("ann", operator.token), Rejected)


async def test_a_disabled_device_is_told_so_only_with_its_right_token(house: House) -> None:
    issued = await operations.add(house.here, "kitchen", by="user:admin")
    await operations.disable(house.here, "kitchen", by="user:admin")
    assert await house.device("kitchen", issued.token) == Rejected("disabled", "kitchen")
    assert await house.device("kitchen", STRANGER) == Rejected("bad_credentials", "kitchen")


async def test_failures_are_limited_and_a_right_token_passes_all_the_same(house: House) -> None:
    issued = await operations.add(house.here, "kitchen", by="user:admin")
    reasons = []
    for _ in range(12):
        rejected = await house.device("kitchen", STRANGER)
        reasons.append(rejected.reason if isinstance(rejected, Rejected) else "in")
    assert reasons == ["bad_credentials"] * 10 + ["rate"] * 2
    house.reads.clear()
    assert isinstance(await house.device("kitchen", STRANGER), Rejected)
    assert house.reads == []
    assert isinstance(await house.device("kitchen", issued.token), Principal)


async def test_while_the_store_is_away_known_devices_get_in_and_others_are_told_to_try_again(house: House) -> None:
    issued = await operations.add(house.here, "kitchen", by="user:admin")

    async def away(operation: str, key: str) -> None:
        raise StoreUnavailable("away")

    house.store.before_operation = away
    assert isinstance(await house.device("kitchen", issued.token), Principal)
    assert await house.device("kitchen", STRANGER) == Rejected("unavailable", "kitchen")


async def test_the_first_use_of_a_second_token_is_stored_once(house: House) -> None:
    await operations.add(house.here, "kitchen", by="user:admin")
    rotated = await operations.rotate(house.here, "kitchen", by="user:admin")
    house.reads.clear()
    for _ in range(3):
        await house.device("kitchen", rotated.token)
    assert [read for read in house.reads if read.startswith("create")] == ["create used/device/kitchen/000000000002"]


async def test_standing_follows_every_change_of_the_registry(house: House) -> None:
    issued = await operations.add(house.here, "kitchen", grants=["signal:w/k", "listen:lamps/#"], by="user:admin")
    who = await house.device("kitchen", issued.token)
    assert isinstance(who, Principal)
    authority = house.authority
    assert authority.may_signal(who, "w", "k")
    assert authority.may_signal_at_all(who)
    assert authority.may_listen(who, "lamps/+")
    assert not authority.may_signal(who, "w", None)
    assert not authority.may_read(who, "w")
    await operations.grant(house.here, "kitchen", "read:w", by="user:admin")
    assert authority.may_read(who, "w")
    await operations.ungrant(house.here, "kitchen", "signal:w/k", by="user:admin")
    assert not authority.may_signal(who, "w", "k")
    assert not authority.may_signal_at_all(who)
    await operations.rotate(house.here, "kitchen", by="user:admin")
    assert authority.standing(who) is not None
    await operations.finish_rotation(house.here, "kitchen", by="user:admin")
    assert authority.standing(who) is None
    assert not authority.may_read(who, "w")


async def test_a_certificate_that_was_made_before_its_device_was_revoked_is_none_any_more(house: House) -> None:
    async def certificate(good_since: int) -> Principal | Rejected:
        return await house.authority.certificate(("kitchen",), good_since, None, address=ADDRESS)

    await operations.add(house.here, "kitchen", grants=["signal:w/k"], by="user:admin")
    stolen = await certificate(1_000)
    assert stolen == Principal("device", "kitchen", CERTIFICATE, 1_000)
    # Seen here as one change, as by an instance that looks once a second.
    await operations.revoke(house.elsewhere, "kitchen", by="user:admin", clock=stopped_at(1_001))
    rotated = await operations.rotate(house.elsewhere, "kitchen", by="user:admin")
    assert house.authority.standing(stolen) is not None
    await house.here.refresh()
    assert house.authority.standing(stolen) is None
    assert not house.authority.may_signal(stolen, "w", "k")
    refused = Rejected("bad_credentials", "kitchen")
    assert [await certificate(since) for since in (999, 1_000, 1_001)] == [refused] * 3
    newer = await certificate(1_002)
    assert newer == Principal("device", "kitchen", CERTIFICATE, 1_002)
    assert house.authority.standing(newer) is not None
    assert isinstance(await house.device("kitchen", rotated.token), Principal)


async def test_who_is_vouched_for_has_no_standing_without_a_token(house: House) -> None:
    await operations.add(house.here, "kitchen", by="user:admin")
    assert house.authority.standing(house.authority.vouched_for("kitchen")) is not None
    await operations.revoke(house.here, "kitchen", by="user:admin")
    assert house.authority.standing(house.authority.vouched_for("kitchen")) is None


@pytest.mark.parametrize("end", [operations.revoke, operations.disable, operations.delete])
async def test_a_device_that_is_put_out_stands_for_nothing(house: House, end: object) -> None:
    issued = await operations.add(house.here, "kitchen", grants=["signal:w", "run:w", "read:w"], by="user:admin")
    who = await house.device("kitchen", issued.token)
    assert isinstance(who, Principal)
    assert callable(end)
    await end(house.here, "kitchen", by="user:admin")
    may = (
        house.authority.may_signal(who, "w", "k"),
        house.authority.may_run(who, "w"),
        house.authority.may_read(who, "w"),
    )
    assert may == (False, False, False)


async def test_an_operator_may_what_its_rights_say_for_every_workflow(house: House) -> None:
    issued = await operations.add_operator(house.here, "ann", rights=["signal"], by="user:admin")
    admin = await operations.add_operator(house.here, "root", rights=["admin"], by="user:admin")
    ann = await house.authority.bearer(issued.token, address=ADDRESS)
    root = await house.authority.bearer(admin.token, address=ADDRESS)
    assert isinstance(ann, Principal)
    assert isinstance(root, Principal)
    assert house.authority.may_signal(ann, "any", None)
    assert not house.authority.may_read(ann, "any")
    assert not house.authority.is_admin(ann)
    assert house.authority.is_admin(root)
    assert house.authority.may_run(root, "any")
    assert str(root) == "user:root"
