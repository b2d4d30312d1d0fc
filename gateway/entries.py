"""What is written down in the audit log: entries without any field that could hold a payload, and events as stored."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from operator import attrgetter
from typing import Annotated, Final, Literal

import msgspec

from engine import names, records
from engine.records import Stored, Unreadable
from engine.store.base import Record

Door = Literal["", "mqtt", "bridge", "http", "ws", "cli"]

# Events about the log itself. The second and third name an instance in `result` and `<day>:<seq>:<digest>` of one of
# its events in `reason`: the end of its chain as somebody else saw it, and the last event that retention removed.
CLOSED: Final = "audit.closed"
WITNESSED: Final = "audit.witnessed"
RETAINED: Final = "audit.retained"
_UNCLEAR: Final = "?"

# No quote, brace, space or other character that JSON is made of: a payload does not fit into any of these.
_WORD: Final = re.compile(r"[A-Za-z0-9_.:*/+#?-]{0,96}")
_STEP: Final = re.compile(r"[A-Za-z0-9_.\[\]-]{0,96}")
_ADDRESS: Final = re.compile(r"[0-9A-Za-z:.%_-]{0,64}")
_ID: Final = re.compile(r"([a-z0-9]{26})?")
_NAME: Final = re.compile(rf"({names.NAME.pattern})?")
_SHAPES: Final = {
    "action": _WORD,
    "result": _WORD,
    "principal": _WORD,
    "workflow": _NAME,
    "key": _NAME,
    "wait": _ID,
    "run": _ID,
    "job": _STEP,
    "step": _STEP,
    "receipt": _ID,
    "reason": _WORD,
    "address": _ADDRESS,
}
_fields_of: Final = attrgetter(*_SHAPES)
# All of them at once, since it is asked twice for every event. No shape takes a line's end.
_ALL: Final = re.compile("\n".join(f"(?:{shape.pattern})" for shape in _SHAPES.values()))


def _is_in_shape(event: object) -> bool:
    return _ALL.fullmatch("\n".join(_fields_of(event))) is not None


def _misshapen(event: object) -> list[str]:
    return [name for name, shape in _SHAPES.items() if shape.fullmatch(getattr(event, name)) is None]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to be written down. What has not the shape of its field is replaced by nothing, or by `?`."""

    action: str
    result: str = ""
    principal: str = ""
    workflow: str = ""
    key: str = ""
    wait: str = ""
    run: str = ""
    job: str = ""
    step: str = ""
    receipt: str = ""
    reason: str = ""
    door: Door = ""
    address: str = ""
    bytes: int = 0
    count: int = 1
    seconds: float = 0.0

    def __post_init__(self) -> None:
        for name in () if _is_in_shape(self) else _misshapen(self):
            msgspec.structs.force_setattr(self, name, _UNCLEAR if _SHAPES[name] is _WORD else "")


class _Written(records.Value, frozen=True, kw_only=True, tag="audit"):
    """An entry on its way into the store: its fields have their shapes already."""

    action: str
    result: str
    principal: str
    workflow: str
    key: str
    wait: str
    run: str
    job: str
    step: str
    receipt: str
    reason: str
    door: Door
    address: str
    bytes: Annotated[int, msgspec.Meta(ge=0)]
    count: Annotated[int, msgspec.Meta(ge=1)]
    seconds: Annotated[float, msgspec.Meta(ge=0)]
    prev: str


class AuditEvent(_Written, frozen=True, kw_only=True, tag="audit"):
    """An entry as it is stored; its time is the store's stamp. `prev` is the digest of this instance's event before."""

    def __post_init__(self) -> None:
        if not _is_in_shape(self):
            raise ValueError(f"not in shape: {', '.join(_misshapen(self))}")


_EVENT = records.decoder(AuditEvent)


def read_event(record: Record) -> Stored[AuditEvent] | Unreadable:
    """Read an audit event."""
    return _EVENT(record)  # type: ignore[return-value]


def digest(event: bytes) -> str:
    """Give the hex SHA-256 by which the next event names this one."""
    return sha256(event).hexdigest()


def event_of(entry: Entry, *, at: str, nonce: str, prev: str) -> records.Value:
    """Put an entry into its place in a chain, as it is stored."""
    return _Written(at=at, nonce=nonce, prev=prev, **msgspec.structs.asdict(entry))


def sameness(entry: Entry) -> tuple[str, ...]:
    """Say which refusals are the same one repeated: each kind, from one sender, about one thing."""
    if entry.action.startswith("login."):
        return (entry.action, entry.result, entry.door, entry.address)
    if entry.result == "rate_limited":
        return (entry.action, entry.result, entry.door, entry.principal, entry.reason)
    about = (entry.workflow, entry.key, entry.wait)
    return (entry.action, entry.result, entry.door, entry.address, entry.principal, entry.reason, *about)


# -- what the log keeps of them until they are stored ----------------------------------------------------------------


@dataclass(slots=True)
class Flood:
    """A refusal that was written down, and how often the same one has come since."""

    entry: Entry
    since: float
    more: int = 0


@dataclass(slots=True, kw_only=True)
class Batch:
    """Events that were numbered together, and how many of those noted they stand for: some of them never were."""

    items: list[tuple[str, bytes]]
    stands_for: int


@dataclass(slots=True, kw_only=True)
class Riding:
    """Events that go along with operations: those noted in them, behind older ones; what the chain was before.

    Without a batch they do not, but wait like others.
    """

    staged: list[Entry]
    older: list[Entry | None]
    before: tuple[int, str, str]
    at: datetime
    batch: Batch | None
