"""Every instance's view of devices and operators, kept up to date from the store's list of changes.

A change is announced (`changes/<n>`) before its revision is created, so that whoever follows the announcements finds
every revision: one that is announced and not there yet is looked for again until its maker must have given up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

from devices import model
from devices.model import Device, DeviceRevision, Entry, Kind, Operator, OperatorRevision, Secret
from engine import names, records
from engine.clock import Source
from engine.errors import Conflict, StoreUnavailable, UnreadableRecord
from engine.limits import MAX_ROUNDS, REMOVAL_GRACE_SECONDS
from engine.records import Stored, Unreadable
from engine.store.base import Record, Store

FOLLOW_SECONDS: Final = 1.0
_PAGE: Final = 1_000
# A start looks this many announcements back for revisions that were on their way while it read the list.
_LOOK_BACK: Final = 256
_ANNOUNCEMENTS: Final = 100

assert FOLLOW_SECONDS <= 2.0

Watcher = Callable[[Entry | None, Entry | None], None]
E = TypeVar("E", Device, Operator)
R = TypeVar("R", DeviceRevision, OperatorRevision)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a revision is going to be stored: a decision fills in the rest of it."""

    rev: int
    at: str
    nonce: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Revised:
    """What this process has changed, for the audit log. `detail` is a grant, or nothing."""

    kind: Kind
    name: str
    did: str
    by: str
    detail: str = ""


def no_verifiers(_token: str) -> dict[str, str]:
    """Make none: there is no broker that has a form of its own."""
    return {}


@dataclass(frozen=True, slots=True)
class _Wanted:
    kind: Kind
    name: str
    rev: int


class Registry:
    """Devices and operators in memory. `load` first; `follow` runs beside everything else.

    Look-ups are dictionary reads. `verify` makes the brokers' verifiers of a device's new token. `noted` hears what
    this process changed, once it is stored; those who `watch` hear of every newer revision, whoever made it, on the
    event loop, and must not raise.
    """

    def __init__(
        self,
        store: Store,
        source: Source,
        *,
        noted: Callable[[Revised], None] | None = None,
        verify: Callable[[str], dict[str, str]] = no_verifiers,
    ) -> None:
        self.verify: Final = verify
        self._store = store
        self._source = source
        self._noted = noted
        self._entries: dict[tuple[Kind, str], Entry] = {}
        self._by_digest: dict[str, tuple[Kind, str]] = {}
        self._revs: dict[tuple[Kind, str], int] = {}
        self._watchers: list[Watcher] = []
        self._wanted: dict[_Wanted, float] = {}
        self._used: set[str] = set()
        self._cursor = names.CHANGES
        self._lock = asyncio.Lock()
        self._passes_started = 0
        self._passes_done = 0

    # -- looking up ----------------------------------------------------------------------------------------------

    @property
    def empty(self) -> bool:
        """Tell whether nobody was ever added."""
        return not self._revs

    def device(self, name: str) -> Device | None:
        """Find a device, in whatever state; a deleted one too."""
        found = self._entries.get(("device", name))
        return found if isinstance(found, Device) else None

    def operator(self, name: str) -> Operator | None:
        """Find an operator, in whatever state."""
        found = self._entries.get(("user", name))
        return found if isinstance(found, Operator) else None

    def devices(self) -> list[Device]:
        """List the devices that are not deleted, by name."""
        return _present(entry for entry in self._entries.values() if isinstance(entry, Device))

    def operators(self) -> list[Operator]:
        """List the operators that are not deleted, by name."""
        return _present(entry for entry in self._entries.values() if isinstance(entry, Operator))

    def owner(self, digest: str) -> Entry | None:
        """Find whose secret has this digest."""
        at = self._by_digest.get(digest)
        return self._entries.get(at) if at is not None else None

    def watch(self, heard: Watcher) -> None:
        """Have `heard(before, after)` called for each entry that changes; `after` is None if it is unreadable."""
        self._watchers.append(heard)

    # -- following -----------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Read all entries; raises `StoreUnavailable`."""
        top = await self._store.last(names.CHANGES)
        newest = names.number_of(top.key) if top is not None else 0
        for prefix in (model.prefix("device"), model.prefix("user")):
            after: str | None = None
            while page := await self._store.list(prefix, after=after, limit=_PAGE):
                for record in page:
                    self._apply(record)
                after = page[-1].key
        self._cursor = names.change(max(0, newest - _LOOK_BACK))
        await self.refresh()

    async def refresh(self) -> None:
        """Learn of everything that was stored before the call; raises `StoreUnavailable`.

        However many ask at once, one pass is under way and one more serves all who came while it was: an unknown
        name at the door costs the store no more than that.
        """
        asked = self._passes_started
        async with self._lock:
            if self._passes_done > asked:
                return
            self._passes_started += 1
            number = self._passes_started
            await self._read_changes()
            await self._read_wanted()
            self._passes_done = number

    async def follow(self, *, every_seconds: float = FOLLOW_SECONDS) -> None:
        """Refresh for ever; while the store is away, what is known stays in force."""
        while True:
            await asyncio.sleep(every_seconds)
            try:
                await self.refresh()
            except StoreUnavailable:
                continue

    async def _read_changes(self) -> None:
        while page := await self._store.list(names.CHANGES, after=self._cursor, limit=_PAGE):
            for record in page:
                match model.read_change(record):
                    case Stored(value=change):
                        wanted = _Wanted(change.kind, change.name, change.rev)
                        self._wanted.setdefault(wanted, self._source.monotonic())
                    case Unreadable():
                        continue
            self._cursor = page[-1].key

    async def _read_wanted(self) -> None:
        for kind, name in dict.fromkeys((wanted.kind, wanted.name) for wanted in self._wanted):
            newest = max(wanted.rev for wanted in self._wanted if (wanted.kind, wanted.name) == (kind, name))
            if self._revs.get((kind, name), 0) < newest:
                found = await self._store.last(model.prefix(kind, name))
                if found is not None:
                    self._apply(found)
        given_up = self._source.monotonic() - REMOVAL_GRACE_SECONDS
        self._wanted = {
            wanted: since
            for wanted, since in self._wanted.items()
            if self._revs.get((wanted.kind, wanted.name), 0) < wanted.rev and since > given_up
        }

    def _apply(self, record: Record) -> Entry | Unreadable:
        kind: Kind = "device" if record.key.startswith(model.prefix("device")) else "user"
        name, rev = record.key.split("/")[1], names.number_of(record.key)
        found = model.entry_of(record)
        at = (kind, name)
        if rev <= self._revs.get(at, 0):
            return found
        self._revs[at] = rev
        before = self._entries.pop(at, None)
        for secret in before.secrets if before is not None else ():
            self._by_digest.pop(secret.digest, None)
        # A revision that cannot be read is not an absent one: nobody gets in by it, and none below it counts.
        after = None if isinstance(found, Unreadable) else found
        if after is not None:
            self._entries[at] = after
            self._by_digest.update({secret.digest: at for secret in after.secrets})
        for heard in self._watchers:
            heard(before, after)
        return found

    # -- changing ------------------------------------------------------------------------------------------------

    async def revise_device(
        self, name: str, decide: Callable[[Device | None, Place], DeviceRevision | None], *, detail: str = ""
    ) -> Device:
        """Create the next revision of a device as `decide` says; None: it is as wanted already.

        `decide` is asked again with what is stored when another process was faster, and may raise what the caller is
        to be told. The change is in force here when this returns, and within `FOLLOW_SECONDS` elsewhere.
        """
        return await self._revise("device", name, Device, decide, detail)

    async def revise_operator(
        self, name: str, decide: Callable[[Operator | None, Place], OperatorRevision | None]
    ) -> Operator:
        """Create the next revision of an operator, likewise."""
        return await self._revise("user", name, Operator, decide, "")

    async def _revise(
        self, kind: Kind, name: str, of: type[E], decide: Callable[[E | None, Place], R | None], detail: str
    ) -> E:
        for _ in range(MAX_ROUNDS):
            current = await self._newest(kind, name, of)
            rev = (current.rev if current is not None else 0) + 1
            revision = decide(current, Place(rev, model.revision_key(kind, name, rev), self._source.nonce()))
            if revision is None:
                assert current is not None
                return current
            await self._announce(kind, name, rev)
            key, data = records.encode(revision)
            stored = await self._store.create(key, data)
            entry = self._apply(stored)
            if stored.value == data and isinstance(entry, of):
                if self._noted is not None:
                    self._noted(Revised(kind=kind, name=name, did=revision.did, by=revision.by, detail=detail))
                return entry
        raise Conflict(f"{name} is being changed by others at the same time", hint="try again")

    async def _newest(self, kind: Kind, name: str, of: type[E]) -> E | None:
        record = await self._store.last(model.prefix(kind, name))
        if record is None:
            return None
        match self._apply(record):
            case Unreadable(key=key, reason=reason):
                raise UnreadableRecord(key, reason)
            case entry:
                assert isinstance(entry, of)
                return entry

    async def _announce(self, kind: Kind, name: str, rev: int) -> None:
        top = await self._store.last(names.CHANGES)
        n = names.number_of(top.key) if top is not None else 0
        for _ in range(_ANNOUNCEMENTS):
            n += 1
            change = model.Change(at=names.change(n), nonce=self._source.nonce(), kind=kind, name=name, rev=rev)
            key, data = records.encode(change)
            if (await self._store.create(key, data)).value == data:
                return
        raise Conflict("the registry is being changed by many at the same time", hint="try again")

    # -- secrets -------------------------------------------------------------------------------------------------

    async def note_use(self, entry: Entry, secret: Secret) -> None:
        """Store when one of two secrets was first used, so that `rotate --finish` can be told safe."""
        key = model.first_use_key(entry.kind, entry.name, secret)
        if len(entry.secrets) > 1 and key not in self._used:
            use = model.FirstUse(at=key, nonce=self._source.nonce())
            await self._store.create(*records.encode(use))
            self._used.add(key)

    async def secret_times(self, entry: Entry, secret: Secret) -> tuple[datetime | None, datetime | None]:
        """Read when a secret was made, and when it was first used while there were two."""
        made = await self._store.get(model.revision_key(entry.kind, entry.name, secret.since))
        used = await self._store.get(model.first_use_key(entry.kind, entry.name, secret))
        return (made.stored_at if made else None, used.stored_at if used else None)


def _present(entries: Iterable[E]) -> list[E]:
    return sorted((entry for entry in entries if entry.state != "deleted"), key=lambda entry: entry.name)
