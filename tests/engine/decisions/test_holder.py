"""Who holds a key: the wait of its highest claim for as long as that wait has no outcome, and nobody else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.decisions.holder import Free, Held, holder
from engine.records import Claim, KeyRecord, Outcome, Release, Stored, Unreadable, current_slot
from tests.support.records import claims, outcomes, releases

tops = st.none() | claims() | releases()


@given(tops, st.none() | outcomes())
def test_a_key_is_held_exactly_by_a_claim_whose_wait_has_no_outcome(
    top: Stored[KeyRecord] | None, outcome: Stored[Outcome] | Unreadable | None
) -> None:
    state = holder(top, outcome)
    held = top is not None and isinstance(top.value, Claim) and outcome is None
    assert isinstance(state, Held if held else Free)
    if isinstance(state, Held):
        assert state.claim == top


@given(claims(), outcomes())
def test_an_outcome_of_any_kind_frees_the_key_a_damaged_one_included(
    claim: Stored[Claim], outcome: Stored[Outcome] | Unreadable
) -> None:
    assert holder(Stored(claim.value, claim.number, claim.at), outcome) == Free()


@given(tops)
def test_early_signals_go_where_the_highest_record_leaves_them(top: Stored[KeyRecord] | None) -> None:
    slot = current_slot(top)
    if top is None:
        assert slot == 0
    elif isinstance(top.value, Release):
        assert slot == top.value.slot
    else:
        assert slot == top.number
