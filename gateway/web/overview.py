"""`/`: what waits, what is held, what failed and what is offline."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from devices.model import Device
from engine.errors import NotFound
from gateway.services import Services
from gateway.web.page import Visit, get
from gateway.web.render import moment

RUNS_LOOKED_AT: Final = 50
SHOWN: Final = 8


async def overview(visit: Visit) -> Response:
    """Show how things stand."""
    if not visit.may("read"):
        return await visit.page("overview.html", found=None)
    parts = visit.parts
    found = await parts.engine.waits()
    runs, _ = await parts.engine.runs(limit=RUNS_LOOKED_AT)
    devices = [device_row(parts, device) for device in parts.registry.devices()]
    shown = {
        "waits": sorted(found["waits"], key=lambda wait: str(wait["deadline"])),
        "damaged": found["damaged"],
        "pending": sorted(found["pending"], key=lambda held: str(held["until"])),
        "failed": [await _why(parts, run) for run in [run for run in runs if run["status"] == "failed"][:SHOWN]],
        "failures": sum(run["status"] == "failed" for run in runs),
        "looked_at": len(runs),
        "runs": runs[:SHOWN],
        "devices": devices,
        "offline": [device for device in devices if device["state"] == "active" and not device["connections"]],
        "workflows": parts.engine.catalog.names(),
        "directory": str(parts.engine.catalog.directory),
        "broken": {file: problems for file, problems in parts.engine.catalog.problems().items() if problems},
    }
    return await visit.page("overview.html", found=shown, most=SHOWN)


async def _why(parts: Services, run: dict[str, Any]) -> dict[str, Any]:
    """Name the step that failed a run, and its error's code."""
    try:
        shown = await parts.engine.run(run["run"])
    except NotFound:
        return run | {"step": "", "code": ""}
    failed = [step for job in shown["jobs"] for step in job["steps"] if step["error"]]
    last = max(failed, key=lambda step: str(step["ended"]), default=None)
    return run | {"step": last["name"] if last else "", "code": last["error"]["code"] if last else ""}


def device_row(parts: Services, device: Device) -> dict[str, Any]:
    """Show one device in a line: what this instance knows of it."""
    connections = parts.connections_of(device.name)
    return {
        "name": device.name,
        "state": device.state,
        "presence": "online" if connections else "offline",
        "connections": connections,
        "seen": moment(parts.authority.last_seen("device", device.name)),
        "grants": [str(grant) for grant in device.grants],
        "tokens": len(device.secrets),
        "note": device.note,
        "changed": moment(device.changed_at),
    }


ROUTES: Final = [get("/", overview)]
