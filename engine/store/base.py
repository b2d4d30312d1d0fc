"""What a store promises. Every backend passes `tests/contract`; the engine relies on nothing else.

A record is created once and never changes. Whoever creates a key first decides what it holds, and everybody who
looks later reads the same. A caller learns whether it won by comparing the returned value with its own, never from
an error: a create whose answer was lost and that is retried is still recognised as won.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar, runtime_checkable

from msgspec import Struct

from engine.errors import StoreUnavailable

T = TypeVar("T")


class Record(Struct, frozen=True, gc=False):
    """A stored record: its key, its value, and the store's own stamp of when it was stored (UTC, microseconds)."""

    key: str
    value: bytes
    stored_at: datetime


class Store(Protocol):
    """Write-once records. Every method raises `StoreUnavailable` when the backend does not answer in time."""

    async def create(self, key: str, value: bytes) -> Record:
        """Create `key` unless it exists; return what is stored under it afterwards, durable, whoever wrote it."""
        ...

    async def create_all(self, items: Sequence[tuple[str, bytes]]) -> list[Record]:
        """Create several records in the order given, one commit where the backend can.

        No item may depend on another having won. An item is never stored while one before it is not: an index
        record that comes first in the list exists whenever the record that it points to does.
        """
        ...

    async def get(self, key: str) -> Record | None:
        """Read one record. A read that starts after a create returned sees it."""
        ...

    async def last(self, prefix: str) -> Record | None:
        """Read the record with the highest key that starts with `prefix`."""
        ...

    async def list(self, prefix: str, *, after: str | None = None, limit: int | None = None) -> list[Record]:
        """Read records whose key starts with `prefix`, in key order; only keys greater than `after` if it is given."""
        ...

    async def delete(self, keys: Iterable[str]) -> None:
        """Delete records; a key that is not there is no error. Only for keys that nothing will ever number again."""
        ...

    async def now(self, until: datetime | None = None) -> datetime:
        """Read the store's clock: no record that is stored or seen later bears an earlier stamp than the answer.

        With `until`, the caller asks only whether that moment has passed: while it has not, any time before
        `until` may be answered, which some backends can say without a round trip.
        """
        ...

    async def changed(self) -> None:
        """Return when another process may have written since the last call. A hint: nothing depends on it."""
        ...

    async def close(self) -> None:
        """Finish what is in flight and let go of files and connections. Idempotent."""
        ...


@runtime_checkable
class Loadable(Store, Protocol):
    """A store into which records of another can be copied. Nothing but `engine.store.copy` does that."""

    async def load(self, records: Sequence[Record]) -> None:
        """Store records with the stamps that they bear elsewhere; for a store that nobody else uses yet.

        Where a key exists it is left as it is. The store's clock is not behind the stamps afterwards, where the backend
        has a say in that.
        """
        ...


class Rider(Protocol):
    """Has records of its own stored together with those of a moment; see `AtOnce`. Its calls come in this order."""

    def embark(self) -> None:
        """Hear that operations begin; nothing else runs on the event loop until `ride`."""
        ...

    def ride(self, at: datetime) -> Sequence[tuple[str, bytes]]:
        """Give the records to be stored with those of the operations, under keys that nobody else creates, at `at`."""
        ...

    def arrive(self, fault: StoreUnavailable | None) -> None:
        """Hear that all of it is durable, or that none of it is (unless the fault is `uncertain`)."""
        ...


@runtime_checkable
class AtOnce(Store, Protocol):
    """A store that can do a whole operation at one moment: what would be many commits is one, shared with others."""

    async def at_once(self, operation: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
        """Run `operation` on a view of the store; return what it returns once all that it created is durable.

        It is as if each of its calls of the store had come right after the one before it, with nobody else's, of any
        process, between. It may await nothing but the view, read and create, and not delete. When this raises because
        of the store, nothing of it is stored, unless the fault is `uncertain`; what the operation raises by itself is
        raised, and what it had created by then is stored.
        """
        ...

    def carry(self, rider: Rider) -> None:
        """Have a rider's records stored with each moment's from now on; one for a store."""
        ...
