"""Checking the audit log: every event of every instance is still there, as it was written and in its place.

Each event names the digest of the one before it, which shows a change, a removal and another order between two events.
What the end of a chain was is vouched for from outside it: by the heartbeats of an instance that lives, by its own last
event (`audit.closed`), and by other instances that saw it (`audit.witnessed`). What retention has removed it has noted
(`audit.retained`), so that a chain may begin in its middle. The stamps of the store are no part of the digests; that
an event stands under its own day is checked.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Literal

import msgspec

from engine import names, records
from engine.records import Unreadable
from engine.store.base import Record, Store
from gateway import trail
from gateway.audit import CLOSED, RETAINED, WITNESSED, AuditEvent, digest, read_event

Kind = Literal["changed", "removed", "reordered", "cut_off"]
MAX_FLAWS: Final = 1_000
_PAGE: Final = 500
_REMEMBERED: Final = 1_000
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """One place where the log is not as it was written. `seq` is the first event concerned."""

    kind: Kind
    instance: str
    seq: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What a check found. `unvouched` names the chains whose end nobody vouches for: their process was killed."""

    events: int
    chains: int
    flaws: tuple[Flaw, ...]
    unvouched: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.flaws


@dataclass(frozen=True, slots=True)
class Head:
    """What somebody says of a chain: its event `seq` has this digest. `day` is where it stands, if that is known."""

    instance: str
    seq: int
    digest: str
    day: str = ""


@dataclass(slots=True)
class Chain:
    """One instance's events, as far as they have been read."""

    instance: str
    first: int = 0
    first_prev: str = ""
    last: int = 0
    last_digest: str = ""
    closed: bool = False
    days: dict[str, int] = field(default_factory=dict)  # day -> its last event
    recent: deque[str] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))


def parse_head(instance: str, text: str, day: str = "") -> Head | None:
    """Read `<seq>:<digest>`, or `<day>:<seq>:<digest>`; None for anything else."""
    parts = text.split(":")
    if len(parts) == 3:
        day = parts.pop(0)
    if len(parts) != 2 or not parts[0].isascii() or not parts[0].isdigit():
        return None
    return Head(instance, int(parts[0]), parts[1], day)


async def heads(store: Store) -> dict[str, Head | None]:
    """Read the head that each living instance's last heartbeat carries; None before its first event."""
    found: dict[str, Head | None] = {}
    after: str | None = None
    while page := await store.list(names.INSTANCES, after=after, limit=_PAGE):
        for record in page:
            beat = records.beat(record).value
            found[beat.instance] = parse_head(beat.instance, beat.audit)
        after = page[-1].key
    return found


async def verify(store: Store) -> Verified:
    """Read the whole log and check it; what is being written meanwhile is no flaw. Raises `StoreUnavailable`."""
    beating = await heads(store)
    check = _Check(store)
    async for day in trail.days(store):
        async for instance in trail.instances(store, day):
            await check.read(day, instance)
    for head in [*beating.values(), *check.witnessed]:
        if head is not None:
            await check.vouched(head)
    check.begin_rightly()
    seen = {head.instance for head in check.witnessed} | beating.keys()
    unvouched = [chain.instance for chain in check.chains.values() if not chain.closed and chain.instance not in seen]
    return Verified(events=check.events, chains=len(check.chains), flaws=tuple(check.flaws), unvouched=tuple(unvouched))


class _Check:
    """The state of one check."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.chains: dict[str, Chain] = {}
        self.flaws: list[Flaw] = []
        self.events = 0
        self.witnessed: list[Head] = []
        self.retained: dict[str, Head] = {}

    async def read(self, day: str, instance: str) -> None:
        """Read one instance's events of one day; days come in their order."""
        chain = self.chains.setdefault(instance, Chain(instance))
        prefix = f"{names.AUDIT}{day}/{instance}/"
        after: str | None = None
        while page := await self._store.list(prefix, after=after, limit=_PAGE):
            for record in page:
                self._next(chain, day, record)
            after = page[-1].key
        chain.days[day] = chain.last

    def _next(self, chain: Chain, day: str, record: Record) -> None:
        self.events += 1
        seq, found, own = names.number_of(record.key), read_event(record), digest(record.value)
        event = None if isinstance(found, Unreadable) else found.value
        if chain.last == 0:
            chain.first, chain.first_prev = seq, event.prev if event is not None else "?"
        elif seq > chain.last + 1:
            gap = f"the events {chain.last + 1} to {seq - 1} are missing"
            self._flaw("removed", chain, chain.last + 1, gap if seq > chain.last + 2 else f"event {seq - 1} is missing")
        elif seq <= chain.last:
            self._flaw("reordered", chain, seq, f"event {seq} stands under {day}, behind event {chain.last}")
        if event is None:
            self._unreadable(chain, seq, record)
        else:
            if chain.last == seq - 1 and chain.last_digest and event.prev != chain.last_digest:
                self._broken(chain, seq, event.prev)
            self._note(chain, day, event, record.stored_at)
        chain.last, chain.last_digest = seq, own if event is not None else ""
        chain.recent.append(own)

    def _unreadable(self, chain: Chain, seq: int, record: Record) -> None:
        """Tell an event that was moved here from one that was changed."""
        at = _says_of_itself(record.value)
        if at and at != record.key and at.startswith(names.AUDIT) and f"/{chain.instance}/" in at:
            self._flaw("reordered", chain, seq, f"what stands as event {seq} was written as event {_number(at)}")
        else:
            self._flaw("changed", chain, seq, f"event {seq} is not as it was written")

    def _broken(self, chain: Chain, seq: int, prev: str) -> None:
        if prev in chain.recent:
            self._flaw("reordered", chain, seq, f"event {seq} was written behind another one than event {seq - 1}")
        else:
            self._flaw("changed", chain, seq - 1, f"event {seq - 1} is not as event {seq} says that it was")

    def _note(self, chain: Chain, day: str, event: AuditEvent, stored_at: datetime) -> None:
        filed = datetime.strptime(day, "%Y%m%d").replace(tzinfo=stored_at.tzinfo) if day.isdigit() else None
        if filed is None or not -_DAY <= stored_at - filed < 2 * _DAY:
            seq = names.number_of(event.at)
            self._flaw("changed", chain, seq, f"event {seq} stands under {day} and was stored on another day")
        chain.closed = event.action == CLOSED
        if event.action in {WITNESSED, RETAINED} and (head := parse_head(event.result, event.reason)) is not None:
            if event.action == WITNESSED:
                self.witnessed.append(head)
            elif (known := self.retained.get(head.instance)) is None or known.seq < head.seq:
                self.retained[head.instance] = head

    # -- what others say of a chain --------------------------------------------------------------------------------

    async def vouched(self, head: Head) -> None:
        """Compare a chain with what somebody outside it says of one of its events."""
        removed = self.retained.get(head.instance)
        if removed is not None and head.seq <= removed.seq:
            return
        chain = self.chains.get(head.instance)
        if chain is None or head.seq > chain.last:
            there = f"it ends with event {chain.last}" if chain is not None else "none of it is left"
            chain = chain or Chain(head.instance)
            self._flaw("cut_off", chain, chain.last + 1, f"the chain had an event {head.seq}; {there}")
            return
        if (found := await self._digest_of(chain, head.seq)) is not None and found != head.digest:
            self._flaw("changed", chain, head.seq, f"event {head.seq} is not as it was when others saw it")

    async def _digest_of(self, chain: Chain, seq: int) -> str | None:
        if seq == chain.last and chain.last_digest:
            return chain.last_digest
        day = next((day for day, last in chain.days.items() if seq <= last), None)
        record = await self._store.get(names.audit(day, chain.instance, seq)) if day is not None else None
        return digest(record.value) if record is not None else None

    def begin_rightly(self) -> None:
        """Check that what is missing before the first event of a chain was removed by retention."""
        for chain in self.chains.values():
            removed = self.retained.get(chain.instance)
            if chain.first == 1:
                if chain.first_prev not in {"", "?"}:
                    self._flaw("changed", chain, 1, "event 1 says that there was one before it")
                continue
            if removed is None or removed.seq < chain.first - 1:
                since = removed.seq + 1 if removed is not None else 1
                self._flaw("removed", chain, since, f"the events {since} to {chain.first - 1} are missing")
            elif removed.seq == chain.first - 1 and chain.first_prev not in {removed.digest, "?"}:
                self._flaw("changed", chain, chain.first, f"event {chain.first} does not follow on what was removed")

    def _flaw(self, kind: Kind, chain: Chain, seq: int, text: str) -> None:
        flaw = Flaw(kind=kind, instance=chain.instance, seq=seq, text=text)
        if len(self.flaws) < MAX_FLAWS and flaw not in self.flaws[-_FEW:]:
            self.flaws.append(flaw)


_FEW: Final = 10


class _Address(msgspec.Struct):
    at: str = ""


_ADDRESS: Final = msgspec.json.Decoder(_Address)


def _says_of_itself(value: bytes) -> str:
    try:
        return _ADDRESS.decode(value).at
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""


def _number(key: str) -> str:
    return key.rsplit("/", 1)[1].lstrip("0")
