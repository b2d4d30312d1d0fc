"""Who is at the door: names and tokens become a `Principal`, and a principal's standing is looked up at every message.

A right credential always passes. A wrong one, an unknown name and a revoked device take the same path: the registry is
refreshed once, in case another process has just made what was presented, and the answer is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from devices import credentials, grants
from devices.model import Device, Entry, Kind, Operator, Secret
from devices.registry import Registry
from engine.clock import Source, wall_clock
from engine.errors import StoreUnavailable
from engine.names import is_name
from engine.records import Sender
from gateway.limits import FailureLimits

Refused = Literal["bad_credentials", "disabled", "unavailable", "rate"]
MAX_TOKEN_CHARACTERS = 128
# Stands for a device's certificate where a token is named by the revision that brought it: `good_since` tells which.
CERTIFICATE: Final = 0


class Principal(Struct, frozen=True):
    """Somebody who proved who they are. `secret` names the credential: when that ends, so does this.

    `good_since` belongs to a certificate: those of a device that is revoked end by when they were made.
    """

    kind: Kind
    id: str
    secret: int
    good_since: int = 0

    @property
    def sender(self) -> Sender:
        return Sender(kind=self.kind, id=self.id)

    def __str__(self) -> str:
        return f"{self.kind}:{self.id}"


@dataclass(frozen=True, slots=True)
class Rejected:
    """Nobody that is let in. `rate`: too many failures from there; the next right credential passes all the same."""

    reason: Refused
    name: str = ""  # what was claimed, if it has the shape of a name
    retry_after_seconds: float = 0.0


@dataclass(slots=True)
class Authority:
    """Authenticates, and answers what a principal may do as of now."""

    registry: Registry
    source: Source
    failures: FailureLimits = field(default_factory=FailureLimits)
    wall_clock: Callable[[], datetime] = wall_clock
    _seen: dict[tuple[Kind, str], datetime] = field(default_factory=dict)

    async def device(self, name: str | None, password: bytes | None, *, address: str) -> Principal | Rejected:
        """Authenticate by a device's name and token, as MQTT brings them."""
        token = _text(password)
        claimed = name if name is not None and is_name(name) else ""

        def look() -> tuple[Entry, Secret] | None:
            device = self.registry.device(claimed)
            secret = credentials.matching(device.secrets if device is not None else (), token)
            return (device, secret) if device is not None and secret is not None else None

        return await self._admit(look, claimed, address, likely=credentials.kind_of(token) == "device")

    async def certificate(
        self, names: tuple[str, ...], good_since: int, claimed: str | None, *, address: str
    ) -> Principal | Rejected:
        """Authenticate by the names of a verified certificate, of which one is a device's that takes it.

        With `claimed`, a user name, it has to be that device. `good_since` is the certificate's notBefore, in seconds
        of the Unix epoch.
        """
        wanted = [name for name in names if is_name(name) and claimed in {None, "", name}]

        def look() -> tuple[Entry, Secret | None] | None:
            devices = [device for name in wanted if (device := self.registry.device(name)) is not None]
            found = [device for device in devices if device.takes_certificate(good_since)]
            return (found[0], None) if len(found) == 1 else None

        admitted = await self._admit(look, wanted[0] if wanted else "", address, likely=bool(wanted))
        if isinstance(admitted, Principal):
            return replace(admitted, good_since=good_since)
        return admitted

    async def bearer(self, token: str, *, address: str) -> Principal | Rejected:
        """Authenticate by a token alone, as HTTP brings it: a device's or an operator's."""
        token = token if len(token) <= MAX_TOKEN_CHARACTERS else ""

        def look() -> tuple[Entry, Secret] | None:
            entry = self.registry.owner(credentials.digest(token))
            secret = credentials.matching(entry.secrets if entry is not None else (), token)
            return (entry, secret) if entry is not None and secret is not None else None

        return await self._admit(look, "", address, likely=credentials.kind_of(token) is not None)

    async def _admit(
        self, look: Callable[[], tuple[Entry, Secret | None] | None], claimed: str, address: str, *, likely: bool
    ) -> Principal | Rejected:
        found = look()
        if found is None:
            wait = self.failures.failed(address, claimed, self.source.monotonic())
            if wait > 0.0:
                return Rejected("rate", claimed, wait)
            # Only what passes for a token is worth a look in the store; all who come at once share one.
            if likely:
                try:
                    await self.registry.refresh()
                except StoreUnavailable:
                    return Rejected("unavailable", claimed)
                found = look()
        if found is None:
            return Rejected("bad_credentials", claimed)
        entry, secret = found
        if not entry.active:
            return Rejected("disabled", entry.name)
        self.saw(entry.kind, entry.name)
        if secret is None:
            return Principal(entry.kind, entry.name, CERTIFICATE)
        await self._note_use(entry, secret)
        return Principal(entry.kind, entry.name, secret.since)

    async def _note_use(self, entry: Entry, secret: Secret) -> None:
        with suppress(StoreUnavailable):  # it is said again at the next look
            await self.registry.note_use(entry, secret)

    def vouched_for(self, name: str) -> Principal:
        """Name a device that a broker or a map vouches for, by its newest secret: it stands while it has any."""
        device = self.registry.device(name)
        secrets = device.secrets if device is not None else ()
        return Principal("device", name, max((secret.since for secret in secrets), default=0))

    # -- standing, as of now ---------------------------------------------------------------------------------------

    def standing(self, who: Principal) -> Entry | None:
        """Look a principal up again: None once it is disabled, deleted, or its secret has ended."""
        entry = self.registry.device(who.id) if who.kind == "device" else self.registry.operator(who.id)
        if entry is None or not entry.active:
            return None
        for secret in entry.secrets:
            if who.secret == secret.since:
                return entry
        if who.secret == CERTIFICATE and isinstance(entry, Device) and entry.takes_certificate(who.good_since):
            return entry
        return None

    def may_signal(self, who: Principal, workflow: str, key: str | None) -> bool:
        """Tell whether `who` may signal this key, or with None a wait of the workflow that has no key."""
        match self.standing(who):
            case Device(grants=held):
                return grants.may_signal(held, workflow, key)
            case Operator() as operator:
                return operator.may("signal")
            case None:
                return False

    def may_read(self, who: Principal, workflow: str) -> bool:
        """Tell whether `who` may see the workflow's waits, runs and results."""
        match self.standing(who):
            case Device(grants=held):
                return grants.may_read(held, workflow)
            case Operator() as operator:
                return operator.may("read")
            case None:
                return False

    def may_run(self, who: Principal, workflow: str) -> bool:
        """Tell whether `who` may start the workflow."""
        match self.standing(who):
            case Device(grants=held):
                return grants.may_run(held, workflow)
            case Operator() as operator:
                return operator.may("run")
            case None:
                return False

    def may_signal_at_all(self, who: Principal) -> bool:
        """Tell whether `who` may signal anything: asked before a wait is looked up by its id."""
        match self.standing(who):
            case Device(grants=held):
                return any(isinstance(grant, grants.SignalGrant) for grant in held)
            case Operator() as operator:
                return operator.may("signal")
            case None:
                return False

    def may_listen(self, who: Principal, topic_filter: str) -> bool:
        """Tell whether a device may subscribe there under a `listen` grant."""
        entry = self.standing(who)
        return isinstance(entry, Device) and grants.may_listen(entry.grants, topic_filter)

    def is_admin(self, who: Principal) -> bool:
        """Tell whether `who` may change devices and operators and read the audit log."""
        entry = self.standing(who)
        return isinstance(entry, Operator) and entry.may("admin")

    # -- last seen -------------------------------------------------------------------------------------------------

    def saw(self, kind: Kind, name: str) -> None:
        """Remember that somebody was here just now, by the host's clock: for people to look at."""
        self._seen[kind, name] = self.wall_clock()

    def learn(self, kind: Kind, name: str, at: datetime) -> None:
        """Take note of when somebody was seen, by this instance before a restart or by another one."""
        known = self._seen.get((kind, name))
        if known is None or known < at:
            self._seen[kind, name] = at

    def seen(self) -> dict[tuple[Kind, str], datetime]:
        """Give everybody who was seen, and when."""
        return dict(self._seen)

    def last_seen(self, kind: Kind, name: str) -> datetime | None:
        """Tell when a device or operator was last seen, as far as this instance knows."""
        return self._seen.get((kind, name))


def _text(password: bytes | None) -> str:
    """Read a password as text; what cannot be a token is none."""
    if password is None or len(password) > MAX_TOKEN_CHARACTERS:
        return ""
    try:
        return password.decode("ascii")
    except UnicodeDecodeError:
        return ""
