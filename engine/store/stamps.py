"""Stamps as whole microseconds, and what one says about later moments without asking the store again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from engine.clock import Source

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

# By how much a disciplined clock may run faster than another: NTP slews by at most half of this.
CLOCK_RATE_ERROR: Final = 0.001


def to_datetime(microseconds: int) -> datetime:
    """Turn a stamp as it is stored into the time that it stands for."""
    return _EPOCH + timedelta(microseconds=microseconds)


def to_microseconds(moment: datetime) -> int:
    """Turn a time into a stamp, rounded down."""
    return (moment - _EPOCH) // _MICROSECOND


class Anchor:
    """A server's clock as far as its last stamp and this host's monotonic clock tell: a lower bound of it.

    *The argument.* The server read `stamp` on its clock before the answer with it arrived, at `arrived` on ours. So at
    that instant its clock stood at `stamp` or above, and since then it has gone on by at least `1 - CLOCK_RATE_ERROR`
    of what ours has, which goes on while the machine sleeps and never steps. A server's clock that is set back breaks
    this until the next stamp arrives, and only there: whoever decides asks the server.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._stamp: datetime | None = None
        self._arrived = 0.0

    def saw(self, stamp: datetime) -> None:
        """Take note of a stamp of the server's clock that has just arrived; one that tells less is left aside."""
        known = self.lower_bound()
        if known is None or stamp >= known:
            self._stamp, self._arrived = stamp, self._source.monotonic()

    def reset(self, stamp: datetime) -> None:
        """Start again from a stamp that the server gave for its own clock, whatever was known before."""
        self._stamp, self._arrived = stamp, self._source.monotonic()

    def lower_bound(self) -> datetime | None:
        """Tell what the server's clock has passed; None before the first stamp."""
        if self._stamp is None:
            return None
        passed = max(0.0, self._source.monotonic() - self._arrived)
        return self._stamp + timedelta(seconds=passed * (1 - CLOCK_RATE_ERROR))


class StoreClock:
    """What this instance knows of a store's clock without asking, from stamps and strict answers of `now`.

    "Nothing that becomes visible later bears an earlier stamp than `t`" holds for ever once it held: whoever asks only
    whether `until` has passed is answered from the latest strict answer when that is at or after `until`; and, while
    the reckoning (`Anchor`) is before it, from that: it says only "not yet", on which nothing rests.
    """

    def __init__(self, source: Source) -> None:
        self._anchor = Anchor(source)
        self._strict: datetime | None = None

    def stamped(self, stamp: datetime) -> None:
        """Take note of the stamp of what this instance has just stored."""
        self._anchor.saw(stamp)

    def answered(self, answer: datetime) -> datetime:
        """Take note of a strict answer that has just arrived."""
        self._anchor.reset(answer)
        if self._strict is None or answer > self._strict:
            self._strict = answer
        return answer

    def guess(self, until: datetime) -> datetime | None:
        """Tell whether `until` has passed, if that can be told without the store; None when it cannot."""
        if self._strict is not None and self._strict >= until:
            return self._strict
        reckoned = self._anchor.lower_bound()
        return reckoned if reckoned is not None and reckoned < until else None
