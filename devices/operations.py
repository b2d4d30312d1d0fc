"""What an operator does to devices and operators: each makes the next revision, and none can be half done.

They raise `BadInput`, `NotFound` or `Conflict` with what to do, and `StoreUnavailable`. A token is returned once and
kept nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec

from devices import credentials
from devices.grants import parse
from devices.model import (
    MAX_GRANTS,
    MAX_NOTE_CHARACTERS,
    MAX_SECRETS,
    RIGHTS,
    Device,
    DeviceRevision,
    Kind,
    LimitOverrides,
    Operator,
    OperatorRevision,
    Rate,
    Right,
    Secret,
    State,
)
from devices.registry import Place, Registry
from engine.clock import secret_number, wall_clock
from engine.errors import BadInput, Conflict, NotFound
from engine.names import is_name

Draw = Callable[[int], int]
Clock = Callable[[], datetime]
_NO_LIMITS: Final = LimitOverrides()


@dataclass(frozen=True, slots=True)
class Issued:
    """A device or an operator with the token that it was just given."""

    entry: Device | Operator
    token: str = field(repr=False)


async def add(
    registry: Registry,
    name: str,
    *,
    by: str,
    grants: Iterable[str] = (),
    note: str = "",
    limits: LimitOverrides = _NO_LIMITS,
    draw: Draw = secret_number,
) -> Issued:
    """Add a device, or one that was deleted anew; it can connect when this returns."""
    _check_name("device", name)
    wanted = _canonical(grants)
    _check_note(note)
    token, digest = _issue("device", draw)
    verifiers = registry.verify(token)

    def decide(current: Device | None, place: Place) -> DeviceRevision:
        if current is not None and current.state != "deleted":
            hint = "`device rotate` gives it another token, `device grant` another grant"
            raise Conflict(f"there is a device {name} already", hint=hint)
        secret = Secret(digest=digest, since=place.rev, verifiers=verifiers)
        return DeviceRevision(
            at=place.at,
            nonce=place.nonce,
            device=name,
            state="active",
            secrets=(secret,),
            grants=wanted,
            limits=limits,
            note=note,
            did="add",
            by=by,
            revoked_at=_revoked_at(current),
        )

    return Issued(await registry.revise_device(name, decide), token)


async def grant(registry: Registry, name: str, text: str, *, by: str) -> Device:
    """Give a device one grant more; nothing happens when it has it."""
    wanted = str(parse(text))

    def change(device: Device) -> dict[str, Any] | None:
        held = _texts(device)
        if wanted in held:
            return None
        return {"grants": _bounded((*held, wanted))}

    return await _change(registry, name, "grant", change, by=by, detail=wanted)


async def ungrant(registry: Registry, name: str, text: str, *, by: str) -> Device:
    """Take a grant from a device; in force for its open connections at once."""
    unwanted = str(parse(text))

    def change(device: Device) -> dict[str, Any]:
        held = _texts(device)
        if unwanted not in held:
            raise NotFound(f"{name} has no grant {unwanted}", hint=f"it has: {', '.join(held) or 'none'}")
        return {"grants": tuple(text for text in held if text != unwanted)}

    return await _change(registry, name, "ungrant", change, by=by, detail=unwanted)


async def rotate(registry: Registry, name: str, *, by: str, draw: Draw = secret_number) -> Issued:
    """Give a device a second token; the first works until `finish_rotation`."""
    token, digest = _issue("device", draw)
    verifiers = registry.verify(token)

    def decide(current: Device | None, place: Place) -> DeviceRevision:
        device = _there(current, name)
        secret = Secret(digest=digest, since=place.rev, verifiers=verifiers)
        secrets = _added(name, device.secrets, secret)
        return _revision(device, place, did="rotate", by=by, secrets=secrets)

    return Issued(await registry.revise_device(name, decide), token)


async def finish_rotation(registry: Registry, name: str, *, by: str) -> Device:
    """End a device's older token; connections that were made with it are closed."""
    return await _change(registry, name, "rotate_finish", lambda it: {"secrets": _newest(name, it.secrets)}, by=by)


async def revoke(registry: Registry, name: str, *, by: str, clock: Clock = wall_clock) -> Device:
    """End all of a device's tokens and every certificate made until now, and close its connections.

    `rotate` lets it back in, by its new token or a certificate that is made after this. `clock` is that by which
    certificates are made.
    """

    def change(device: Device) -> dict[str, Any]:
        # Also where there is no token to end: a certificate may have been made since the last time.
        return {"secrets": (), "revoked_at": _now(device, clock)}

    return await _change(registry, name, "revoke", change, by=by)


async def disable(registry: Registry, name: str, *, by: str) -> Device:
    """Keep a device out, with its tokens and grants, until `enable`."""
    return await _set_state(registry, name, "disable", "disabled", by)


async def enable(registry: Registry, name: str, *, by: str) -> Device:
    """Let a disabled device in again."""
    return await _set_state(registry, name, "enable", "active", by)


async def delete(registry: Registry, name: str, *, by: str, clock: Clock = wall_clock) -> Device:
    """Delete a device: no tokens, no grants. Its history stays, and its name may be used again.

    Certificates made until now are as void for another device of that name as after `revoke`.
    """

    def change(device: Device) -> dict[str, Any]:
        gone = {"state": "deleted", "secrets": (), "grants": (), "limits": _NO_LIMITS}
        return gone | {"revoked_at": _now(device, clock)}

    return await _change(registry, name, "delete", change, by=by)


async def set_limits(registry: Registry, name: str, limits: LimitOverrides, *, by: str) -> Device:
    """Replace what is special about a device's limits."""
    return await _change(registry, name, "limit", lambda it: {"limits": limits} if it.limits != limits else None, by=by)


async def change_limits(registry: Registry, name: str, changes: Mapping[str, Rate | None], *, by: str) -> Device:
    """Replace some of what is special about a device's limits; None: as for everybody."""

    def change(device: Device) -> dict[str, Any] | None:
        limits = msgspec.structs.replace(device.limits, **changes)
        return {"limits": limits} if limits != device.limits else None

    return await _change(registry, name, "limit", change, by=by, detail=", ".join(sorted(changes)))


async def set_note(registry: Registry, name: str, note: str, *, by: str) -> Device:
    """Replace a device's note."""
    _check_note(note)
    return await _change(registry, name, "note", lambda it: {"note": note} if it.note != note else None, by=by)


# -- operators ---------------------------------------------------------------------------------------------------


async def add_operator(
    registry: Registry, name: str, *, rights: Sequence[Right], by: str, draw: Draw = secret_number
) -> Issued:
    """Add an operator, or one that was revoked anew."""
    _check_name("operator", name)
    if not rights or any(right not in RIGHTS for right in rights):
        raise BadInput("an operator needs at least one right", hint=f"rights are {', '.join(RIGHTS)}")
    token, digest = _issue("user", draw)

    def decide(current: Operator | None, place: Place) -> OperatorRevision:
        if current is not None and current.state != "deleted":
            raise Conflict(f"there is an operator {name} already", hint="`operator rotate` gives another token")
        held = tuple(right for right in RIGHTS if right in rights)
        secret = Secret(digest=digest, since=place.rev)
        return OperatorRevision(
            at=place.at,
            nonce=place.nonce,
            operator=name,
            state="active",
            secrets=(secret,),
            rights=held,
            did="add",
            by=by,
        )

    return Issued(await registry.revise_operator(name, decide), token)


async def rotate_operator(registry: Registry, name: str, *, by: str, draw: Draw = secret_number) -> Issued:
    """Give an operator a second token; the first works until `finish_operator_rotation`."""
    token, digest = _issue("user", draw)

    def decide(current: Operator | None, place: Place) -> OperatorRevision:
        operator = _operator_there(current, name)
        secrets = _added(name, operator.secrets, Secret(digest=digest, since=place.rev))
        return _operator_revision(operator, place, did="rotate", by=by, secrets=secrets)

    return Issued(await registry.revise_operator(name, decide), token)


async def finish_operator_rotation(registry: Registry, name: str, *, by: str) -> Operator:
    """End an operator's older token."""

    def decide(current: Operator | None, place: Place) -> OperatorRevision:
        operator = _operator_there(current, name)
        kept = _newest(name, operator.secrets)
        return _operator_revision(operator, place, did="rotate_finish", by=by, secrets=kept)

    return await registry.revise_operator(name, decide)


async def revoke_operator(registry: Registry, name: str, *, by: str) -> Operator:
    """End an operator's tokens; the name may be used again."""

    def decide(current: Operator | None, place: Place) -> OperatorRevision:
        operator = _operator_there(current, name)
        return _operator_revision(operator, place, did="revoke", by=by, secrets=(), state="deleted")

    return await registry.revise_operator(name, decide)


# -- what they share ---------------------------------------------------------------------------------------------


async def _set_state(registry: Registry, name: str, did: str, state: State, by: str) -> Device:
    return await _change(registry, name, did, lambda it: {"state": state} if it.state != state else None, by=by)


async def _change(
    registry: Registry,
    name: str,
    did: str,
    change: Callable[[Device], dict[str, Any] | None],
    *,
    by: str,
    detail: str = "",
) -> Device:
    def decide(current: Device | None, place: Place) -> DeviceRevision | None:
        device = _there(current, name)
        changed = change(device)
        return None if changed is None else _revision(device, place, did=did, by=by, **changed)

    _check_name("device", name)
    return await registry.revise_device(name, decide, detail=detail)


def _revision(device: Device, place: Place, *, did: str, by: str, **changed: Any) -> DeviceRevision:  # noqa: ANN401
    same = DeviceRevision(
        at=place.at,
        nonce=place.nonce,
        device=device.name,
        state=device.state,
        secrets=device.secrets,
        grants=_texts(device),
        limits=device.limits,
        note=device.note,
        did=did,
        by=by,
        revoked_at=_revoked_at(device),
    )
    return msgspec.structs.replace(same, **changed)


def _revoked_at(device: Device | None) -> int | msgspec.UnsetType:
    return msgspec.UNSET if device is None or device.revoked_at is None else device.revoked_at


def _now(device: Device, clock: Clock) -> int:
    """Read the clock for a revocation, which no step back of it makes earlier than the last."""
    return max(int(clock().timestamp()), device.revoked_at or 0)


def _operator_revision(
    operator: Operator,
    place: Place,
    *,
    did: str,
    by: str,
    secrets: tuple[Secret, ...],
    state: State = "active",
) -> OperatorRevision:
    rights = tuple(right for right in RIGHTS if right in operator.rights)
    return OperatorRevision(
        at=place.at,
        nonce=place.nonce,
        operator=operator.name,
        state=state,
        secrets=secrets,
        rights=rights,
        did=did,
        by=by,
    )


def _there(current: Device | None, name: str) -> Device:
    if current is None or current.state == "deleted":
        raise NotFound(f"there is no device {name}", hint="`device list` names them, `device add` makes one")
    return current


def _operator_there(current: Operator | None, name: str) -> Operator:
    if current is None or current.state == "deleted":
        raise NotFound(f"there is no operator {name}", hint="`operator list` names them, `operator add` makes one")
    return current


def _added(name: str, secrets: tuple[Secret, ...], secret: Secret) -> tuple[Secret, ...]:
    if len(secrets) >= MAX_SECRETS:
        raise Conflict(f"{name} has two tokens already", hint="`rotate --finish` ends the older one first")
    return (*secrets, secret)


def _newest(name: str, secrets: tuple[Secret, ...]) -> tuple[Secret, ...]:
    if len(secrets) < MAX_SECRETS:
        raise Conflict(f"{name} has no second token", hint="`rotate` gives it one")
    return (max(secrets, key=lambda secret: secret.since),)


def _issue(kind: Kind, draw: Draw) -> tuple[str, str]:
    token = credentials.make_token(kind, draw(credentials.ENTROPY_BITS))
    return token, credentials.digest(token)


def _texts(device: Device) -> tuple[str, ...]:
    return tuple(str(held) for held in device.grants)


def _canonical(grants: Iterable[str]) -> tuple[str, ...]:
    return _bounded(tuple(dict.fromkeys(str(parse(text)) for text in grants)))


def _bounded(grants: tuple[str, ...]) -> tuple[str, ...]:
    if len(grants) > MAX_GRANTS:
        raise BadInput(f"a device has at most {MAX_GRANTS} grants", hint="* stands for any name")
    return grants


def _check_name(what: str, name: str) -> None:
    if not is_name(name):
        hint = "1 to 64 characters of a-z, 0-9, _ and -, a letter or digit first"
        raise BadInput(f"this is no name for a{'n' if what == 'operator' else ''} {what}", hint=hint)


def _check_note(note: str) -> None:
    if len(note) > MAX_NOTE_CHARACTERS:
        raise BadInput(f"a note has at most {MAX_NOTE_CHARACTERS} characters")
