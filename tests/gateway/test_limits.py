"""Proves the limits of devices: bursts, rates, answers that name the limit, bans that double, and bounded memory."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devices.model import LimitOverrides, Rate
from gateway.limits import MAX_RETRY_SECONDS, Allowed, DeviceLimits, FailureLimits, Limited, Seldom

NOTHING_SPECIAL = LimitOverrides()


def allowed(limits: DeviceLimits, device: str, times: int, now: float) -> int:
    return sum(isinstance(limits.take(device, "signals", now, NOTHING_SPECIAL), Allowed) for _ in range(times))


def test_a_burst_passes_and_then_the_rate_holds() -> None:
    limits = DeviceLimits()
    assert allowed(limits, "kitchen", 30, 0.0) == 20
    assert allowed(limits, "kitchen", 30, 1.0) == 5
    assert allowed(limits, "kitchen", 30, 100.0) == 20


def test_each_kind_of_event_and_each_device_has_its_own_bucket() -> None:
    limits = DeviceLimits()
    allowed(limits, "kitchen", 30, 0.0)
    assert isinstance(limits.take("kitchen", "runs", 0.0, NOTHING_SPECIAL), Allowed)
    assert isinstance(limits.take("hall", "signals", 0.0, NOTHING_SPECIAL), Allowed)


def test_an_override_is_the_devices_own() -> None:
    limits = DeviceLimits()
    special = LimitOverrides(signals=Rate(per_second=0.1, burst=1))
    assert isinstance(limits.take("kitchen", "signals", 0.0, special), Allowed)
    refused = limits.take("kitchen", "signals", 0.0, special)
    assert refused == Limited(limit="signals", retry_after_seconds=10.0, answer=True)


def test_a_refusal_says_when_to_try_again_and_that_is_true() -> None:
    limits = DeviceLimits()
    allowed(limits, "kitchen", 20, 0.0)
    refused = limits.take("kitchen", "signals", 0.0, NOTHING_SPECIAL)
    assert isinstance(refused, Limited)
    assert refused.retry_after_seconds == pytest.approx(0.2)
    assert isinstance(limits.take("kitchen", "signals", refused.retry_after_seconds + 0.001, NOTHING_SPECIAL), Allowed)


def test_however_seldom_a_device_may_signal_the_time_that_it_is_told_is_a_number() -> None:
    limits = DeviceLimits()
    special = LimitOverrides(signals=Rate(per_second=5e-324, burst=1))
    limits.take("kitchen", "signals", 0.0, special)
    refused = limits.take("kitchen", "signals", 0.0, special)
    assert isinstance(refused, Limited)
    assert refused.retry_after_seconds == MAX_RETRY_SECONDS


def test_unidentified_refusals_are_to_be_answered_once_a_second() -> None:
    limits = DeviceLimits()
    allowed(limits, "kitchen", 20, 0.0)
    verdicts = [limits.take("kitchen", "signals", at / 100, NOTHING_SPECIAL) for at in range(250)]
    answered = [at for at, verdict in enumerate(verdicts) if isinstance(verdict, Limited) and verdict.answer]
    assert len(answered) == 3
    assert all(later - earlier >= 100 for earlier, later in pairwise(answered))


def flood(limits: DeviceLimits, start: float, seconds: int, a_second: int) -> list[tuple[float, Limited]]:
    """Send `a_second` signals in each of so many seconds; give those that closed the connection."""
    closed = []
    for second in range(seconds):
        for each in range(a_second):
            at = start + second + each / a_second
            verdict = limits.take("kitchen", "signals", at, NOTHING_SPECIAL)
            if isinstance(verdict, Limited) and verdict.close:
                closed.append((at, verdict))
    return closed


def test_ten_times_over_for_thirty_seconds_keeps_a_device_out_for_thirty_seconds() -> None:
    limits = DeviceLimits()
    closed = flood(limits, 0.0, 31, 50)
    assert len(closed) == 1
    at, verdict = closed[0]
    assert 29.0 <= at <= 30.0
    assert verdict.retry_after_seconds == 30.0
    assert limits.banned_for("kitchen", at + 29.0) == pytest.approx(1.0)
    assert isinstance(limits.take("kitchen", "connects", at + 29.0, NOTHING_SPECIAL), Limited)
    assert isinstance(limits.take("kitchen", "connects", at + 30.1, NOTHING_SPECIAL), Allowed)


def test_less_than_ten_times_over_or_not_for_long_is_only_refused() -> None:
    assert flood(DeviceLimits(), 0.0, 120, 49) == []
    limits = DeviceLimits()
    for start in range(0, 300, 30):
        assert flood(limits, float(start), 28, 60) == []


def test_a_ban_doubles_up_to_an_hour_and_an_hour_of_peace_forgets_it() -> None:
    limits = DeviceLimits()
    now, bans = 0.0, []
    for _ in range(9):
        at, verdict = flood(limits, now, 31, 50)[0]
        bans.append(verdict.retry_after_seconds)
        now = float(int(at + verdict.retry_after_seconds) + 1)
    assert bans == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]
    _, verdict = flood(limits, now + 3601.0, 31, 50)[0]
    assert verdict.retry_after_seconds == 30


def test_memory_stays_bounded_whatever_is_named() -> None:
    limits = DeviceLimits(capacity=10)
    failures = FailureLimits(capacity=10)
    seldom = Seldom(60.0, capacity=10)
    for n in range(100):
        limits.take(f"device-{n}", "signals", 0.0, NOTHING_SPECIAL)
        failures.failed("192.0.2.1", f"name-{n}", 0.0)
        seldom.due(f"name-{n}", 0.0)
    assert len(limits) == 10
    assert len(failures) == 10
    assert len(seldom) == 10


def test_failures_are_counted_by_address_and_name_together() -> None:
    failures = FailureLimits(Rate(per_second=0.5, burst=3))
    assert [failures.failed("192.0.2.1", "kitchen", 0.0) for _ in range(4)] == [0.0, 0.0, 0.0, 2.0]
    assert failures.failed("192.0.2.2", "kitchen", 0.0) == 0.0
    assert failures.failed("192.0.2.1", "hall", 0.0) == 0.0


def test_something_seldom_is_due_again_after_its_time() -> None:
    seldom = Seldom(60.0)
    assert seldom.due("kitchen", 0.0)
    assert not seldom.due("kitchen", 59.9)
    assert seldom.due("hall", 59.9)
    assert seldom.due("kitchen", 60.0)


@given(
    st.lists(st.floats(min_value=0, max_value=5), max_size=200),
    st.floats(min_value=0.5, max_value=20),
    st.integers(min_value=1, max_value=20),
)
def test_no_more_than_the_burst_and_the_rate_ever_passes(gaps: list[float], rate: float, burst: int) -> None:
    limits = DeviceLimits()
    special = LimitOverrides(signals=Rate(per_second=rate, burst=burst))
    now, passed = 0.0, 0
    for gap in gaps:
        now += gap
        passed += isinstance(limits.take("kitchen", "signals", now, special), Allowed)
    assert passed <= burst + rate * now + 1e-6
