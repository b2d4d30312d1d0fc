"""Check with a few real records that a store keeps what it promises, and how quickly; they are deleted afterwards."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Final

from engine.clock import Source, wall_clock
from engine.errors import StoreUnavailable
from engine.store.base import Record, Store

_CREATORS: Final = 10
_TIMED: Final = 10
_CLOCK_SECONDS: Final = 5.0
_SLOW_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """One promise: whether it was kept, what was seen, and what to do when it was not. `kept` None is a warning."""

    name: str
    kept: bool | None
    seen: str
    repair: str = ""


async def check(store: Store, source: Source) -> list[Promise]:
    """Try the store out under `check/<nonce>/`, which nothing else reads; raises what the store raises."""
    base = f"check/{source.nonce()}/"
    try:
        return [promise async for promise in _promises(store, source, base)]
    finally:
        with suppress(StoreUnavailable):
            await store.delete([record.key for record in await store.list(base)])


async def _promises(store: Store, source: Source, base: str) -> AsyncIterator[Promise]:
    before = await store.now()
    yield await _one_winner(store, source, base)
    records = await store.create_all([(f"{base}n/{number:012d}", b"value") for number in (2, 10, 1)])
    yield await _order(store, base, records)
    last = max(record.stored_at for record in records)
    after = await store.now()
    in_order = before <= min(record.stored_at for record in records) and last <= after
    yield Promise(
        name="one clock",
        kept=in_order,
        seen="stamps lie between what the clock said before and after" if in_order else "a stamp is out of order",
        repair="" if in_order else "the server's clock jumps: keep it with NTP",
    )
    off = (after - wall_clock()).total_seconds()
    close = abs(off) <= _CLOCK_SECONDS
    yield Promise(
        name="clock",
        kept=True if close else None,
        seen=f"the store's clock is {abs(off):.1f} s {'ahead of' if off > 0 else 'behind'} this host's",
        repair="" if close else "nothing depends on this host's clock, but its log lines will not match",
    )
    yield await _speed(store, base)
    await store.delete([records[0].key])
    gone = await store.get(records[0].key) is None
    yield Promise(
        name="delete", kept=gone, seen="what is deleted is gone" if gone else "a deleted record is still there"
    )


async def _one_winner(store: Store, source: Source, base: str) -> Promise:
    values = [source.nonce().encode() for _ in range(_CREATORS)]
    records = await asyncio.gather(*(store.create(f"{base}race", value) for value in values))
    kept = len(set(records)) == 1 and records[0].value in values and await store.get(f"{base}race") == records[0]
    return Promise(
        name="one winner",
        kept=kept,
        seen=f"of {_CREATORS} creators one won, and all learnt so" if kept else "creators were told different things",
        repair="" if kept else "this service does not honour conditional creation: use another",
    )


async def _order(store: Store, base: str, records: list[Record]) -> Promise:
    listed = await store.list(f"{base}n/")
    kept = listed == sorted(records, key=lambda record: record.key) and await store.last(f"{base}n/") == listed[-1]
    return Promise(
        name="order",
        kept=kept,
        seen="lists are in key order, and show what was just stored" if kept else "a list lacks records or order",
        repair="" if kept else "reads do not go to the primary, or keys are not compared byte by byte",
    )


async def _speed(store: Store, base: str) -> Promise:
    took = []
    for number in range(_TIMED):
        began = perf_counter()
        await store.create(f"{base}speed/{number}", b"value")
        took.append(perf_counter() - began)
    typical = statistics.median(took)
    return Promise(
        name="speed",
        kept=True if typical < _SLOW_SECONDS else None,
        seen=f"a create takes {typical * 1e3:.1f} ms",
        repair=""
        if typical < _SLOW_SECONDS
        else "a signal takes about five of them: is the store far away, or its disk?",
    )
