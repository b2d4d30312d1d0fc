"""Opening and settling a wait: the claim, the seal, the overdue and the replaced holder, and coming again."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from engine import names, waits
from engine.actor import Actor
from engine.limits import MAX_ROUNDS, OPERATION_SECONDS
from engine.names import Key
from engine.records import (
    Accepted,
    Cancelled,
    Claim,
    Outcome,
    Pending,
    Release,
    Seal,
    Sender,
    Stored,
    TimedOut,
    encode,
    key_record,
    raw,
    slot_record,
)
from engine.records import outcome as read_outcome
from engine.store.memory import ManualClock, MemoryStore
from engine.waits import Gone, Open, Settled, Waiting, WaitRequest
from tests.support.bench import Heard
from tests.support.source import HandSource

KEY = Key("door", "verdict")


class Setting:
    """A store with a clock, and actors over it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.heard = Heard()
        self.source = HandSource()

    def actor(self, label: str = "a") -> Actor:
        return Actor(self.store, self.source, label, self.heard)

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.source.advance(seconds)

    async def keys(self, prefix: str = "") -> list[str]:
        return [record.key for record in await self.store.list(prefix)]

    async def outcome(self, wait: str) -> Outcome | None:
        found = await self.store.get(names.outcome(wait))
        if found is None:
            return None
        read = read_outcome(found)
        assert isinstance(read, Stored)
        return read.value

    async def hold(self, slot: int, m: int, *, n: int = 1, limit: float = 30) -> None:
        value = Pending(
            at=KEY.pending(slot, m),
            nonce=self.source.nonce(),
            receipt=f"{slot}{m}" + "r" * 24,
            sender=Sender(kind="device", id="camera"),
            signal_id=None,
            payload=raw(b'{"n":%d}' % n),
            limit=limit,
        )
        await self.store.create(*encode(value))

    async def claim(self, number: int) -> Stored[Claim]:
        record = await self.store.get(KEY.claim(number))
        assert record is not None
        read = key_record(record)
        assert isinstance(read.value, Claim)
        return Stored(read.value, read.number, read.at)


@pytest.fixture
def here() -> Setting:
    return Setting()


def wanted(wait: str = "w1", run: str = "r1", **fields: object) -> WaitRequest:
    values: dict[str, object] = {
        "wait": wait,
        "run": run,
        "workflow": "door",
        "job": "main",
        "step": "look",
        "attempt": 1,
        "timeout": 60.0,
        "key": "verdict",
        "accept_early": 30.0,
    }
    return WaitRequest(**(values | fields))  # type: ignore[arg-type]


async def opened(here: Setting, request: WaitRequest) -> waits.Opened:
    actor = here.actor()
    made = await waits.open_wait(actor, request)
    if isinstance(made, Waiting):
        await waits.register(actor, request, made.claim)
    return made


# -- opening -------------------------------------------------------------------------------------------------------


async def test_a_free_key_is_claimed_and_the_wait_registered_with_its_index_first(here: Setting) -> None:
    made = await opened(here, wanted())
    assert isinstance(made, Waiting)
    assert await here.keys() == [
        names.claimed("r1", KEY, 1),
        KEY.claim(1),
        names.due(here.clock.now() + timedelta(seconds=60), "deadline", "w1"),
        names.registration("w1"),
    ]
    claim = await here.claim(1)
    assert (claim.value.wait, claim.value.takes, claim.value.accept_early) == ("w1", 0, 30)


async def test_coming_again_with_the_same_wait_goes_on_with_the_claim_it_has(here: Setting) -> None:
    await opened(here, wanted())
    before = await here.keys()
    again = await opened(here, wanted())
    assert isinstance(again, Waiting)
    assert again.claim is not None
    assert again.claim.number == 1
    assert await here.keys() == before


async def test_coming_again_after_the_wait_was_settled_ends_by_what_is_stored(here: Setting) -> None:
    await opened(here, wanted())
    here.advance(60)
    await waits.settle(here.actor(), KEY, await here.claim(1))
    again = await opened(here, wanted())
    assert isinstance(again, Settled)
    await opened(here, wanted("w2", "r2"))
    later = await opened(here, wanted())  # another holds the key by now
    assert isinstance(later, Settled)
    assert await here.keys(KEY.claims) == [KEY.claim(1), KEY.claim(2)]


async def test_a_held_key_closes_the_own_wait_and_leaves_the_holder_alone(here: Setting) -> None:
    await opened(here, wanted())
    made = await opened(here, wanted("w2", "r2"))
    assert isinstance(made, Settled)
    outcome = await here.outcome("w2")
    assert isinstance(outcome, Cancelled)
    assert outcome.why == "key_held"
    assert await here.outcome("w1") is None
    assert await here.keys(names.WAITS) == [names.registration("w1")]
    assert await here.keys(KEY.claims) == [KEY.claim(1)]
    # Even when the key is free again, a slower self cannot claim for that wait any more.
    here.advance(60)
    assert isinstance(await opened(here, wanted("w2", "r2")), Settled)
    assert await here.keys(KEY.claims) == [KEY.claim(1)]


async def test_an_overdue_holder_is_timed_out_by_the_claimant_and_its_run_told(here: Setting) -> None:
    await opened(here, wanted())
    here.advance(60)
    actor = here.actor()
    assert isinstance(await waits.open_wait(actor, wanted("w2", "r2")), Waiting)
    assert isinstance(await here.outcome("w1"), TimedOut)
    assert [(each.run, each.wait) for each in actor.owed] == [("r1", "w1")]
    assert [key.rsplit("/", 1)[0] for key in await here.keys(names.READY)] == ["ready/r1/w1"]


async def test_a_holder_can_be_replaced_by_the_newest(here: Setting) -> None:
    await opened(here, wanted())
    made = await opened(here, wanted("w2", "r2", replace_holder=True))
    assert isinstance(made, Waiting)
    outcome = await here.outcome("w1")
    assert isinstance(outcome, Cancelled)
    assert (outcome.why, outcome.by) == ("replaced", "r2")


async def test_a_holder_that_can_take_an_early_signal_takes_it_before_it_is_replaced(here: Setting) -> None:
    await opened(here, wanted())
    await here.hold(0, 1)  # stored as the wait opened
    await opened(here, wanted("w2", "r2", replace_holder=True))
    assert isinstance(await here.outcome("w1"), Accepted)
    assert await here.outcome("w2") is None


async def test_after_too_many_rounds_the_step_gives_up_as_contended(here: Setting) -> None:
    await opened(here, wanted())
    rounds = 0

    async def another_is_faster(operation: str, key: str) -> None:
        nonlocal rounds
        if operation == "create" and key == KEY.claim(len(await peer.list(KEY.claims)) + 1):
            rounds += 1
            number = len(await peer.list(KEY.claims)) + 1
            claim = (await here.claim(1)).value
            wait = f"x{number}"
            await peer.create(*encode(msgspec.structs.replace(claim, at=KEY.claim(number), wait=wait)))
            await peer.create(*encode(TimedOut(at=names.outcome(wait), nonce=wait)))

    peer = here.store.peer()
    here.advance(60)
    here.store.before_operation = another_is_faster
    made = await waits.open_wait(here.actor(), wanted("w2", "r2"))
    here.store.before_operation = None
    assert isinstance(made, Settled)
    outcome = await here.outcome("w2")
    assert isinstance(outcome, Cancelled)
    assert outcome.why == "contended"
    assert rounds == MAX_ROUNDS


async def test_a_wait_without_a_key_needs_no_claim(here: Setting) -> None:
    made = await opened(here, wanted(key=None, accept_early=None))
    assert made == Waiting(None)
    assert await here.keys("claims/") == []
    assert await here.keys(names.WAITS) == [names.registration("w1")]


# -- early signals ---------------------------------------------------------------------------------------------------


async def test_a_step_takes_an_early_signal_as_it_opens_and_registers_nothing(here: Setting) -> None:
    await here.hold(0, 1, n=5)
    actor = here.actor()
    made = await waits.open_wait(actor, wanted())
    assert isinstance(made, Settled)
    outcome = await here.outcome("w1")
    assert isinstance(outcome, Accepted)
    assert bytes(outcome.payload) == b'{"n":5}'
    assert outcome.received == here.clock.now()
    # The wait's own driver leaves a `ready` record as everybody does: it may have been taken over without knowing.
    assert await here.keys(names.READY) == [owed.ready for owed in actor.owed]
    assert await here.keys(names.WAITS) == []


async def test_the_payload_is_checked_again_against_the_captured_schema(here: Setting) -> None:
    await here.hold(0, 1, n=5)
    await here.hold(0, 2, n=1)
    schema = b'{"properties":{"n":{"maximum":2}},"type":"object"}'
    await opened(here, wanted(schema=schema))
    outcome = await here.outcome("w1")
    assert isinstance(outcome, Accepted)
    assert bytes(outcome.payload) == b'{"n":1}'


async def test_a_signal_that_one_wait_took_is_never_taken_by_the_next(here: Setting) -> None:
    await here.hold(0, 1)
    await opened(here, wanted())
    made = await opened(here, wanted("w2", "r2"))
    assert isinstance(made, Waiting)
    assert made.claim is not None
    assert made.claim.value.takes == 1


# -- settling --------------------------------------------------------------------------------------------------------


async def test_a_time_out_seals_its_slot_first(here: Setting) -> None:
    await opened(here, wanted())
    created: list[str] = []

    async def note(operation: str, key: str) -> None:
        if operation == "create":
            created.append(key)

    here.advance(60)
    here.store.before_operation = note
    await waits.settle(here.actor(), KEY, await here.claim(1))
    here.store.before_operation = None
    assert [key for key in created if not key.startswith("ready/")] == [KEY.pending(0, 1), names.outcome("w1")]
    record = await here.store.get(KEY.pending(0, 1))
    assert record is not None
    assert b'"type":"seal"' in record.value


async def test_a_signal_that_has_the_seals_number_is_looked_at_and_the_slot_sealed_above_it(
    here: Setting,
) -> None:
    await opened(here, wanted())
    here.advance(59)
    peer = here.store.peer()
    held = False

    async def just_before(operation: str, key: str) -> None:
        nonlocal held
        if operation == "create" and key == KEY.pending(0, 1) and not held:
            held = True
            value = Pending(
                at=key,
                nonce="faster",
                receipt="r" * 26,
                sender=Sender(kind="device", id="camera"),
                signal_id=None,
                payload=raw(b"{}"),
                limit=30,
            )
            await peer.create(*encode(value))

    here.advance(1)  # at the deadline: a signal stored now is not in time
    here.store.before_operation = just_before
    await waits.settle(here.actor(), KEY, await here.claim(1))
    here.store.before_operation = None
    assert isinstance(await here.outcome("w1"), TimedOut)
    assert await here.keys(KEY.slots) == [KEY.pending(0, 1), KEY.pending(0, 2)]


async def test_a_wait_without_accept_early_times_out_without_a_seal(here: Setting) -> None:
    await opened(here, wanted(accept_early=None))
    here.advance(60)
    await waits.settle(here.actor(), KEY, await here.claim(1))
    assert isinstance(await here.outcome("w1"), TimedOut)
    assert await here.keys(KEY.slots) == []


async def test_a_second_settler_finds_the_seal_and_the_outcome_and_makes_neither(here: Setting) -> None:
    await opened(here, wanted())
    here.advance(60)
    for _ in range(2):
        assert isinstance(await waits.settle(here.actor(), KEY, await here.claim(1)), Settled)
    assert await here.keys(KEY.slots) == [KEY.pending(0, 1)]
    # One that died between the two: the next finds the seal, and closes nothing twice.
    await here.store.delete([names.outcome("w1")])
    assert isinstance(await waits.settle(here.actor(), KEY, await here.claim(1)), Settled)
    assert await here.keys(KEY.slots) == [KEY.pending(0, 1)]


async def test_a_claim_that_is_not_the_highest_and_has_no_outcome_is_gone(here: Setting) -> None:
    await opened(here, wanted())
    claim = await here.claim(1)
    await here.store.create(*encode(Release(at=KEY.claim(2), nonce="n", slot=1, run="r1")))
    here.advance(600)
    assert await waits.settle(here.actor(), KEY, claim) == Gone()
    assert await here.keys("outcomes/") == []


async def test_an_operation_that_took_too_long_starts_over_before_it_creates(here: Setting) -> None:
    await opened(here, wanted())
    here.advance(60)
    slept = 0

    async def sleep_once(operation: str, key: str) -> None:
        nonlocal slept
        if operation == "now" and not slept:
            slept = 1
            here.source.advance(OPERATION_SECONDS)

    reads: list[str] = []

    async def watch(operation: str, key: str) -> None:
        reads.append(f"{operation} {key}")
        await sleep_once(operation, key)

    here.store.before_operation = watch
    await waits.settle(here.actor(), KEY, await here.claim(1))
    here.store.before_operation = None
    assert reads.count(f"last {KEY.claims}") == 2
    assert isinstance(await here.outcome("w1"), TimedOut)


async def test_an_unreadable_outcome_settles_a_wait_and_is_not_written_over(here: Setting) -> None:
    await opened(here, wanted())
    await here.store.create(names.outcome("w1"), b"{broken")
    standing = await waits.settle(here.actor(), KEY, await here.claim(1))
    assert isinstance(standing, Settled)
    assert isinstance(await opened(here, wanted("w2", "r2")), Waiting)
    record = await here.store.get(names.outcome("w1"))
    assert record is not None
    assert record.value == b"{broken"


async def test_an_open_wait_is_open_until_its_deadline(here: Setting) -> None:
    await opened(here, wanted())
    here.advance(59.999)
    assert await waits.settle(here.actor(), KEY, await here.claim(1)) == Open(
        here.clock.now() + timedelta(seconds=0.001)
    )
    assert await here.keys("outcomes/") == []


# -- closing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("claimed", [True, False])
async def test_closing_a_wait_gives_it_an_outcome_whether_it_was_claimed_or_not(here: Setting, claimed: bool) -> None:
    if claimed:
        await opened(here, wanted())
    for _ in range(2):
        await waits.close(here.actor(), "r1", "w1", KEY, why="cancelled", by="eve")
    outcome = await here.outcome("w1")
    assert isinstance(outcome, Cancelled)
    assert (outcome.why, outcome.by) == ("cancelled", "eve")
    assert isinstance(await opened(here, wanted()), Settled)  # a driver that comes late claims nothing
    assert len(await here.keys(KEY.claims)) == int(claimed)


async def test_closing_a_wait_leaves_an_early_signal_that_it_could_take_to_it(here: Setting) -> None:
    await opened(here, wanted())
    await here.hold(0, 1)
    await waits.close(here.actor(), "r1", "w1", KEY, why="cancelled", by="eve")
    assert isinstance(await here.outcome("w1"), Accepted)


async def test_seals_name_the_wait_that_they_close_the_slot_for(here: Setting) -> None:
    await opened(here, wanted())
    here.advance(60)
    await waits.settle(here.actor(), KEY, await here.claim(1))
    record = await here.store.get(KEY.pending(0, 1))
    assert record is not None
    read = slot_record(record)
    assert isinstance(read, Stored)
    assert isinstance(read.value, Seal)
    assert read.value.wait == "w1"
