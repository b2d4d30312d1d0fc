"""Ask the service: one request at a time for each purpose, again where that may help, and counted by kind.

Requests to the service are what it charges for: `counts` has how many of each kind were made, those that failed
included.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import monotonic
from typing import Any, Final, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import GCSStore, S3Store

from engine.clock import secret_number
from engine.errors import BadInput
from engine.limits import (
    OBJECTS_ATTEMPT_SECONDS,
    OBJECTS_BACKOFF_SECONDS,
    OBJECTS_IN_FLIGHT,
    OBJECTS_PATIENCE_SECONDS,
    STORE_TIMEOUT_SECONDS,
)
from engine.store.objects import faults
from engine.store.objects.url import Location

T = TypeVar("T")

PAGE: Final = 1_000  # names in one answer, fixed by the services
_FIRST_BACKOFF_SECONDS: Final = 0.05
_SHORT_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Entry:
    """A name in a list, how many bytes lie under it, and when they were stored, in whole seconds."""

    path: str
    size: int
    stored_at: datetime


class Requests:
    """Makes the requests; raises `StoreUnavailable`."""

    def __init__(self, location: Location) -> None:
        self.counts: Counter[str] = Counter()
        self._location = location
        self._service = _service(location)
        self._in_flight = asyncio.Semaphore(OBJECTS_IN_FLIGHT)
        self._away_since: float | None = None

    async def create(self, path: str, value: bytes) -> bool:
        """Store an object if there is none of this name; tell whether there was none."""

        async def ask() -> bool:
            try:
                await obstore.put_async(self._service, path, value, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
            return True

        return await self._run("PUT", ask, writes=True)

    async def overwrite(self, path: str, value: bytes) -> str:
        """Store an object whatever was there; give the tag of its content."""

        async def ask() -> str:
            done = await obstore.put_async(self._service, path, value, mode="overwrite", use_multipart=False)
            return done["e_tag"] or ""

        return await self._run("PUT", ask, writes=True)

    async def read(self, path: str) -> tuple[bytes, datetime] | None:
        """Read an object and when it was stored; None when there is none."""

        async def ask() -> tuple[bytes, datetime] | None:
            try:
                found = await obstore.get_async(self._service, path)
                return bytes(await found.bytes_async()), _second(found.meta["last_modified"])
            except FileNotFoundError as error:
                if faults.is_missing_bucket(error):
                    raise
                return None

        return await self._run("GET", ask)

    async def head(self, path: str) -> tuple[str, datetime] | None:
        """Read an object's tag and when it was stored; None when there is none (or no bucket: it does not say)."""

        async def ask() -> tuple[str, datetime] | None:
            try:
                found = await obstore.head_async(self._service, path)
            except FileNotFoundError:
                return None
            return found["e_tag"] or "", _second(found["last_modified"])

        return await self._run("HEAD", ask)

    async def page(self, folder: str | None, after: str | None) -> list[Entry]:
        """List up to `PAGE` names in a folder, above `after`, in order."""

        async def ask() -> list[Entry]:
            stream = obstore.list(self._service, prefix=folder, offset=after, chunk_size=PAGE)
            async for chunk in stream:
                return [Entry(meta["path"], meta["size"], _second(meta["last_modified"])) for meta in chunk]
            return []

        return await self._run("LIST", ask)

    async def delete(self, paths: Sequence[str]) -> None:
        """Delete up to `PAGE` objects; one that is not there is no error."""
        if self._location.service == "s3":

            async def ask() -> None:
                await obstore.delete_async(self._service, list(paths))

            await self._run("DELETE", ask, writes=True)
        else:
            await asyncio.gather(*map(self._delete, paths))

    async def _delete(self, path: str) -> None:
        async def ask() -> None:
            try:
                await obstore.delete_async(self._service, path)
            except FileNotFoundError as error:
                if faults.is_missing_bucket(error):
                    raise

        await self._run("DELETE", ask, writes=True)

    async def _run(self, kind: str, ask: Callable[[], Awaitable[T]], *, writes: bool = False) -> T:
        """Ask, again and again while it may help and a store may take its time."""
        uncertain = False
        pause = _FIRST_BACKOFF_SECONDS
        async with self._in_flight:
            deadline = monotonic() + STORE_TIMEOUT_SECONDS
            if self._away_since is not None and monotonic() - self._away_since > OBJECTS_PATIENCE_SECONDS:
                deadline = monotonic() + _SHORT_SECONDS
            while True:
                self.counts[kind] += 1
                try:
                    async with asyncio.timeout(max(0.01, min(OBJECTS_ATTEMPT_SECONDS, deadline - monotonic()))):
                        answer = await ask()
                except (BaseError, OSError, TimeoutError, ValueError) as error:
                    passing = faults.may_pass(error)
                    uncertain = uncertain or (writes and passing)
                    if not passing or monotonic() + pause >= deadline:
                        if passing and self._away_since is None:
                            self._away_since = monotonic()
                        raise faults.fault(error, self._location, uncertain=uncertain) from None
                else:
                    self._away_since = None
                    return answer
                await asyncio.sleep(pause * (0.5 + secret_number(16) / 65_536))
                pause = min(pause * 2, OBJECTS_BACKOFF_SECONDS)


def check_length(location: Location, path: str) -> None:
    """Refuse a name that is longer than the services allow."""
    size = len(path.encode()) + (len(location.prefix) + 1 if location.prefix else 0)
    if size > 1_024:
        raise BadInput(f"a record's name in {location} has {size} bytes; at most 1024 are allowed")


def _service(location: Location) -> Any:  # noqa: ANN401 - two classes without a common one
    # Repeating is this module's business: it knows how long a store may take, and it counts.
    retry: Any = {"max_retries": 0}
    client: Any = {
        "timeout": timedelta(seconds=OBJECTS_ATTEMPT_SECONDS),
        "connect_timeout": timedelta(seconds=OBJECTS_ATTEMPT_SECONDS),
        "allow_http": location.endpoint.startswith("http:"),
    }
    prefix = location.prefix or None
    config: Any = {}
    if location.service == "s3":
        if location.region:
            config["region"] = location.region
        if location.endpoint:
            config["endpoint"] = location.endpoint
        return S3Store(location.bucket, prefix=prefix, config=config, client_options=client, retry_config=retry)
    if location.endpoint:
        # Another service than Google's own knows nothing of its accounts.
        account = {"gcs_base_url": location.endpoint, "disable_oauth": True, "client_email": "", "private_key": ""}
        config["service_account_key"] = json.dumps({**account, "private_key_id": ""})
    return GCSStore(location.bucket, prefix=prefix, config=config, client_options=client, retry_config=retry)


def _second(moment: datetime) -> datetime:
    """Cut to the whole second: lists are finer than headers, and a record has one stamp."""
    return moment.replace(microsecond=0)
