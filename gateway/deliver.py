"""The one use case: a principal's request comes to an answer, the same at every door and in the same order of checks.

1 who, 2 rate, 3 grant, 4 payload, 5 the protocol, 6 audit, 7 the answer; the engine continues the run by itself.
Nothing is read before the grant is checked, an unknown workflow, an undeclared key and a missing grant are one answer,
and an answer is given only when what it says, and the event that records it, are durable.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

from devices.model import Device
from engine.clock import Source, derived_id
from engine.errors import BadInput, NotFound, StoreDamaged, StoreUnavailable, WaysideError
from engine.names import is_name, is_record_id, is_signal_id
from engine.payload import Payload, PayloadProblem, parse_payload
from engine.results import Answer, NotDeclared, SignalRequest, Taken
from gateway.answers import (
    BadInputs,
    BadTopic,
    DoorAnswer,
    RateLimited,
    RetainedNotAllowed,
    RunStarted,
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

_SHORT_ID_DIGITS: Final = 16
_AWAY: Final = frozenset({StoreUnavailable.code, StoreDamaged.code})


class Addressed(Protocol):
    """Where a wait lives."""

    @property
    def workflow(self) -> str: ...

    @property
    def key(self) -> str | None: ...


class Triggered(Protocol):
    """As much of a definition as is asked here."""

    @property
    def trigger_topic(self) -> bool: ...


class Definitions(Protocol):
    """The definitions in force."""

    def get(self, name: str) -> Triggered | None: ...


class Engine(Protocol):
    """As much of the engine as is used here; see `engine.service`."""

    @property
    def catalog(self) -> Definitions: ...

    async def signal_key(self, workflow: str, key: str, request: SignalRequest) -> Answer: ...

    async def signal_wait(self, wait: str, request: SignalRequest) -> Answer: ...

    async def address_of(self, wait: str, request: SignalRequest | None = None) -> Addressed | None: ...

    async def start_run(
        self, workflow: str, inputs: Mapping[str, object], *, by: str, run: str | None = None
    ) -> str: ...

    async def waits(self, *, workflow: str | None = None, key: str | None = None) -> Mapping[str, object]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Which door a request came through, and from where."""

    door: Door
    address: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """What a request came to. `id` is the signal id, else a short digest of the payload.

    `answer_it` is false for one of many unidentified messages over a rate, `close` is true when the sender has just
    been shut out for a while.
    """

    answer: DoorAnswer
    words: Words
    id: str
    answer_it: bool = True
    close: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A request while it is being checked; what it is about fills the audit event."""

    who: Principal
    origin: Origin
    action: str
    raw: bytes
    signal_id: str | None = None
    workflow: str = ""
    key: str = ""
    wait: str = ""

    @property
    def id(self) -> str:
        return self.signal_id or hashlib.sha256(self.raw).hexdigest()[:_SHORT_ID_DIGITS]


@dataclass(frozen=True, slots=True)
class _Over:
    verdict: Limited


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
        refused = self._check(asked, "signals") or _bad_address(asked, is_name(workflow) and is_name(key))
        if refused is not None:
            return await self._finish(asked, refused)
        if not self._authority.may_signal(who, workflow, key):
            return await self._finish(asked, NotDeclared(), "no_grant")
        if retained:
            return await self._finish(asked, RetainedNotAllowed())
        payload = parse_payload(raw)
        if isinstance(payload, PayloadProblem):
            return await self._finish(asked, payload)
        request = SignalRequest(sender=who.sender, payload=payload, signal_id=signal_id)
        try:
            answer: DoorAnswer = await self._engine.signal_key(workflow, key, request)
        except WaysideError as fault:
            return await self._finish(asked, StoreAway(), fault.code)
        return await self._finish(asked, answer)

    async def signal_wait(
        self, who: Principal, origin: Origin, *, wait: str, raw: bytes, signal_id: str | None = None
    ) -> Delivered:
        """Deliver a signal that is addressed to a wait by its id: under the grant of the wait's key.

        Without a key the grant is the one on the whole workflow.
        """
        asked = _Asked(who=who, origin=origin, action="signal", raw=raw, signal_id=signal_id, wait=wait)
        refused = self._check(asked, "signals") or _bad_address(asked, is_record_id(wait))
        if refused is not None:
            return await self._finish(asked, refused)
        # Whose wait it is has to be read to be authorised; nobody without any grant gets that far.
        if not self._authority.may_signal_at_all(who):
            return await self._finish(asked, NotDeclared(), "no_grant")
        payload = parse_payload(raw)
        request = None
        if isinstance(payload, Payload):
            request = SignalRequest(sender=who.sender, payload=payload, signal_id=signal_id)
        try:
            # A repeat is known by its own chain although its wait is gone.
            address = await self._engine.address_of(wait, request)
        except WaysideError as fault:
            return await self._finish(asked, StoreAway(), fault.code)
        if address is None or not self._authority.may_signal(who, address.workflow, address.key):
            return await self._finish(asked, NotDeclared(), "no_wait" if address is None else "no_grant")
        asked = replace(asked, workflow=address.workflow, key=address.key or "")
        if isinstance(payload, PayloadProblem):
            return await self._finish(asked, payload)
        assert request is not None
        try:
            answer: DoorAnswer = await self._engine.signal_wait(wait, request)
        except WaysideError as fault:
            return await self._finish(asked, StoreAway(), fault.code)
        return await self._finish(asked, answer)

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
        refused = self._check(asked, "runs") or _bad_address(asked, is_name(workflow))
        if refused is not None:
            return await self._finish(asked, refused)
        if not self._authority.may_run(who, workflow):
            return await self._finish(asked, NotDeclared(), "no_grant")
        if retained:
            return await self._finish(asked, RetainedNotAllowed())
        payload = parse_payload(raw or b"{}")
        if isinstance(payload, PayloadProblem):
            return await self._finish(asked, payload)
        answer, why = await self._start(asked, payload)
        return await self._finish(asked, answer, why)

    async def waits(self, who: Principal, origin: Origin, *, workflow: str, raw: bytes = b"") -> Delivered:
        """List the open waits of a workflow for somebody who may read it."""
        asked = _Asked(who=who, origin=origin, action="read", raw=raw, workflow=workflow)
        refused = self._check(asked, "reads") or _bad_address(asked, is_name(workflow))
        if refused is not None:
            return await self._finish(asked, refused)
        if not self._authority.may_read(who, workflow):
            return await self._finish(asked, NotDeclared(), "no_grant")
        try:
            found = (await self._engine.waits(workflow=workflow)).get("waits")
        except WaysideError as fault:
            return await self._finish(asked, StoreAway(), fault.code)
        listed = [wait for wait in found if isinstance(wait, dict)] if isinstance(found, list) else []
        listed.sort(key=lambda wait: str(wait.get("deadline")))
        return await self._finish(asked, WaitsListed(tuple(listed)))

    # -- the checks --------------------------------------------------------------------------------------------------

    def _check(self, asked: _Asked, counted: Counted) -> DoorAnswer | _Over | None:
        """Who, and at what rate: without reading anything."""
        if self._stopping:
            return Stopping()
        entry = self._authority.standing(asked.who)
        if entry is None:
            return Unauthorized()
        if not isinstance(entry, Device):
            return None
        verdict = self._limits.take(entry.name, counted, self._source.monotonic(), entry.limits)
        return _Over(verdict) if isinstance(verdict, Limited) else None

    async def _start(self, asked: _Asked, payload: Payload) -> tuple[DoorAnswer, str]:
        who = asked.who
        definition = self._engine.catalog.get(asked.workflow)
        if definition is None or (who.kind == "device" and not definition.trigger_topic):
            return NotDeclared(), "no_workflow" if definition is None else "no_trigger"
        run = None
        if asked.signal_id is not None:
            owner = who.id if who.kind == "device" else str(who)
            run = derived_id("run", owner, asked.workflow, asked.signal_id)
        try:
            return RunStarted(await self._engine.start_run(asked.workflow, payload.value(), by=str(who), run=run)), ""
        except NotFound as fault:
            return NotDeclared(), fault.code
        except BadInput as fault:
            return BadInputs(fault.problems), ""
        except WaysideError as fault:
            return StoreAway(), fault.code

    # -- audit and answer --------------------------------------------------------------------------------------------

    async def _finish(self, asked: _Asked, result: DoorAnswer | _Over, why: str = "") -> Delivered:
        """Write down what came of it, and answer once that is durable."""
        answer_it, close = True, False
        if isinstance(result, _Over):
            verdict = result.verdict
            answer_it, close = verdict.answer or asked.signal_id is not None, verdict.close
            why = verdict.limit
            answer: DoorAnswer = RateLimited(limit=why, retry_after_seconds=verdict.retry_after_seconds)
        else:
            answer = result
        reader = bool(asked.workflow) and self._authority.may_read(asked.who, asked.workflow)
        words = say(answer, reader=reader, sender=asked.who.sender)
        try:
            if self._note(asked, answer, words, why):
                await self._audit.written()
        except StoreUnavailable:
            answer = StoreAway()
            words = say(answer, reader=reader)
        return Delivered(answer=answer, words=words, id=asked.id, answer_it=answer_it, close=close)

    def _note(self, asked: _Asked, answer: DoorAnswer, words: Words, why: str) -> bool:
        """Note the event; tell whether the answer has to wait for it."""
        action, result, receipt, run, wait = asked.action, "accepted", "", "", asked.wait
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
                action, result = f"{asked.action}.refused", words.error
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


def _bad_address(asked: _Asked, named: bool) -> DoorAnswer | None:  # noqa: FBT001 - the one condition
    """Refuse what cannot name anything, before it gets into a record or a grant's comparison."""
    if named and (asked.signal_id is None or is_signal_id(asked.signal_id)):
        return None
    return BadTopic("names are made of a-z 0-9 _ -, a signal id of A-Z a-z 0-9 _ -")
