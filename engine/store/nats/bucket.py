"""One bucket: connected to when it is needed, made when it is not there, asked through the stream's leader.

A request is tried again, for as long as a store may take, while servers or leaders change. Once the bucket has been
away for `NATS_PATIENCE_SECONDS`, whoever asks is told within a second, until it is back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from typing import Any, Final, TypeVar

import msgspec
import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js import JetStreamContext, api

from engine.clock import secret_number
from engine.errors import StoreDamaged, StoreUnavailable
from engine.limits import (
    MAX_RECORD_BYTES,
    NATS_ATTEMPT_SECONDS,
    NATS_BACKOFF_SECONDS,
    NATS_CONNECT_SECONDS,
    NATS_IN_FLIGHT,
    NATS_PATIENCE_SECONDS,
)
from engine.store.nats import faults
from engine.store.nats.url import Location

T = TypeVar("T")

_FIRST_BACKOFF_SECONDS: Final = 0.02
_SHORT_SECONDS: Final = 1.0
_HEADROOM_BYTES: Final = 4_096
_ONLY_IF_NEW: Final = {api.Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value: "0"}


class _Found(msgspec.Struct):
    """A stored message as the leader answers it; `data` is base64 there and left out when it is empty."""

    subject: str
    seq: int
    time: datetime
    data: bytes = b""


class _FoundAnswer(msgspec.Struct):
    message: _Found | None = None
    error: dict[str, Any] | None = None


class _State(msgspec.Struct):
    subjects: dict[str, int] | None = None


class _NamesAnswer(msgspec.Struct):
    state: _State | None = None
    total: int = 0
    error: dict[str, Any] | None = None


_FOUND = msgspec.json.Decoder(_FoundAnswer)
_NAMES = msgspec.json.Decoder(_NamesAnswer)


@dataclass(frozen=True, slots=True)
class Message:
    """What is stored under a subject."""

    subject: str
    data: bytes
    time: datetime


class Bucket:
    """Asks one bucket. Its methods raise `StoreUnavailable`; `deadline`s are monotonic."""

    def __init__(self, location: Location, hinted: Callable[[], None]) -> None:
        self._location = location
        self._stream = f"KV_{location.bucket}"
        self._root = f"$KV.{location.bucket}."
        self._hint = f"wayside.{location.bucket}.changed"
        self._hinted = hinted
        self._client: Client | None = None
        self._connecting = asyncio.Lock()
        self._in_flight = asyncio.Semaphore(NATS_IN_FLIGHT)
        self._away_since: float | None = None
        self._closed = False

    async def store(self, subject: str, value: bytes, deadline: float) -> int | None:
        """Store a message under `subject` if nothing is there: its number, or None when something was."""
        try:
            return await self._publish(subject, value, _ONLY_IF_NEW, deadline)
        except nats.js.errors.APIError as error:
            if faults.code_of(error) in faults.WRONG_LAST_SEQUENCE:
                return None
            raise faults.working(error, self._location) from error

    async def stamp(self, subject: str, deadline: float) -> datetime:
        """Put a message on top of the stream, and answer when the leader says that it was."""
        try:
            await self._publish(subject, b"", {}, deadline)
        except nats.js.errors.APIError as error:
            raise faults.working(error, self._location) from error
        message = await self.read({"last_by_subj": self._root + subject}, deadline)
        if message is None:
            raise StoreUnavailable(f"{self._location} has lost what was just stored", hint="look at the servers' logs")
        return message.time

    async def number(self, number: int, deadline: float) -> Message | None:
        """Read the message with this number."""
        return await self.read({"seq": number}, deadline)

    async def under(self, subject: str, deadline: float) -> Message | None:
        """Read the message under `subject`."""
        return await self.read({"last_by_subj": self._root + subject}, deadline)

    async def read(self, which: Mapping[str, object], deadline: float) -> Message | None:
        """Ask the leader for one message; None when it is not there."""
        question = msgspec.json.encode(which)

        async def ask(client: Client, seconds: float) -> Message | None:
            reply = await client.request(f"$JS.API.STREAM.MSG.GET.{self._stream}", question, timeout=seconds)
            answer = _FOUND.decode(reply.data)
            if answer.error is not None:
                if answer.error.get("err_code") == faults.NO_MESSAGE:
                    return None
                raise nats.js.errors.APIError.from_error(answer.error)
            assert answer.message is not None
            found = answer.message
            return Message(found.subject.removeprefix(self._root), found.data, found.time)

        return await self._run(ask, deadline, writes=False)

    async def subjects(self, wildcard: str, deadline: float) -> list[str]:
        """List the subjects that have a message, without the bucket's own part, in no order."""
        found: list[str] = []
        while True:
            question = msgspec.json.encode({"subjects_filter": self._root + wildcard, "offset": len(found)})

            async def ask(client: Client, seconds: float, question: bytes = question) -> _NamesAnswer:
                reply = await client.request(f"$JS.API.STREAM.INFO.{self._stream}", question, timeout=seconds)
                answer = _NAMES.decode(reply.data)
                if answer.error is not None:
                    raise nats.js.errors.APIError.from_error(answer.error)
                return answer

            answer = await self._run(ask, deadline, writes=False)
            page = answer.state.subjects if answer.state is not None and answer.state.subjects else {}
            found.extend(subject.removeprefix(self._root) for subject in page)
            if not page or len(found) >= answer.total:
                return found

    async def purge(self, subject: str, deadline: float) -> None:
        """Delete what is under `subject`, without a trace."""

        async def ask(client: Client, seconds: float) -> None:
            question = msgspec.json.encode({"filter": self._root + subject})
            reply = await client.request(f"$JS.API.STREAM.PURGE.{self._stream}", question, timeout=seconds)
            answer = msgspec.json.decode(reply.data)
            if "error" in answer:
                raise nats.js.errors.APIError.from_error(answer["error"])

        await self._run(ask, deadline, writes=True)

    async def hint(self) -> None:
        """Tell the other instances that something was written."""
        if self._client is not None and self._client.is_connected:
            await self._client.publish(self._hint)

    async def connect(self, deadline: float) -> Client:
        """Connect, and make or check the bucket, unless that has been done."""
        async with self._connecting:
            if self._closed:
                raise StoreUnavailable(f"the store in {self._location} is closed")
            if self._client is None or self._client.is_closed:
                client = await self._connected(deadline)
                try:
                    await self._prepare(client)
                    await client.subscribe(self._hint, cb=self._heard)
                except BaseException:
                    await client.close()
                    raise
                self._client = client
                self._hinted()
            return self._client

    async def close(self) -> None:
        """Let go of the connection."""
        self._closed = True
        if self._client is not None and not self._client.is_closed:
            await self._client.close()

    async def _publish(self, subject: str, value: bytes, headers: Mapping[str, str], deadline: float) -> int:
        async def ask(client: Client, seconds: float) -> int:
            told = await client.jetstream().publish(
                self._root + subject, value, timeout=seconds, headers=dict(headers), stream=self._stream
            )
            return told.seq

        return await self._run(ask, deadline, writes=True)

    async def _run(self, ask: Callable[[Client, float], Awaitable[T]], deadline: float, *, writes: bool) -> T:
        """Ask, again and again while it may help; API errors of `writes` are the caller's to judge."""
        uncertain = False
        pause = _FIRST_BACKOFF_SECONDS
        asked = monotonic()
        async with self._in_flight:
            # What waits for its turn behind others of this instance does not wait for the bucket.
            deadline += monotonic() - asked
            if self._away_since is not None and monotonic() - self._away_since > NATS_PATIENCE_SECONDS:
                deadline = min(deadline, monotonic() + _SHORT_SECONDS)
            while True:
                try:
                    client = await self.connect(deadline)
                    answer = await ask(client, max(0.01, min(NATS_ATTEMPT_SECONDS, deadline - monotonic())))
                except StoreUnavailable as error:
                    error.uncertain = error.uncertain or uncertain
                    if isinstance(error, (StoreDamaged, faults.Refusal)) or monotonic() + pause >= deadline:
                        self._missed()
                        raise
                except (nats.errors.Error, OSError, TimeoutError) as error:
                    if not faults.may_pass(error):
                        if writes and isinstance(error, nats.js.errors.APIError):
                            raise
                        raise faults.working(error, self._location, uncertain=uncertain) from error
                    self._missed()
                    uncertain = uncertain or (writes and faults.may_have_landed(error))
                    if monotonic() + pause >= deadline:
                        raise faults.working(error, self._location, uncertain=uncertain) from error
                else:
                    self._away_since = None
                    return answer
                await asyncio.sleep(pause * (0.5 + secret_number(16) / 65_536))
                pause = min(pause * 2, NATS_BACKOFF_SECONDS)

    def _missed(self) -> None:
        if self._away_since is None:
            self._away_since = monotonic()

    async def _connected(self, deadline: float) -> Client:
        client = Client()
        last: list[Exception] = []
        refused = asyncio.Event()

        async def failed(error: Exception) -> None:
            last[:] = [error]
            if faults.is_refusal(error):
                refused.set()

        async def back() -> None:
            self._hinted()

        place = self._location
        attempt = asyncio.create_task(
            client.connect(
                list(place.servers), name="wayside", no_echo=True, max_reconnect_attempts=-1, connect_timeout=2,
                reconnect_time_wait=1, ping_interval=5, error_cb=failed, reconnected_cb=back,
                user=place.user or None, password=place.password or None,
                user_credentials=place.credentials or None,
            ),
            name="store connecting",
        )  # fmt: skip
        refusal = asyncio.create_task(refused.wait(), name="store refused")
        seconds = max(0.01, min(NATS_CONNECT_SECONDS, deadline - monotonic()))
        await asyncio.wait([attempt, refusal], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        refusal.cancel()
        if attempt.done() and attempt.exception() is None:
            return client
        attempt.cancel()
        await asyncio.gather(attempt, return_exceptions=True)
        await client.close()
        raise faults.connecting(last[0] if last else None, place)

    async def _heard(self, _: object) -> None:
        self._hinted()

    async def _prepare(self, client: Client) -> None:
        """Make the bucket if it is not there; refuse one that does not keep what a store promises."""
        place = self._location
        if client.max_payload < MAX_RECORD_BYTES + _HEADROOM_BYTES:
            raise StoreDamaged(
                f"the servers of {place} take messages of {client.max_payload} bytes at most",
                hint="set `max_payload: 2MB` in each server's configuration and reload it",
            )
        context = client.jetstream(timeout=NATS_ATTEMPT_SECONDS)
        try:
            try:
                found = await context.stream_info(self._stream)
            except nats.js.errors.NotFoundError:
                found = await self._make(context)
        except (nats.errors.Error, TimeoutError) as error:
            raise faults.working(error, place) from error
        config = found.config
        wrong = [
            name
            for name, holds in (
                ("allow_direct must be off", not config.allow_direct),
                ("max_msgs_per_subject must be 1", config.max_msgs_per_subject == 1),
                ("max_age must be 0", not config.max_age),
                ("discard must be new", config.discard == "new"),
                ("storage must be file", config.storage == "file"),
            )
            if not holds
        ]
        if wrong:
            raise StoreDamaged(f"{place} was not made by Wayside: {', '.join(wrong)}", hint="name another bucket")

    async def _make(self, context: JetStreamContext) -> api.StreamInfo:
        config = api.StreamConfig(
            name=self._stream,
            description="Wayside's records",
            subjects=[f"{self._root}>"],
            max_msgs_per_subject=1,
            discard=api.DiscardPolicy.NEW,
            storage=api.StorageType.FILE,
            num_replicas=self._location.replicas,
            allow_direct=False,
            allow_rollup_hdrs=False,
        )
        try:
            return await context.add_stream(config)
        except nats.js.errors.APIError as error:
            match faults.code_of(error):
                case faults.NAME_IN_USE:
                    return await context.stream_info(self._stream)
                case faults.NOT_CLUSTERED:
                    # One server by itself, as on a desk: there is nobody to replicate to.
                    return await context.add_stream(config.evolve(num_replicas=1))
                case _:
                    raise
