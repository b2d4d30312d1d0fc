"""`/devices`: the registry, for operators."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Path, Query

from devices import operations
from devices.model import Device, LimitOverrides, Rate
from engine.clock import rfc3339
from engine.errors import NotFound
from engine.views import when
from gateway.http.access import Parts, Who
from gateway.http.models import (
    AddDevice,
    DeviceDetail,
    DeviceLimits,
    DeviceList,
    DeviceView,
    GrantText,
    IssuedToken,
    Name,
    RateModel,
)
from gateway.http.paging import MAX_PAGE, AfterName, Limit, page
from gateway.http.problems import documented
from gateway.services import Services
from gateway.tokens import token_uses

router: Final = APIRouter(prefix="/devices", tags=["devices"])
Which = Annotated[Name, Path(description="the device's name")]
_ERRORS: Final = documented(401, 403, 404, 409, 413, 422, 429, 503)


@router.get("", response_model=DeviceList, responses=documented(401, 403, 422, 429, 503))
async def list_devices(parts: Parts, who: Who, after: AfterName = None, limit: Limit = MAX_PAGE) -> dict[str, Any]:
    """List the devices that are not deleted."""
    who.must_be_operator("read")
    await parts.registry.refresh()
    devices, following = page(parts.registry.devices(), lambda device: device.name, after=after, limit=limit)
    return {"devices": [_view(parts, device) for device in devices], "next": following}


@router.post("", response_model=IssuedToken, status_code=201, responses=_ERRORS)
async def add_device(body: AddDevice, parts: Parts, who: Who) -> dict[str, Any]:
    """Add a device. Its token is in this answer and nowhere else; it can connect at once."""
    who.must_be_operator("admin")
    issued = await operations.add(
        parts.registry,
        body.device,
        by=who.name,
        grants=body.grants,
        note=body.note,
        limits=LimitOverrides(**_rates(body.limits)),
    )
    return await _issued(parts, issued)


@router.get("/{device}", response_model=DeviceDetail, responses=_ERRORS)
async def show_device(device: Which, parts: Parts, who: Who) -> dict[str, Any]:
    """Show one device: since when each of its tokens is good, and when it was first used."""
    who.must_be_operator("read")
    await parts.registry.refresh()
    found = parts.registry.device(device)
    if found is None or found.state == "deleted":
        raise NotFound(f"there is no device {device}", hint="`wayside device list` names them")
    secrets = [
        {"made": when(it.made), "first_used": when(it.first_used), "used_since": when(it.used_since)}
        for it in await token_uses(parts.registry, found)
    ]
    return _view(parts, found) | {"secrets": secrets}


@router.post("/{device}/grants", response_model=DeviceView, responses=_ERRORS)
async def grant(device: Which, body: GrantText, parts: Parts, who: Who) -> dict[str, Any]:
    """Give a device one grant more."""
    who.must_be_operator("admin")
    return await _done(parts, await operations.grant(parts.registry, device, body.grant, by=who.name))


@router.delete("/{device}/grants", response_model=DeviceView, responses=_ERRORS)
async def ungrant(
    device: Which, grant: Annotated[str, Query(max_length=512)], parts: Parts, who: Who
) -> dict[str, Any]:
    """Take a grant from a device; in force for its open connections at once."""
    who.must_be_operator("admin")
    return await _done(parts, await operations.ungrant(parts.registry, device, grant, by=who.name))


@router.post("/{device}/limits", response_model=DeviceView, responses=_ERRORS)
async def limit(device: Which, body: DeviceLimits, parts: Parts, who: Who) -> dict[str, Any]:
    """Replace those of a device's limits that are named; null: as for everybody. In force at once."""
    who.must_be_operator("admin")
    return await _done(parts, await operations.change_limits(parts.registry, device, _rates(body), by=who.name))


@router.post("/{device}/rotate", response_model=IssuedToken, responses=_ERRORS)
async def rotate(device: Which, parts: Parts, who: Who) -> dict[str, Any]:
    """Give a device a second token; the first works until the rotation is finished."""
    who.must_be_operator("admin")
    return await _issued(parts, await operations.rotate(parts.registry, device, by=who.name))


Change = Callable[..., Awaitable[Device]]


def _changing(change: Change) -> Callable[..., Awaitable[dict[str, Any]]]:
    async def route(device: Which, parts: Parts, who: Who) -> dict[str, Any]:
        who.must_be_operator("admin")
        return await _done(parts, await change(parts.registry, device, by=who.name))

    return route


_CHANGES: Final[tuple[tuple[str, str, str, Change, str], ...]] = (
    ("POST", "/rotate/finish", "finish_rotation", operations.finish_rotation, "End a device's older token."),
    ("POST", "/revoke", "revoke", operations.revoke, "End a device's tokens and certificates; close its connections."),
    ("POST", "/disable", "disable", operations.disable, "Keep a device out, with its tokens and grants."),
    ("POST", "/enable", "enable", operations.enable, "Let a disabled device in again."),
    ("DELETE", "", "delete", operations.delete, "Delete a device; its history stays."),
)
for _method, _path, _name, _change, _text in _CHANGES:
    router.add_api_route(
        f"/{{device}}{_path}",
        _changing(_change),
        methods=[_method],
        name=_name,
        description=_text,
        response_model=DeviceView,
        responses=_ERRORS,
    )


def _rates(given: DeviceLimits) -> dict[str, Rate | None]:
    """Take those limits that are named in a request."""
    rates: dict[str, RateModel | None] = {name: getattr(given, name) for name in given.model_fields_set}
    return {
        name: None if rate is None else Rate(per_second=rate.per_second, burst=rate.burst)
        for name, rate in rates.items()
    }


async def _done(parts: Services, device: Device) -> dict[str, Any]:
    await parts.audit.written()
    return _view(parts, device)


async def _issued(parts: Services, issued: operations.Issued) -> dict[str, Any]:
    assert isinstance(issued.entry, Device)
    return await _done(parts, issued.entry) | {"token": issued.token}


def _view(parts: Services, device: Device) -> dict[str, Any]:
    seen = parts.authority.last_seen("device", device.name)
    return {
        "device": device.name,
        "state": device.state,
        "grants": [str(grant) for grant in device.grants],
        "limits": msgspec.to_builtins(device.limits),
        "tokens": len(device.secrets),
        "note": device.note,
        "changed": rfc3339(device.changed_at),
        "revoked": None if device.revoked_at is None else rfc3339(datetime.fromtimestamp(device.revoked_at, UTC)),
        "connections": parts.connections_of(device.name),
        "last_seen": rfc3339(seen) if seen else None,
    }
