"""A removed run leaves nothing behind, takes nothing from anybody, and its senders are still answered as before."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from engine import names, removal, signals
from engine.errors import Conflict, NotFound, StoreUnavailable
from engine.names import Key, PendingAt
from engine.results import EarlySignalHeld, SignalIdReused, Taken
from engine.store.memory import ManualClock, MemoryStore
from tests.support.bench import Bench, bench, request
from tests.support.churn import WORKFLOW, churn
from tests.support.stepping import Steps, every_order

KEY = Key("door", "verdict")
GRACE = 421.0  # the pause of five minutes, a minute more, and the minute that a `due` record is late at most


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path, WORKFLOW) as made:
        yield made


async def ended(one: Bench, *, signal_id: str | None = "s1", early: bool = False) -> str:
    """Let a run take a signal and end."""
    if early:
        await one.signal("door", "verdict", {"n": 1}, signal_id=signal_id)
    run = await one.start("door")
    if not early:
        await one.signal("door", "verdict", {"n": 1}, signal_id=signal_id)
    await one.engine.signal_wait((await one.steps(run))["ask"]["wait"], request({}))
    await one.quiet()
    assert await one.status(run) == "succeeded"
    await one.sweep()
    return run


async def remove(one: Bench, run: str) -> None:
    await one.engine.delete(run, by="test")
    await one.after(GRACE)
    await one.after(60)


async def kinds(one: Bench) -> set[str]:
    return {key.split("/", 1)[0] for key in await one.keys()}


# -- what goes and what stays ----------------------------------------------------------------------------------


async def test_a_removed_run_leaves_one_record_of_its_key_and_its_senders_chain(one: Bench) -> None:
    run = await ended(one)
    await remove(one, run)
    assert await one.keys("runs/") + await one.keys("outcomes/") + await one.keys("claimed/") == []
    assert await one.keys("claims/") == [KEY.claim(2)]  # a release: no number comes back
    assert await kinds(one) == {"claims", "sent", "due", "instances", "meta"}
    await one.after(2 * 86_400)
    await one.sweep()
    assert await kinds(one) == {"claims", "instances", "meta"}


async def test_a_run_is_gone_for_everybody_as_soon_as_its_removal_has_begun(one: Bench) -> None:
    run = await ended(one)
    await one.engine.delete(run, by="user:eve")
    for call in (one.engine.run(run), one.engine.delete(run, by="x"), one.engine.retry(run, by="x")):
        with pytest.raises(NotFound):
            await call
    assert await one.engine.runs() == ([], None)
    assert [event.by for event in one.heard.named("run.deleted")] == ["user:eve"]
    assert len(await one.keys(f"runs/{run}/")) > 0  # senders in the middle of an operation may still read them


async def test_a_run_that_has_not_ended_is_not_removed(one: Bench) -> None:
    run = await one.start("door")
    with pytest.raises(Conflict, match="not ended"):
        await one.engine.delete(run, by="test")
    with pytest.raises(NotFound):
        await one.engine.delete("z" * 26, by="test")
    assert await one.engine.gc(0, by="test") == []


async def test_nothing_is_deleted_before_the_pause_is_over(one: Bench) -> None:
    run = await ended(one)
    before = set(await one.keys())
    await one.engine.delete(run, by="test")
    await one.after(300)
    assert before <= set(await one.keys())


async def test_a_removal_that_finds_more_to_supersede_waits_another_pause(one: Bench) -> None:
    run = await ended(one, signal_id=None)
    await removal.begin(one.actor(), run, "test")
    await one.store.delete([KEY.claim(2)])  # as if the release had not landed yet
    await one.after(GRACE)
    assert await one.keys(KEY.claims) == [KEY.claim(1), KEY.claim(2)]
    assert len(await one.keys(f"runs/{run}/")) > 0
    await one.after(GRACE)
    assert await one.keys(KEY.claims) == [KEY.claim(2)]
    assert await one.keys("runs/") == []


async def test_gc_removes_what_ended_longer_ago_and_only_that(one: Bench) -> None:
    old = await ended(one, signal_id=None)
    one.advance(100)
    young = await ended(one, signal_id=None)
    waiting = await one.start("door")
    assert await one.engine.gc(50, by="test") == [old]
    assert {run["run"] for run in (await one.engine.runs())[0]} == {young, waiting}
    assert await one.engine.gc(50, by="test") == []


async def test_runs_are_retired_by_the_sweep_when_a_retention_is_set(tmp_path: Path) -> None:
    async with bench(tmp_path, WORKFLOW, retention_seconds=3_600) as one:
        run = await ended(one, signal_id=None)
        await one.after(3_500)
        assert await one.status(run) == "succeeded"
        await one.after(200)
        with pytest.raises(NotFound):
            await one.engine.run(run)
        await one.after(GRACE)
        assert await one.keys("runs/") == []


async def test_a_retention_that_was_made_longer_is_kept(tmp_path: Path) -> None:
    async with bench(tmp_path, WORKFLOW, retention_seconds=3_600) as one:
        run = await ended(one, signal_id=None)
        async with bench(
            tmp_path / "later", store=one.store, clock=one.clock, retention_seconds=7_200, label="later"
        ) as later:
            await later.after(3_700)
            assert await later.status(run) == "succeeded"
            await later.after(3_700)
            with pytest.raises(NotFound):
                await later.engine.run(run)


# -- numbers never come back -----------------------------------------------------------------------------------


async def test_numbers_of_claims_and_pending_signals_are_never_used_twice(one: Bench) -> None:
    seen: set[tuple[str, bytes]] = set()
    numbers: dict[str, bytes] = {}

    async def look() -> None:
        for record in [*await one.store.list("claims/"), *await one.store.list("pending/")]:
            assert numbers.setdefault(record.key, record.value) == record.value
            seen.add((record.key, record.value))

    for turn in range(12):
        await one.signal("door", "verdict", {"turn": turn}, signal_id=f"s{turn}" if turn % 3 else None)
        if turn % 4 == 3:
            await one.after(31)  # it expires: nobody takes it
        await look()
        run = await ended(one, signal_id=f"t{turn}")
        await look()
        await remove(one, run)
        await look()
        await one.after(700)
    claims = sorted(key for key in numbers if key.startswith("claims/"))
    assert claims == [KEY.claim(n + 1) for n in range(len(claims))]
    assert len(seen) == len(numbers)


# -- senders ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("early", [False, True])
async def test_a_late_repeat_is_answered_as_a_duplicate_after_the_removal(one: Bench, early: bool) -> None:
    run = await ended(one, early=early)
    first = await one.signal("door", "verdict", {"n": 1}, signal_id="s1")
    assert isinstance(first, Taken)
    await remove(one, run)
    again = await one.signal("door", "verdict", {"n": 1}, signal_id="s1")
    assert isinstance(again, Taken)
    assert (again.state, again.duplicate, again.receipt) == ("delivered", True, first.receipt)
    assert isinstance(await one.signal("door", "verdict", {"n": 2}, signal_id="s1"), SignalIdReused)
    assert await one.keys("pending/") == []
    following = await one.start("door")
    assert (await one.statuses(following))["look"] == "suspended"


async def test_a_repeat_by_wait_id_is_answered_after_the_removal(one: Bench) -> None:
    run = await one.start("door")
    wait = (await one.steps(run))["look"]["wait"]
    first = await one.engine.signal_wait(wait, request({}, signal_id="w"))
    await one.quiet()
    await one.engine.cancel(run, by="test")
    await remove(one, run)
    again = await one.engine.signal_wait(wait, request({}, signal_id="w"))
    assert isinstance(first, Taken)
    assert isinstance(again, Taken)
    assert (again.state, again.duplicate, again.receipt) == ("delivered", True, first.receipt)
    address = await one.engine.address_of(wait, request({}, signal_id="w"))
    assert address is not None
    assert (address.workflow, address.key) == ("door", "verdict")


async def test_an_early_signal_survives_the_removal_of_the_run_before_it(one: Bench) -> None:
    run = await ended(one, signal_id=None)
    await one.engine.delete(run, by="test")
    await one.after(GRACE - 70)
    held = await one.signal("door", "verdict", {"n": 7}, signal_id="next")
    assert isinstance(held, Taken)
    await one.after(25)
    await one.sweep()
    second = await one.signal("door", "verdict", {"n": 8})
    assert isinstance(second, EarlySignalHeld)
    following = await one.start("door")
    step = (await one.steps(following))["look"]
    await one.after(60)
    assert await one.keys(f"runs/{run}/") == []
    assert step["outputs"] == {"payload": {"n": 7}, "receipt": held.receipt.id}


async def test_a_signal_held_while_the_removal_begins_is_still_current(one: Bench) -> None:
    run = await ended(one, signal_id=None)
    held = await one.signal("door", "verdict", {"n": 7})
    assert isinstance(held, Taken)
    await one.engine.delete(run, by="test")
    following = await one.start("door")
    assert (await one.steps(following))["look"]["outputs"]["receipt"] == held.receipt.id
    await one.after(GRACE)
    await one.after(60)
    assert await one.keys(f"runs/{run}/") == []
    assert (await one.steps(following))["look"]["status"] == "succeeded"


async def test_a_superseded_signal_is_answered_so_after_the_removal(tmp_path: Path) -> None:
    latest = WORKFLOW.replace("acceptEarly: 30,", "acceptEarly: 30, earlyPolicy: latest,")
    async with bench(tmp_path, latest) as one:
        old = await one.signal("door", "verdict", {"n": 1}, signal_id="old")
        new = await one.signal("door", "verdict", {"n": 2}, signal_id="new")
        assert isinstance(old, Taken)
        assert isinstance(new, Taken)
        run = await one.start("door")
        assert (await one.steps(run))["look"]["outputs"]["payload"] == {"n": 2}
        await one.engine.cancel(run, by="test")
        await remove(one, run)
        answers = [
            await one.signal("door", "verdict", {"n": n}, signal_id=name) for n, name in ((1, "old"), (2, "new"))
        ]
        states = [(answer.state, answer.duplicate) for answer in answers if isinstance(answer, Taken)]
        assert states == [("superseded", True), ("delivered", True)]
        await one.after(100_000)
        await one.after(100_000)
        assert await kinds(one) == {"claims", "instances", "meta"}


# -- a removal that dies on its way ------------------------------------------------------------------------------


@pytest.mark.parametrize("at", range(70))
async def test_a_removal_that_dies_anywhere_is_finished_by_the_next_pass(tmp_path: Path, at: int) -> None:
    clock = ManualClock()
    left = -1

    async def before(operation: str, key: str) -> None:
        nonlocal left
        if left == 0:
            left = -1
            raise StoreUnavailable("the process dies here")
        left -= left > 0

    store = MemoryStore(clock, before_operation=before)
    async with bench(tmp_path, WORKFLOW, store=store, clock=clock) as one:
        run = await ended(one)
        await one.engine.delete(run, by="test")
        one.advance(GRACE)
        left = at
        with contextlib.suppress(StoreUnavailable):
            await one.sweep()
        left = -1
        await one.sweep()
        await one.after(GRACE)
        again = await one.signal("door", "verdict", {"n": 1}, signal_id="s1")
        assert isinstance(again, Taken)
        assert (again.state, again.duplicate) == ("delivered", True)
        for _ in range(3):
            await one.after(100_000)
        assert await kinds(one) == {"claims", "instances", "meta"}
        assert await one.keys("claims/") == [KEY.claim(2)]


# -- an expiry is told of once ---------------------------------------------------------------------------------------


async def expiring(one: Bench, *, newer: bool = False) -> str:
    """Hold a signal past its limit, with a newer one above it or none; give its receipt."""
    held = await one.signal("door", "verdict", {"n": 1}, signal_id="s1")
    assert isinstance(held, Taken)
    one.advance(31)
    if newer:
        await one.signal("door", "verdict", {"n": 2})
    return held.receipt.id


def expiry(one: Bench) -> Steps:
    one.heard.events.clear()
    return Steps(one, lambda actor: removal.expire(actor, PendingAt(KEY, 0, 1)))


def told_of(one: Bench, receipt: str) -> int:
    """Count how often a person was told that a signal expired."""
    return [event.receipt for event in one.heard.named("signal.expired")].count(receipt)


async def test_in_every_order_an_expiry_and_a_new_signal_leave_the_expiry_told_of_once(one: Bench) -> None:
    receipt = await expiring(one)
    keyed = one.engine.catalog.get("door")
    assert keyed is not None
    step = keyed.keyed("verdict")
    assert step is not None

    def sender() -> Steps:
        return Steps(one, lambda actor: signals.signal_by_key(actor, KEY, request({"n": 2}), step.task))

    numbers: set[int] = set()
    async for done, answer in every_order(one, lambda: (expiry(one), sender())):
        assert isinstance(answer, Taken)
        assert answer.state == "held"
        assert done is True
        assert told_of(one, receipt) == 1
        numbers.update(names.number_of(key) for key in await one.keys(KEY.slots))
    assert numbers == {1, 2, 3}  # the signal has been above a void, and in its place


@pytest.mark.parametrize("newer", [False, True])
async def test_in_every_order_two_passes_tell_of_an_expiry_once(one: Bench, *, newer: bool) -> None:
    receipt = await expiring(one, newer=newer)
    async for results in every_order(one, lambda: (expiry(one), expiry(one))):
        assert True in results
        assert told_of(one, receipt) == 1
        one.advance(60)
        assert await removal.expire(one.actor(), PendingAt(KEY, 0, 1)) is True
        assert told_of(one, receipt) == 1


async def test_an_expiry_that_an_earlier_build_died_over_is_told_of_when_the_minute_is_over(one: Bench) -> None:
    receipt = await expiring(one, newer=True)
    until = one.clock.now() + timedelta(seconds=360)
    target = f"door/verdict/{names.number(0)}/{names.number(1)}"
    await one.store.create(names.due(until, "clear", target), b"")
    assert await removal.expire(one.actor(), PendingAt(KEY, 0, 1)) is False
    assert KEY.early(0, 1) in await one.keys("early/")
    one.advance(60)
    assert await removal.expire(one.actor(), PendingAt(KEY, 0, 1)) is True
    assert await removal.expire(one.actor(), PendingAt(KEY, 0, 1)) is True
    assert told_of(one, receipt) == 1


# -- in proportion to what is open -------------------------------------------------------------------------------


async def test_a_store_holds_records_in_proportion_to_what_is_open(one: Bench) -> None:
    """A day of runs and a day more: chains are kept for a day, everything else only while its run is."""
    first = await churn(one, 75, keep_seconds=1_000)
    one.advance(90_000)
    await one.sweep()
    second = await churn(one, 75, first=75, keep_seconds=1_000)
    one.advance(90_000)
    await one.sweep()
    third = await churn(one, 350, first=150, keep_seconds=1_000)
    for name in ("runs", "claims", "claimed", "outcomes", "pending", "removing"):
        assert second.kinds[name] <= first.kinds[name] + 10
        assert third.kinds[name] <= first.kinds[name] + 10
    await one.engine.gc(0, by="test")
    for _ in range(4):
        await one.after(90_000)
    left = await one.keys()
    assert await kinds(one) <= {"claims", "pending", "instances", "meta"}
    assert len(left) <= 5
