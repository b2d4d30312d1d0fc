"""What one device may do in a time, and what becomes of one that does not hold to it. Time is given, memory is bounded.

Only authenticated devices have buckets, so that nobody uses up another's by naming it. Failed logins are counted by
address and name together, and a right credential is never asked for a count.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, Literal

from devices.model import LimitOverrides, Rate

LimitName = Literal["signals", "runs", "reads", "connects", "banned"]
Counted = Literal["signals", "runs", "reads", "connects"]

MAX_DEVICES: Final = 50_000
MAX_FAILURES: Final = 10_000
# Ten times over its rate in each of 30 seconds in a row: closed, and kept out for 30 s, then 60 s, up to an hour.
ABUSE_FACTOR: Final = 10.0
ABUSE_SECONDS: Final = 30
BAN_SECONDS: Final = 30.0
MAX_BAN_SECONDS: Final = 3_600.0
UNNAMED_ANSWER_SECONDS: Final = 1.0
# What is told where a rate is next to nothing: there are rates by which the true time is no number.
MAX_RETRY_SECONDS: Final = 31_536_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """The limits that hold for a device."""

    signals: Rate = Rate(per_second=5.0, burst=20)  # noqa: RUF009 - frozen
    runs: Rate = Rate(per_second=1.0, burst=5)  # noqa: RUF009
    reads: Rate = Rate(per_second=1.0, burst=5)  # noqa: RUF009
    connects: Rate = Rate(per_second=1.0, burst=20)  # noqa: RUF009

    def of(self, counted: Counted, overrides: LimitOverrides) -> Rate:
        """Give the rate for one kind of event; what is overridden for the device comes first."""
        special: Rate | None = getattr(overrides, counted)
        common: Rate = getattr(self, counted)
        return special or common


@dataclass(frozen=True, slots=True)
class Allowed:
    """Within the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limited:
    """Over the limit. `answer` is false while an unidentified message need not be answered; `close`: now banned."""

    limit: LimitName
    retry_after_seconds: float
    answer: bool = True
    close: bool = False


Verdict = Allowed | Limited
_ALLOWED: Final = Allowed()


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float

    def take(self, rate: Rate, now: float) -> float:
        """Take one token; give 0, or the seconds until there is one, a year at most."""
        self.tokens = min(float(rate.burst), self.tokens + max(0.0, now - self.at) * rate.per_second)
        self.at = now
        if self.tokens >= 1.0:
            self.tokens -= 1.0
            return 0.0
        return min(MAX_RETRY_SECONDS, (1.0 - self.tokens) / rate.per_second)


@dataclass(slots=True)
class _Pressure:
    """How many seconds in a row a device has been ten times over one limit."""

    second: int = -1
    attempts: int = 0
    seconds_over: int = 0

    def add(self, rate: Rate, now: float) -> bool:
        """Count an attempt; tell whether this one completes `ABUSE_SECONDS`."""
        second = int(now)
        over = max(1.0, ABUSE_FACTOR * rate.per_second)
        if second != self.second:
            lasted = second == self.second + 1 and self.attempts >= over
            self.seconds_over = self.seconds_over + 1 if lasted else 0
            self.second, self.attempts = second, 0
        self.attempts += 1
        return self.seconds_over >= ABUSE_SECONDS - 1 and self.attempts >= over


@dataclass(slots=True)
class _State:
    buckets: dict[Counted, _Bucket] = field(default_factory=dict)
    pressures: dict[Counted, _Pressure] = field(default_factory=dict)
    answered_at: float = float("-inf")
    banned_until: float = float("-inf")
    bans: int = 0


class DeviceLimits:
    """The buckets of all devices of this instance; the one used longest ago is forgotten when there are too many."""

    def __init__(self, rates: Rates | None = None, *, capacity: int = MAX_DEVICES) -> None:
        self._rates = rates or Rates()
        self._capacity = capacity
        self._states: OrderedDict[str, _State] = OrderedDict()

    def __len__(self) -> int:
        return len(self._states)

    def take(self, device: str, counted: Counted, now: float, overrides: LimitOverrides) -> Verdict:
        """Count one event of an authenticated device; `now` is monotonic seconds."""
        state = self._state(device)
        if state.banned_until > now:
            return Limited(limit="banned", retry_after_seconds=state.banned_until - now, answer=False)
        rate = self._rates.of(counted, overrides)
        bucket = state.buckets.get(counted)
        if bucket is None:
            bucket = state.buckets[counted] = _Bucket(float(rate.burst), now)
        wait = bucket.take(rate, now)
        pressure = state.pressures.get(counted)
        if pressure is None:
            pressure = state.pressures[counted] = _Pressure()
        abused = pressure.add(rate, now)
        if wait <= 0.0:
            return _ALLOWED
        if abused:
            return self._ban(state, now)
        answer = now - state.answered_at >= UNNAMED_ANSWER_SECONDS
        if answer:
            state.answered_at = now
        return Limited(limit=counted, retry_after_seconds=wait, answer=answer)

    def banned_for(self, device: str, now: float) -> float:
        """Give the seconds that a device is still kept out, 0 when it is not."""
        state = self._states.get(device)
        return max(0.0, state.banned_until - now) if state is not None else 0.0

    def change(self, rates: Rates) -> None:
        """Put other rates in force; what was counted stays counted."""
        self._rates = rates

    def forget(self, device: str) -> None:
        """Start afresh with a device, as after it was deleted or its limits were changed."""
        self._states.pop(device, None)

    def _state(self, device: str) -> _State:
        state = self._states.get(device)
        if state is None:
            state = self._states[device] = _State()
            if len(self._states) > self._capacity:
                self._states.popitem(last=False)
        else:
            self._states.move_to_end(device)
        return state

    @staticmethod
    def _ban(state: _State, now: float) -> Limited:
        if now - state.banned_until > MAX_BAN_SECONDS:
            state.bans = 0
        seconds = min(MAX_BAN_SECONDS, BAN_SECONDS * 2.0**state.bans)
        state.bans = min(state.bans + 1, 16)
        state.banned_until = now + seconds
        state.pressures.clear()
        return Limited(limit="banned", retry_after_seconds=seconds, close=True)


class FailureLimits:
    """Failed logins by address and name together: how many get the full attention of the door."""

    def __init__(self, rate: Rate | None = None, *, capacity: int = MAX_FAILURES) -> None:
        self._rate = rate or Rate(per_second=0.5, burst=10)
        self._capacity = capacity
        self._buckets: OrderedDict[tuple[str, str], _Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def failed(self, address: str, name: str, now: float) -> float:
        """Count a failure; give 0, or the seconds until the next one counts as within the limit."""
        at = (address, name)
        bucket = self._buckets.get(at)
        if bucket is None:
            bucket = self._buckets[at] = _Bucket(float(self._rate.burst), now)
            if len(self._buckets) > self._capacity:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(at)
        return bucket.take(self._rate, now)


class Seldom:
    """Lets something through at most once in `seconds` for each name."""

    def __init__(self, seconds: float, *, capacity: int = MAX_DEVICES) -> None:
        self._seconds = seconds
        self._capacity = capacity
        self._last: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._last)

    def due(self, name: str, now: float) -> bool:
        """Tell whether it is time again for `name`, and if so count it."""
        if now - self._last.get(name, float("-inf")) < self._seconds:
            return False
        self._last[name] = now
        self._last.move_to_end(name)
        if len(self._last) > self._capacity:
            self._last.popitem(last=False)
        return True
