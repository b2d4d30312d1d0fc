"""How a claimed wait stands, and which early signal it takes: the laws of the settling decision."""

from __future__ import annotations

from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from engine.decisions.settlement import (
    Apply,
    Open,
    Settled,
    Slot,
    TimeOut,
    applicable,
    in_age,
    keyless_settlement,
    sealed,
    settlement,
)
from engine.records import Claim, Outcome, Pending, Registration, Seal, Stored, Unreadable, deadline, raw
from tests.support.records import KEY, START, WAIT, claims, moments, outcomes, payload_of, pendings, slots

a_slot = slots()
maybe_outcome = st.none() | outcomes()


def fits(claim: Stored[Claim], entry: object) -> bool:
    """Say in the plainest words whether the wait of a claim may take a record of its slot."""
    if not isinstance(entry, Stored) or not isinstance(entry.value, Pending) or claim.value.accept_early is None:
        return False
    age = (claim.at - entry.at).total_seconds()
    limit = min(claim.value.accept_early, entry.value.limit)
    allowed = bytes(claim.value.schema) == b"null" or payload_of(Stored(entry.value, 0, entry.at))["n"] >= 0
    return age <= limit and entry.at < deadline(claim) and allowed


@given(claims(), a_slot, maybe_outcome, moments)
def test_it_is_settled_exactly_when_there_is_an_outcome_whatever_else_there_is(
    claim: Stored[Claim], slot: Slot, outcome: Stored[Outcome] | Unreadable | None, now: datetime
) -> None:
    decided = settlement(claim, slot, outcome, now)
    assert isinstance(decided, Settled) == (outcome is not None)
    if isinstance(decided, Settled):
        assert decided.outcome is outcome


@given(claims(), a_slot, moments)
def test_a_signal_that_applies_wins_over_the_deadline_however_late_somebody_looks(
    claim: Stored[Claim], slot: Slot, now: datetime
) -> None:
    decided = settlement(claim, slot, None, now)
    expected = [entry for entry in slot if fits(claim, entry)]
    if expected:
        assert isinstance(decided, Apply)
        assert decided.pending == (expected[0] if claim.value.policy == "first" else expected[-1])
    else:
        assert isinstance(decided, TimeOut if now >= deadline(claim) else Open)


@given(claims(), a_slot)
def test_it_is_open_until_the_deadline_to_the_microsecond_and_timed_out_from_then(
    claim: Stored[Claim], slot: Slot
) -> None:
    if applicable(claim, slot) is None:
        until = deadline(claim)
        assert settlement(claim, slot, None, until - timedelta(microseconds=1)) == Open(until)
        assert settlement(claim, slot, None, until) == TimeOut()


@given(claims(), a_slot, moments, moments)
def test_which_signal_applies_does_not_depend_on_when_somebody_looks(
    claim: Stored[Claim], slot: Slot, one: datetime, other: datetime
) -> None:
    first, second = settlement(claim, slot, None, one), settlement(claim, slot, None, other)
    assert isinstance(first, Apply) == isinstance(second, Apply)
    if isinstance(first, Apply):
        assert first == second


@given(claims(), a_slot, st.data())
def test_under_first_what_is_stored_later_changes_nothing(
    claim: Stored[Claim], slot: Slot, data: st.DataObject
) -> None:
    chosen = applicable(claim, slot)
    if chosen is None or claim.value.policy != "first":
        return
    more = [*slot, data.draw(pendings(0, len(slot) + 1))]
    assert applicable(claim, more) == chosen


@given(claims(), a_slot, st.data())
def test_under_latest_a_newer_signal_that_fits_is_taken_instead(
    claim: Stored[Claim], slot: Slot, data: st.DataObject
) -> None:
    newer = data.draw(pendings(0, len(slot) + 1))
    if claim.value.policy == "latest" and fits(claim, newer):
        assert applicable(claim, [*slot, newer]) == newer


@given(claims(), a_slot)
def test_a_claim_without_accept_early_takes_nothing(claim: Stored[Claim], slot: Slot) -> None:
    if claim.value.accept_early is None:
        assert applicable(claim, slot) is None


@given(claims(), a_slot)
def test_only_signals_are_taken(claim: Stored[Claim], slot: Slot) -> None:
    chosen = applicable(claim, slot)
    if chosen is not None:
        assert isinstance(chosen.value, Pending)
        assert chosen in slot
        assert fits(claim, chosen)


@given(claims(), pendings(0, 1))
def test_an_age_is_judged_by_the_two_stamps_and_the_smaller_limit(
    claim: Stored[Claim], pending: Stored[Pending]
) -> None:
    if claim.value.accept_early is None:
        assert not in_age(claim, pending)
        return
    limit = timedelta(seconds=min(claim.value.accept_early, pending.value.limit))
    assert in_age(Stored(claim.value, claim.number, pending.at + limit), pending)
    assert not in_age(Stored(claim.value, claim.number, pending.at + limit + timedelta(microseconds=1)), pending)
    # Stored after the claim (race 1): a negative age is within every limit.
    assert in_age(Stored(claim.value, claim.number, pending.at - timedelta(seconds=1)), pending)


@given(a_slot)
def test_a_slot_is_closed_exactly_by_a_seal_at_its_end(slot: Slot) -> None:
    at_end = bool(slot) and isinstance(slot[-1], Stored) and isinstance(slot[-1].value, Seal)
    assert sealed(slot) == at_end


@given(moments, st.floats(0.001, 10_000), maybe_outcome, moments)
def test_a_wait_without_a_key_has_its_registration_for_a_claim_and_an_empty_slot(
    opened: datetime, timeout: float, outcome: Stored[Outcome] | Unreadable | None, now: datetime
) -> None:
    value = Registration(
        at=f"waits/{WAIT}",
        nonce="n",
        wait=WAIT,
        run="r" * 26,
        workflow="door",
        job="main",
        step="look",
        step_attempt=1,
        key=None,
        claim=None,
        timeout=timeout,
        schema=raw(None),
        due="due/0/deadline/w",
    )
    decided = keyless_settlement(Stored(value, 0, opened), outcome, now)
    until = opened + timedelta(seconds=timeout)
    match decided:
        case Settled(found):
            assert found is outcome
        case TimeOut():
            assert outcome is None
            assert now >= until
        case Open(until=told):
            assert outcome is None
            assert now < told == until


def test_the_deadline_is_the_stores_stamp_and_the_timeout() -> None:
    value = Claim(
        at=KEY.claim(1),
        nonce="n",
        wait=WAIT,
        run="r",
        job="j",
        step="s",
        step_attempt=1,
        timeout=1.5,
        accept_early=None,
        policy="first",
        schema=raw(None),
        takes=0,
    )
    assert deadline(Stored(value, 1, START)) == START + timedelta(seconds=1.5)
