"""Devices and operators as they are stored: write-once revisions, so that the registry is its own history.

No revision holds a token, of which there is only its SHA-256, nor a time but one: when something came about is the
store's stamp of the revision that brought it. `revoked_at` is compared with what certificates say, which is the time of
a host's clock, and so it is that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, ClassVar, Final, Literal

import msgspec

from devices.grants import Grant, parse
from engine import names, records
from engine.errors import BadInput
from engine.limits import NAME_PATTERN
from engine.records import Stored, Unreadable
from engine.store.base import Record

State = Literal["active", "disabled", "deleted"]
Right = Literal["read", "run", "signal", "admin"]
Kind = Literal["device", "user"]

RIGHTS: Final[tuple[Right, ...]] = ("read", "run", "signal", "admin")
MAX_SECRETS: Final = 2
MAX_GRANTS: Final = 256
MAX_NOTE_CHARACTERS: Final = 256
MAX_RATE: Final = 100_000

Name = Annotated[str, msgspec.Meta(pattern=rf"^{NAME_PATTERN}\Z")]
Secrets = Annotated[tuple["Secret", ...], msgspec.Meta(max_length=MAX_SECRETS)]


class Secret(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One token's digest. `since` is the number of the revision that brought it, and so tells it from the others.

    `verifiers` maps a broker's kind to the token in the form in which that broker keeps passwords.
    """

    digest: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    since: Annotated[int, msgspec.Meta(ge=1)]
    verifiers: dict[str, Annotated[str, msgspec.Meta(max_length=512)]] = {}


class Rate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often, in events a second, and how many at once."""

    per_second: Annotated[float, msgspec.Meta(gt=0, le=MAX_RATE)]
    burst: Annotated[int, msgspec.Meta(ge=1, le=MAX_RATE)]


class LimitOverrides(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where a device's limits differ from everybody's."""

    signals: Rate | None = None
    runs: Rate | None = None
    reads: Rate | None = None
    connects: Rate | None = None


class DeviceRevision(records.Value, frozen=True, kw_only=True, tag="device"):
    """What a device is from this revision on. `did` names what was done (`add`, `grant`, …) and `by` who did it.

    `revoked_at` is there once the device was revoked or deleted: seconds of the Unix epoch.
    """

    device: Name
    state: State
    secrets: Secrets
    grants: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_GRANTS)]
    limits: LimitOverrides
    note: Annotated[str, msgspec.Meta(max_length=MAX_NOTE_CHARACTERS)]
    did: str
    by: str
    revoked_at: Annotated[int, msgspec.Meta(ge=0)] | msgspec.UnsetType = msgspec.UNSET


class OperatorRevision(records.Value, frozen=True, kw_only=True, tag="operator"):
    """What an operator is from this revision on."""

    operator: Name
    state: State
    secrets: Secrets
    rights: tuple[Right, ...]
    did: str
    by: str


class Change(records.Value, frozen=True, kw_only=True, tag="change"):
    """Says that revision `rev` of `name` is about to be created: every instance looks for it."""

    kind: Kind
    name: Name
    rev: Annotated[int, msgspec.Meta(ge=1)]


class FirstUse(records.Value, frozen=True, kw_only=True, tag="first_use"):
    """A secret that replaces another was used for the first time; the record's stamp says when."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device as its newest revision says, with its grants parsed.

    `revoked_at` is when it was last revoked or deleted, in seconds of the Unix epoch; None: never.
    """

    kind: ClassVar[Literal["device"]] = "device"

    name: str
    rev: int
    state: State
    secrets: tuple[Secret, ...] = field(repr=False)
    grants: tuple[Grant, ...]
    limits: LimitOverrides
    note: str
    revoked_at: int | None
    changed_at: datetime

    @property
    def active(self) -> bool:
        return self.state == "active"

    def takes_certificate(self, good_since: int) -> bool:
        """Tell whether a certificate that is good since then, in seconds of the Unix epoch, stands for the device.

        None does while it has no token, and none that was made until it was last revoked does ever again: whoever has
        got hold of its key would come back in with the device. In the very second of that, it is taken for older.
        """
        return bool(self.secrets) and (self.revoked_at is None or good_since > self.revoked_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """An operator as its newest revision says. `admin` includes every other right."""

    kind: ClassVar[Literal["user"]] = "user"

    name: str
    rev: int
    state: State
    secrets: tuple[Secret, ...] = field(repr=False)
    rights: frozenset[Right]
    changed_at: datetime

    @property
    def active(self) -> bool:
        return self.state == "active"

    def may(self, right: Right) -> bool:
        """Tell whether an active operator holds `right`."""
        return self.active and (right in self.rights or "admin" in self.rights)


Entry = Device | Operator

_DEVICE, _OPERATOR = records.decoder(DeviceRevision), records.decoder(OperatorRevision)
_CHANGE = records.decoder(Change)


def prefix(kind: Kind, name: str = "") -> str:
    """Name where the revisions of one entry, or of all of a kind, are stored."""
    top = "devices" if kind == "device" else "operators"
    return names.revisions(top, name) if name else f"{top}/"


def revision_key(kind: Kind, name: str, rev: int) -> str:
    return prefix(kind, name) + names.number(rev)


def first_use_key(kind: Kind, name: str, secret: Secret) -> str:
    return f"used/{kind}/{name}/{names.number(secret.since)}"


def read_device(record: Record) -> Stored[DeviceRevision] | Unreadable:
    return _DEVICE(record)  # type: ignore[return-value]


def read_operator(record: Record) -> Stored[OperatorRevision] | Unreadable:
    return _OPERATOR(record)  # type: ignore[return-value]


def read_change(record: Record) -> Stored[Change] | Unreadable:
    return _CHANGE(record)  # type: ignore[return-value]


def entry_of(record: Record) -> Entry | Unreadable:
    """Read a revision as the device or operator that it describes."""
    if not record.key.startswith(prefix("device")):
        operator = read_operator(record)
        return operator if isinstance(operator, Unreadable) else _operator(operator)
    found = read_device(record)
    if isinstance(found, Unreadable):
        return found
    try:
        return _device(found)
    except BadInput:
        return Unreadable(record.key, "it has a grant that this build does not know", record.stored_at)


def _device(found: Stored[DeviceRevision]) -> Device:
    it = found.value
    revoked_at = None if it.revoked_at is msgspec.UNSET else it.revoked_at
    if revoked_at is None and not it.secrets:
        # A build before this one has revoked it, and not written down when: no later than this revision was stored.
        revoked_at = int(found.at.timestamp())
    return Device(
        name=it.device,
        rev=found.number,
        state=it.state,
        secrets=it.secrets,
        grants=tuple(parse(text) for text in it.grants),
        limits=it.limits,
        note=it.note,
        revoked_at=revoked_at,
        changed_at=found.at,
    )


def _operator(found: Stored[OperatorRevision]) -> Operator:
    it = found.value
    return Operator(
        name=it.operator,
        rev=found.number,
        state=it.state,
        secrets=it.secrets,
        rights=frozenset(it.rights),
        changed_at=found.at,
    )
