"""Proves that every instance learns of every change, that races are decided again, and what a look-up costs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from devices import credentials, model, operations
from devices.model import Device, Entry
from devices.registry import Registry, Revised
from engine import names, records
from engine.errors import BadInput, Conflict, NotFound, StoreUnavailable, UnreadableRecord
from engine.store.memory import ManualClock, MemoryStore
from tests.support.source import HandSource, stopped_at

GRANT = "signal:front-door/kitchen-verdict"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock)


def registry(store: MemoryStore, label: str = "") -> Registry:
    return Registry(store, HandSource(label=label))


async def heard_by(one: Registry) -> list[tuple[str, str | None]]:
    heard: list[tuple[str, str | None]] = []

    def hear(before: Entry | None, after: Entry | None) -> None:
        heard.append(((after or before or pytest.fail("nobody")).name, after.state if after else None))

    one.watch(hear)
    return heard


async def test_a_device_is_known_here_as_soon_as_it_is_added(store: MemoryStore) -> None:
    here = registry(store)
    issued = await operations.add(here, "kitchen", grants=[GRANT], note="by the door", by="user:admin")
    device = here.device("kitchen")
    assert device == issued.entry
    assert device is not None
    assert [str(grant) for grant in device.grants] == [GRANT]
    assert credentials.matching(device.secrets, issued.token) == device.secrets[0]
    assert here.owner(credentials.digest(issued.token)) == device


async def test_another_instance_knows_it_after_one_refresh(store: MemoryStore) -> None:
    here, there = registry(store, "here"), registry(store, "there")
    await there.load()
    issued = await operations.add(here, "kitchen", grants=[GRANT], by="user:admin")
    assert there.device("kitchen") is None
    await there.refresh()
    assert there.device("kitchen") == issued.entry


async def test_a_start_reads_the_newest_revision_of_everybody(store: MemoryStore) -> None:
    here = registry(store)
    await operations.add(here, "kitchen", by="user:admin")
    await operations.grant(here, "kitchen", GRANT, by="user:admin")
    await operations.add(here, "hall", by="user:admin")
    await operations.delete(here, "hall", by="user:admin")
    await operations.add_operator(here, "ann", rights=["read"], by="user:admin")
    there = registry(store, "there")
    await there.load()
    assert there.devices() == here.devices()
    assert [device.name for device in there.devices()] == ["kitchen"]
    assert there.operators() == here.operators()
    assert (hall := there.device("hall")) is not None
    assert hall.state == "deleted"


async def test_a_revision_that_is_announced_before_a_start_and_stored_after_it_is_found(store: MemoryStore) -> None:
    here, there = registry(store, "here"), registry(store, "there")
    steps = operations.add(here, "kitchen", by="user:admin")
    stopped = asyncio.Event()
    go_on = asyncio.Event()

    async def hold(operation: str, key: str) -> None:
        if operation == "create" and key.startswith("devices/") and not stopped.is_set():
            stopped.set()
            await go_on.wait()

    store.before_operation = hold
    adding = asyncio.ensure_future(steps)
    await stopped.wait()
    await there.load()
    assert there.device("kitchen") is None
    go_on.set()
    await adding
    await there.refresh()
    assert there.device("kitchen") is not None


async def test_an_announced_revision_that_never_comes_is_given_up(store: MemoryStore) -> None:
    source = HandSource()
    there = Registry(store, source)
    change = model.Change(at=names.change(1), nonce="n", kind="device", name="kitchen", rev=1)
    await store.create(change.at, records.encode(change)[1])
    looked: list[str] = []

    async def note(operation: str, key: str) -> None:
        if operation == "last":
            looked.append(key)

    await there.load()
    store.before_operation = note
    await there.refresh()
    assert looked == ["devices/kitchen/"]
    source.advance(301)
    await there.refresh()
    looked.clear()
    await there.refresh()
    assert looked == []


async def test_of_two_that_add_one_device_one_is_told_that_it_exists(store: MemoryStore) -> None:
    here, there = registry(store, "here"), registry(store, "there")
    both = await asyncio.gather(
        operations.add(here, "kitchen", by="user:ann"), operations.add(there, "kitchen", by="user:bob"),
        return_exceptions=True,
    )  # fmt: skip
    assert sorted(type(one).__name__ for one in both) == ["Conflict", "Issued"]


async def test_two_changes_at_once_are_both_made(store: MemoryStore) -> None:
    here, there = registry(store, "here"), registry(store, "there")
    await operations.add(here, "kitchen", by="user:ann")
    turns = 0

    async def yield_now(operation: str, key: str) -> None:
        nonlocal turns
        turns += 1
        await asyncio.sleep(0)

    store.before_operation = yield_now
    await asyncio.gather(
        operations.grant(here, "kitchen", GRANT, by="user:ann"),
        operations.grant(there, "kitchen", "read:front-door", by="user:bob"),
    )
    await here.refresh()
    device = here.device("kitchen")
    assert device is not None
    assert {str(grant) for grant in device.grants} == {GRANT, "read:front-door"}
    assert device.rev == 3
    assert turns > 0


async def test_a_granted_grant_makes_no_new_revision(store: MemoryStore) -> None:
    here = registry(store)
    await operations.add(here, "kitchen", grants=[GRANT], by="user:admin")
    device = await operations.grant(here, "kitchen", GRANT, by="user:admin")
    assert device.rev == 1


async def test_taking_a_grant_that_is_not_there_names_those_that_are(store: MemoryStore) -> None:
    here = registry(store)
    await operations.add(here, "kitchen", grants=[GRANT], by="user:admin")
    with pytest.raises(NotFound) as refused:
        await operations.ungrant(here, "kitchen", "read:front-door", by="user:admin")
    assert GRANT in refused.value.hint
    device = await operations.ungrant(here, "kitchen", GRANT, by="user:admin")
    assert device.grants == ()


async def test_a_rotated_device_has_two_tokens_until_the_rotation_is_finished(
    store: MemoryStore, clock: ManualClock
) -> None:
    here = registry(store)
    first = await operations.add(here, "kitchen", by="user:admin")
    clock.advance(60)
    second = await operations.rotate(here, "kitchen", by="user:admin")
    device = second.entry
    assert credentials.matching(device.secrets, first.token) is not None
    new = credentials.matching(device.secrets, second.token)
    assert new is not None
    with pytest.raises(Conflict):
        await operations.rotate(here, "kitchen", by="user:admin")
    assert await here.secret_times(device, new) == (clock.now(), None)
    clock.advance(5)
    await here.note_use(device, new)
    clock.advance(5)
    await here.note_use(device, new)
    made, used = await here.secret_times(device, new)
    assert made is not None
    assert used is not None
    assert (used - made).total_seconds() == 5
    finished = await operations.finish_rotation(here, "kitchen", by="user:admin")
    assert credentials.matching(finished.secrets, first.token) is None
    assert credentials.matching(finished.secrets, second.token) == new
    with pytest.raises(Conflict):
        await operations.finish_rotation(here, "kitchen", by="user:admin")


async def test_a_revoked_token_ends_everywhere_and_rotate_lets_the_device_back_in(store: MemoryStore) -> None:
    here, there = registry(store, "here"), registry(store, "there")
    issued = await operations.add(here, "kitchen", grants=[GRANT], by="user:admin")
    await there.load()
    heard = await heard_by(there)
    await operations.revoke(here, "kitchen", by="user:admin")
    await there.refresh()
    assert heard == [("kitchen", "active")]
    assert there.owner(credentials.digest(issued.token)) is None
    again = await operations.rotate(here, "kitchen", by="user:admin")
    assert [str(grant) for grant in again.entry.grants] == [GRANT] if isinstance(again.entry, Device) else False
    await there.refresh()
    assert there.owner(credentials.digest(again.token)) == again.entry


async def test_a_disabled_device_keeps_its_token_and_grants(store: MemoryStore) -> None:
    here = registry(store)
    issued = await operations.add(here, "kitchen", grants=[GRANT], by="user:admin")
    disabled = await operations.disable(here, "kitchen", by="user:admin")
    assert not disabled.active
    enabled = await operations.enable(here, "kitchen", by="user:admin")
    assert enabled.active
    assert credentials.matching(enabled.secrets, issued.token) is not None
    assert enabled.grants == issued.entry.grants if isinstance(issued.entry, Device) else False


async def test_a_deleted_device_is_gone_and_its_name_may_be_used_again(store: MemoryStore) -> None:
    here = registry(store)
    first = await operations.add(here, "kitchen", grants=[GRANT], by="user:admin")
    await operations.delete(here, "kitchen", by="user:admin")
    assert here.devices() == []
    for change in (operations.rotate, operations.revoke, operations.enable):
        with pytest.raises(NotFound):
            await change(here, "kitchen", by="user:admin")
    again = await operations.add(here, "kitchen", by="user:admin")
    assert isinstance(again.entry, Device)
    assert again.entry.grants == ()
    assert here.owner(credentials.digest(first.token)) is None
    assert len(await store.list("devices/kitchen/")) == 3


@pytest.mark.parametrize("end", [operations.revoke, operations.delete])
async def test_a_certificate_of_before_a_revocation_stays_void_whatever_is_done_then(
    store: MemoryStore, end: Callable[..., Awaitable[Device]]
) -> None:
    here, there = registry(store), registry(store, "there")
    await operations.add(here, "kitchen", by="user:admin")
    ended = await end(here, "kitchen", by="user:admin", clock=stopped_at(1_000.9))
    assert not ended.takes_certificate(2_000), "it has no token"
    back = operations.add if end is operations.delete else operations.rotate
    await back(here, "kitchen", by="user:admin")
    await operations.grant(here, "kitchen", GRANT, by="user:admin")
    await there.load()
    for known in (here.device("kitchen"), there.device("kitchen")):
        assert known is not None
        assert [known.takes_certificate(at) for at in (999, 1_000, 1_001)] == [False, False, True]
    # A second one ends what was made in between; a clock that was set back takes nothing back.
    for seconds in (1_500, 1_200):
        again = await operations.revoke(here, "kitchen", by="user:admin", clock=stopped_at(seconds))
        assert again.revoked_at == 1_500


async def test_a_device_that_was_never_revoked_takes_certificates_of_any_age(store: MemoryStore) -> None:
    here = registry(store)
    await operations.add(here, "kitchen", by="user:admin")
    await operations.rotate(here, "kitchen", by="user:admin")
    device = await operations.finish_rotation(here, "kitchen", by="user:admin")
    assert device.revoked_at is None
    assert device.takes_certificate(0)
    assert b"revoked_at" not in (await store.list("devices/kitchen/"))[-1].value, "older builds read it"


async def test_revisions_of_builds_that_wrote_no_moment_down_are_read(store: MemoryStore, clock: ManualClock) -> None:
    here = registry(store)
    device = model.DeviceRevision(
        at=model.revision_key("device", "kitchen", 1), nonce="n", device="kitchen", state="active", secrets=(),
        grants=(), limits=model.LimitOverrides(), note="", did="revoke", by="user:admin",
    )  # fmt: skip
    await store.create(*records.encode(device))
    revoked_at = int(clock.now().timestamp())
    clock.advance(60)
    await operations.rotate(here, "kitchen", by="user:admin")
    known = here.device("kitchen")
    assert known is not None
    assert known.revoked_at == revoked_at
    assert [known.takes_certificate(revoked_at + more) for more in (0, 1)] == [False, True]


async def test_limits_and_a_note_can_be_replaced(store: MemoryStore) -> None:
    here = registry(store)
    await operations.add(here, "kitchen", by="user:admin")
    limits = model.LimitOverrides(signals=model.Rate(per_second=50, burst=200))
    assert (await operations.set_limits(here, "kitchen", limits, by="user:admin")).limits == limits
    assert (await operations.set_note(here, "kitchen", "new", by="user:admin")).note == "new"
    there = registry(store, "there")
    await there.load()
    assert there.device("kitchen") == here.device("kitchen")


@pytest.mark.parametrize("name", ["", "Kitchen", "a/b", "a b", "+", "#", "a.b", "-a", "a" * 65, "a\n"])
async def test_a_name_that_is_none_is_refused(store: MemoryStore, name: str) -> None:
    here = registry(store)
    with pytest.raises(BadInput):
        await operations.add(here, name, by="user:admin")
    with pytest.raises(BadInput):
        await operations.grant(here, name, GRANT, by="user:admin")
    assert await store.list("devices/") == []


async def test_an_operator_holds_its_rights_and_admin_is_all_of_them(store: MemoryStore) -> None:
    here = registry(store)
    await operations.add_operator(here, "ann", rights=["read", "signal"], by="user:admin")
    await operations.add_operator(here, "bob", rights=["admin"], by="user:admin")
    ann, bob = here.operator("ann"), here.operator("bob")
    assert ann is not None
    assert bob is not None
    assert [ann.may(right) for right in model.RIGHTS] == [True, False, True, False]
    assert all(bob.may(right) for right in model.RIGHTS)
    await operations.revoke_operator(here, "bob", by="user:ann")
    gone = here.operator("bob")
    assert gone is not None
    assert not any(gone.may(right) for right in model.RIGHTS)


async def test_a_damaged_revision_lets_nobody_in_and_nothing_is_written_over_it(store: MemoryStore) -> None:
    here = registry(store)
    issued = await operations.add(here, "kitchen", by="user:admin")
    await store.create(model.revision_key("device", "kitchen", 2), b"{}")
    there = registry(store, "there")
    await there.load()
    assert there.device("kitchen") is None
    assert there.owner(credentials.digest(issued.token)) is None
    with pytest.raises(UnreadableRecord):
        await operations.rotate(there, "kitchen", by="user:admin")
    with pytest.raises(UnreadableRecord):
        await operations.add(there, "kitchen", by="user:admin")


async def test_no_token_and_no_digest_of_it_is_in_a_representation(store: MemoryStore) -> None:
    here = registry(store)
    issued = await operations.add(here, "kitchen", by="user:admin")
    assert issued.token not in repr(issued)
    assert credentials.digest(issued.token) not in repr(issued.entry)
    for record in await store.list(""):
        assert issued.token.encode() not in record.value


async def test_any_number_of_unknown_names_at_once_costs_two_reads(store: MemoryStore) -> None:
    here = registry(store)
    await here.load()
    reads: list[str] = []

    async def slowly(operation: str, key: str) -> None:
        reads.append(key)
        await asyncio.sleep(0)

    store.before_operation = slowly
    await asyncio.gather(*(here.refresh() for _ in range(500)))
    # One pass was under way when the others came, and one more served them all.
    assert reads == ["changes/"] * 2


async def test_a_refresh_sees_what_was_stored_before_it_was_asked_for(store: MemoryStore) -> None:
    here, there = registry(store, "here"), registry(store, "there")
    await there.load()
    at_the_store, go_on = asyncio.Event(), asyncio.Event()

    async def hold(operation: str, key: str) -> None:
        if operation == "list" and not at_the_store.is_set():
            at_the_store.set()
            await go_on.wait()

    store.before_operation = hold
    early = asyncio.ensure_future(there.refresh())
    await at_the_store.wait()
    # The pass under way may have read before this change: whoever asks now is served by the next one.
    await operations.add(here, "kitchen", by="user:admin")
    late = asyncio.ensure_future(there.refresh())
    go_on.set()
    await early
    await late
    assert there.device("kitchen") is not None


async def test_a_refresh_that_failed_serves_nobody(store: MemoryStore) -> None:
    here, there = registry(store, "here"), registry(store, "there")
    await there.load()
    await operations.add(here, "kitchen", by="user:admin")
    failing = True

    async def fail(operation: str, key: str) -> None:
        if failing:
            raise StoreUnavailable("away")

    store.before_operation = fail
    with pytest.raises(StoreUnavailable):
        await there.refresh()
    failing = False
    await there.refresh()
    assert there.device("kitchen") is not None


async def test_what_this_process_changes_is_told_with_who_did_it(store: MemoryStore) -> None:
    told: list[Revised] = []
    here = Registry(store, HandSource(), noted=told.append)
    await operations.add(here, "kitchen", by="user:ann")
    await operations.grant(here, "kitchen", GRANT, by="user:bob")
    await operations.grant(here, "kitchen", GRANT, by="user:bob")
    await operations.revoke(here, "kitchen", by="user:ann")
    assert [(one.did, one.by, one.detail) for one in told] == [
        ("add", "user:ann", ""),
        ("grant", "user:bob", GRANT),
        ("revoke", "user:ann", ""),
    ]
