"""The one use case: a principal's request comes to an answer, the same at every door and in the same order of checks.

1 who, 2 rate, 3 grant, 4 payload, 5 the protocol, 6 audit, 7 the answer; the engine continues the run by itself.
Nothing is read before the grant is checked, an unknown workflow, an undeclared key and a missing grant are one answer,
and an answer is given only when what it says, and the event that records it, are durable.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from msgspec import Struct

from devices.model import Device
from engine.clock import Source, derived_id
from engine.errors import (
    BadInput,
    Conflict,
    NotFound,
    StoreDamaged,
    StoreUnavailable,
    UnreadableRecord,
    WaysideError,
)
from engine.names import is_name, is_record_id, is_signal_id
from engine.payload import Payload, PayloadProblem, parse_payload
from engine.results import Answer, NotDeclared, SignalIdReused, SignalRequest, Taken
from gateway.answers import (
    BadInputs,
    BadTopic,
    DoorAnswer,
    RateLimited,
    RetainedNotAllowed,
    RunStarted,
    Stale,
    Stopping,
    StoreAway,
    Unauthorized,
    WaitsListed,
    Words,
    say,
)
from gateway.audit import Audit, Door, Entry
from gateway.auth import Authority, Principal
from gateway.limits import Counted, DeviceLimits, Limited
from gateway.ports import Engine

_SHORT_ID_DIGITS: Final = 16
_AWAY: Final = frozenset({StoreUnavailable.code, StoreDamaged.code})


class Origin(Struct, frozen=True, kw_only=True):
    """Which door a request came through, from where, and what a broker on the way has made of it.

    `age_seconds` is how long it may have lain in a broker's queue, `stale` that this is too long to act on; `again`
    that the door itself repeats a request that was counted and could not be decided.
    """

    door: Door
    address: str = ""
    age_seconds: float = 0.0
    stale: bool = False
    again: bool = False


class Delivered(Struct, frozen=True, kw_only=True):
    """What a request came to. `id` is the signal id, else a short digest of the payload.

    `answer_it` is false for one of many unidentified messages over a rate, `close` is true when the sender has just
    been shut out for a while.
    """

    answer: DoorAnswer
    words: Words
    id: str
    answer_it: bool = True
    close: bool = False


class _Noted(Struct, frozen=True):
    """What is said of an answer, and how many events are durable once its own is; None: it needs none."""

    words: Words
    events: int | None


@dataclass(slots=True, kw_only=True)
class _Asked:
    """A request while it is being checked; what it is about fills the audit event."""

    who: Principal
    origin: Origin
    action: Literal["signal", "run", "read"]
    raw: bytes
    signal_id: str | None = None
    workflow: str = ""
    key: str = ""
    wait: str = ""
    noted: _Noted | None = None

    @property
    def id(self) -> str:
        return self.signal_id or hashlib.sha256(self.raw).hexdigest()[:_SHORT_ID_DIGITS]

    def request(self, payload: Payload) -> SignalRequest:
        return SignalRequest(
            sender=self.who.sender,
            payload=payload,
            signal_id=self.signal_id,
            age_seconds=self.origin.age_seconds,
        )


class _Result(Struct, frozen=True):
    """An answer, and `why` in a word for the audit log alone. `limited` is the verdict of a rate."""

    answer: DoorAnswer
    why: str = ""
    limited: Limited | None = None


_NO_GRANT: Final = _Result(NotDeclared(), "no_grant")


class Deliver:
    """Deliver signals, start runs and list waits for whoever may."""

    def __init__(
        self, engine: Engine, authority: Authority, limits: DeviceLimits, audit: Audit, source: Source
    ) -> None:
        self._engine = engine
        self._authority = authority
        self._limits = limits
        self._audit = audit
        self._source = source
        self._stopping = False
        # Hears the door and the seconds of each signal, from its arrival to its answer.
        self.took: Callable[[str, float], None] | None = None

    def stop(self) -> None:
        """Answer everything from now on with `stopping`; what is in flight goes on."""
        self._stopping = True

    async def signal(
        self,
        who: Principal,
        origin: Origin,
        *,
        workflow: str,
        key: str,
        raw: bytes,
        signal_id: str | None = None,
        retained: bool = False,
    ) -> Delivered:
        """Deliver a signal that is addressed to a key."""
        asked = _Asked(
            who=who, origin=origin, action="signal", raw=raw, signal_id=signal_id, workflow=workflow, key=key
        )
        named = is_name(workflow) and is_name(key)
        return await self._answer(asked, "signals", lambda: self._signal_key(asked, retained=retained), named=named)

    async def signal_wait(
        self, who: Principal, origin: Origin, *, wait: str, raw: bytes, signal_id: str | None = None
    ) -> Delivered:
        """Deliver a signal that is addressed to a wait by its id: under the grant of the wait's key.

        Without a key the grant is the one on the whole workflow.
        """
        asked = _Asked(who=who, origin=origin, action="signal", raw=raw, signal_id=signal_id, wait=wait)
        return await self._answer(asked, "signals", lambda: self._signal_wait(asked), named=is_record_id(wait))

    async def start_run(
        self,
        who: Principal,
        origin: Origin,
        *,
        workflow: str,
        raw: bytes,
        signal_id: str | None = None,
        retained: bool = False,
    ) -> Delivered:
        """Start a run with the payload as its inputs (nothing sent: none); an id makes it the same run each time.

        A device needs the workflow's `trigger: {topic: true}` beside its grant.
        """
        asked = _Asked(who=who, origin=origin, action="run", raw=raw, signal_id=signal_id, workflow=workflow)
        named = is_name(workflow)
        return await self._answer(asked, "runs", lambda: self._start_run(asked, retained=retained), named=named)

    async def waits(self, who: Principal, origin: Origin, *, workflow: str, raw: bytes = b"") -> Delivered:
        """List the open waits of a workflow for somebody who may read it."""
        asked = _Asked(who=who, origin=origin, action="read", raw=raw, workflow=workflow)
        return await self._answer(asked, "reads", lambda: self._list_waits(asked), named=is_name(workflow))

    # -- grant, payload, protocol --------------------------------------------------------------------------------------

    async def _signal_key(self, asked: _Asked, *, retained: bool) -> _Result:
        if not self._authority.may_signal(asked.who, asked.workflow, asked.key):
            return _NO_GRANT
        if retained:
            return _Result(RetainedNotAllowed())
        if asked.origin.stale:
            return _Result(Stale())
        payload = parse_payload(asked.raw)
        if isinstance(payload, PayloadProblem):
            return _Result(payload)
        return _Result(
            await self._engine.signal_key(
                asked.workflow, asked.key, asked.request(payload), told=partial(self._note_first, asked)
            )
        )

    async def _signal_wait(self, asked: _Asked) -> _Result:
        # Whose wait it is has to be read to be authorised; nobody without any grant gets that far.
        if not self._authority.may_signal_at_all(asked.who):
            return _NO_GRANT
        payload = parse_payload(asked.raw)
        request = asked.request(payload) if isinstance(payload, Payload) else None
        # A repeat is known by its own chain although its wait is gone.
        address = await self._engine.address_of(asked.wait, request)
        if address is None:
            return _Result(NotDeclared(), "no_wait")
        if not self._authority.may_signal(asked.who, address.workflow, address.key):
            return _NO_GRANT
        asked.workflow, asked.key = address.workflow, address.key or ""
        if isinstance(payload, PayloadProblem):
            return _Result(payload)
        return _Result(
            await self._engine.signal_wait(asked.wait, asked.request(payload), told=partial(self._note_first, asked))
        )

    async def _start_run(self, asked: _Asked, *, retained: bool) -> _Result:
        who, workflow = asked.who, asked.workflow
        if not self._authority.may_run(who, workflow):
            return _NO_GRANT
        if retained:
            return _Result(RetainedNotAllowed())
        if asked.origin.stale:
            return _Result(Stale())
        payload = parse_payload(asked.raw or b"{}")
        if isinstance(payload, PayloadProblem):
            return _Result(payload)
        definition = self._engine.catalog.get(workflow)
        if definition is None or (who.kind == "device" and not definition.trigger_topic):
            return _Result(NotDeclared(), "no_workflow" if definition is None else "no_trigger")
        run = None
        if asked.signal_id is not None:
            run = derived_id("run", who.id if who.kind == "device" else str(who), workflow, asked.signal_id)
        try:
            return _Result(RunStarted(await self._engine.start_run(workflow, payload.value(), by=str(who), run=run)))
        except NotFound as fault:
            return _Result(NotDeclared(), fault.code)
        except BadInput as fault:
            return _Result(BadInputs(fault.problems))
        except Conflict:
            return _Result(SignalIdReused())

    async def _list_waits(self, asked: _Asked) -> _Result:
        if not self._authority.may_read(asked.who, asked.workflow):
            return _NO_GRANT
        found = (await self._engine.waits(workflow=asked.workflow)).get("waits")
        listed = [wait for wait in found if isinstance(wait, dict)] if isinstance(found, list) else []
        listed.sort(key=lambda wait: str(wait.get("deadline")))
        return _Result(WaitsListed(tuple(listed)))

    # -- what comes before and after -----------------------------------------------------------------------------------

    async def _answer(
        self, asked: _Asked, counted: Counted, decide: Callable[[], Awaitable[_Result]], *, named: bool
    ) -> Delivered:
        began = self._source.monotonic()
        result = self._check(asked, counted, named=named)
        if result is None:
            try:
                result = await decide()
            except WaysideError as fault:
                asked.noted = None
                result = _Result(_away(fault), fault.code)
        delivered = await self._finish(asked, result)
        if self.took is not None and asked.action == "signal":
            self.took(asked.origin.door, self._source.monotonic() - began)
        return delivered

    def _check(self, asked: _Asked, counted: Counted, *, named: bool) -> _Result | None:
        """Who, at what rate, and whether it can name anything: without reading."""
        if self._stopping:
            return _Result(Stopping())
        entry = self._authority.standing(asked.who)
        if entry is None:
            return _Result(Unauthorized())
        if isinstance(entry, Device) and not asked.origin.again:
            verdict = self._limits.take(entry.name, counted, self._source.monotonic(), entry.limits)
            if isinstance(verdict, Limited):
                limit = RateLimited(limit=verdict.limit, retry_after_seconds=verdict.retry_after_seconds)
                return _Result(limit, verdict.limit, verdict)
        if not named or (asked.signal_id is not None and not is_signal_id(asked.signal_id)):
            # Before it gets into a record, or is compared with a grant.
            return _Result(BadTopic("names are made of a-z 0-9 _ -, a signal id of A-Z a-z 0-9 _ -"))
        return None

    async def _finish(self, asked: _Asked, result: _Result) -> Delivered:
        """Write down what came of it, and answer once that is durable."""
        answer, limited = result.answer, result.limited
        noted = asked.noted or self._note(asked, result)
        words = noted.words
        try:
            if noted.events is not None:
                await self._audit.written(noted.events)
        except StoreUnavailable:
            # What was accepted may be stored, and its event missing.
            answer = StoreAway(uncertain=words.ok)
            words = say(answer, reader=self._is_reader(asked))
        return Delivered(
            answer=answer,
            words=words,
            id=asked.id,
            answer_it=limited is None or limited.answer or asked.signal_id is not None,
            close=limited is not None and limited.close,
        )

    def _is_reader(self, asked: _Asked) -> bool:
        return bool(asked.workflow) and self._authority.may_read(asked.who, asked.workflow)

    def _note_first(self, asked: _Asked, answer: Answer) -> None:
        """Note the event of an answer that is not durable yet, so that the two are at once."""
        asked.noted = self._note(asked, _Result(answer))

    def _note(self, asked: _Asked, result: _Result) -> _Noted:
        words = say(result.answer, reader=self._is_reader(asked), sender=asked.who.sender)
        waits = self._add(asked, result.answer, words, result.why)
        return _Noted(words, self._audit.noted if waits else None)

    def _add(self, asked: _Asked, answer: DoorAnswer, words: Words, why: str) -> bool:
        """Note the event; tell whether the answer has to wait for it."""
        action = f"{asked.action}.refused"
        result: str = words.error or "accepted"
        receipt, run, wait = "", "", asked.wait
        match answer:
            case Taken(receipt=taken, state=state, duplicate=duplicate, where=where):
                action, result = f"signal.{'duplicate' if duplicate else state}", state
                receipt = taken.id
                if where is not None:
                    run, wait = where.run, where.wait
            case RunStarted(run=run):
                action = "run.requested"
            case WaitsListed() | Stopping():
                return False
            case StoreAway() if why in _AWAY:
                # It takes no event either.
                return False
            case _:
                receipt = words.receipt.id if words.receipt is not None else ""
        entry = Entry(
            action=action,
            result=result,
            principal=str(asked.who),
            workflow=asked.workflow,
            key=asked.key,
            wait=wait,
            run=run,
            receipt=receipt,
            reason=why,
            door=asked.origin.door,
            address=asked.origin.address,
            bytes=len(asked.raw),
        )
        if words.ok:
            self._audit.add(entry)
            return True
        return self._audit.refuse(entry)


def _away(fault: WaysideError) -> StoreAway:
    uncertain = isinstance(fault, StoreUnavailable) and fault.uncertain
    return StoreAway(uncertain=uncertain, unreadable=isinstance(fault, UnreadableRecord))
