"""`/devices`: who may connect and what each may do; tokens are shown once, in the answer to the form that made them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.responses import Response

from devices import operations
from devices.model import Device, Rate
from engine.errors import NotFound
from gateway.limits import Counted, Rates
from gateway.pasting import how_to_connect
from gateway.tokens import token_uses
from gateway.web.overview import device_row
from gateway.web.page import Visit, get, post
from gateway.web.render import moment, span

COUNTED: Final[tuple[Counted, ...]] = ("signals", "runs", "reads", "connects")
Change = Callable[..., Awaitable[Device]]


async def devices(visit: Visit) -> Response:
    """List the devices."""
    visit.must("read")
    await visit.parts.registry.refresh()
    rows = [device_row(visit.parts, device) for device in visit.parts.registry.devices()]
    catalog = visit.parts.engine.catalog
    keys = [f"signal:{name}/{key}" for name in catalog.names() if (it := catalog.get(name)) for key in it.keys()]  # noqa: SIM118
    return await visit.page("devices.html", devices=rows, suggestions=keys)


async def device(visit: Visit) -> Response:
    """Show one device."""
    visit.must("read")
    await visit.parts.registry.refresh()
    found = _found(visit)
    secrets = [
        {
            "made": moment(it.made),
            "name": "Older" if it.older else "Newer" if len(found.secrets) > 1 else "Token",
            "used": moment(it.used_since or it.first_used),
            "words": (
                "used since the newer was made, first " if it.used_since else "first used ",
                "not used since the newer was made" if it.older else "not used yet",
            ),
        }
        for it in await token_uses(visit.parts.registry, found)
    ]
    return await visit.page(
        "device.html",
        device=device_row(visit.parts, found),
        secrets=secrets,
        limits=_limits(visit, found),
        connections=_connections(visit, found.name),
        instance=visit.parts.engine.instance,
        issued=None,
    )


def _found(visit: Visit) -> Device:
    name = visit.request.path_params["device"]
    found = visit.parts.registry.device(name)
    if found is None or found.state == "deleted":
        raise NotFound(f"there is no device {name}", hint="the list of devices names them")
    return found


def _limits(visit: Visit, found: Device) -> list[dict[str, Any]]:
    table = visit.parts.settings.limits
    rates = Rates(
        signals=Rate(per_second=table.signals_per_second, burst=table.signals_burst),
        runs=Rate(per_second=table.runs_per_second, burst=table.runs_burst),
        reads=Rate(per_second=table.reads_per_second, burst=table.reads_burst),
        connects=Rate(per_second=table.connects_per_second, burst=table.connects_burst),
    )
    shown = []
    for counted in COUNTED:
        rate = rates.of(counted, found.limits)
        own = getattr(found.limits, counted) is not None
        shown.append({"name": counted, "per_second": f"{rate.per_second:g}", "burst": rate.burst, "own": own})
    return shown


def _connections(visit: Visit, name: str) -> list[dict[str, Any]]:
    now = visit.parts.source.monotonic()
    return [
        {
            "client": info.client_id,
            "address": info.address,
            "transport": info.transport,
            "version": "5" if info.version == 5 else "3.1.1",
            "since": span(max(0.0, now - info.connected_at)),
            "subscriptions": info.subscriptions,
            "stalled": info.stalled,
        }
        for info in visit.parts.connected()
        if info.device == name
    ]


# -- what is done to a device --------------------------------------------------------------------------------------


async def add(visit: Visit) -> Response:
    """Add a device, and show its token."""
    visit.must("admin")
    form = visit.form
    issued = await operations.add(
        visit.parts.registry,
        form.get("name", "").strip(),
        by=visit.by,
        grants=form.get("grants", "").split(),
        note=form.get("note", "").strip(),
    )
    return await _show(visit, issued)


async def rotate(visit: Visit) -> Response:
    """Give a device a second token, and show it."""
    visit.must("admin")
    return await _show(visit, await operations.rotate(visit.parts.registry, _name(visit), by=visit.by))


async def _show(visit: Visit, issued: operations.Issued) -> Response:
    assert isinstance(issued.entry, Device)
    await visit.parts.audit.written()
    lines = how_to_connect(
        issued.entry.name, issued.token, [str(grant) for grant in issued.entry.grants], visit.parts.doors
    )
    return await visit.page(
        "issued.html", device=device_row(visit.parts, issued.entry), token=issued.token, lines=lines
    )


def _name(visit: Visit) -> str:
    return str(visit.request.path_params["device"])


def _change(change: Change, done: str) -> Callable[[Visit], Awaitable[Response]]:
    async def endpoint(visit: Visit) -> Response:
        visit.must("admin")
        await change(visit.parts.registry, _name(visit), by=visit.by)
        await visit.parts.audit.written()
        return visit.back(f"/devices/{_name(visit)}", done)

    return endpoint


async def grant(visit: Visit) -> Response:
    """Give a device one grant more."""
    visit.must("admin")
    text = visit.form.get("grant", "").strip()
    await operations.grant(visit.parts.registry, _name(visit), text, by=visit.by)
    return visit.back(f"/devices/{_name(visit)}", f"Granted {text}.")


async def ungrant(visit: Visit) -> Response:
    """Take a grant from a device."""
    visit.must("admin")
    text = visit.form.get("grant", "").strip()
    await operations.ungrant(visit.parts.registry, _name(visit), text, by=visit.by)
    return visit.back(f"/devices/{_name(visit)}", f"No longer granted {text}.")


async def delete(visit: Visit) -> Response:
    """Delete a device."""
    visit.must("admin")
    await operations.delete(visit.parts.registry, _name(visit), by=visit.by)
    return visit.back("/devices", f"{_name(visit)} is deleted. Its history stays.")


ROUTES: Final = [
    get("/devices", devices),
    post("/devices", add),
    get("/devices/{device}", device),
    post("/devices/{device}/grant", grant),
    post("/devices/{device}/ungrant", ungrant),
    post("/devices/{device}/rotate", rotate),
    post("/devices/{device}/finish", _change(operations.finish_rotation, "The older token has ended.")),
    post("/devices/{device}/revoke", _change(operations.revoke, "Its tokens and certificates have ended.")),
    post("/devices/{device}/disable", _change(operations.disable, "Disabled: it is kept out until it is enabled.")),
    post("/devices/{device}/enable", _change(operations.enable, "Enabled.")),
    post("/devices/{device}/delete", delete),
]
