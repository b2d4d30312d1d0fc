"""What `wayside doctor` sees through the API: the gateway and its clock, workflows, devices, operators, waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from engine.clock import wall_clock
from engine.limits import STALE_AFTER_SECONDS
from gateway.cli.client import Client
from gateway.cli.doubts import doubts, keys_of
from gateway.cli.findings import Finding
from gateway.cli.refused import Refused
from gateway.data import is_directory_s_own

CLOCK_SECONDS: Final = 5.0
OVERDUE: Final = timedelta(seconds=60)
FORGOTTEN: Final = timedelta(days=30)
MAX_PROBLEMS: Final = 10


async def checks(client: Client, *, bridge: bool) -> list[Finding]:
    """Ask the gateway; with `bridge` also for what the bridge's short form of topics needs."""
    doors = await client.get("/doors")
    now = datetime.fromisoformat(doors["time"])
    found = [_local()] if client.local else await _serving(client, doors)
    found += [_clock(now), *_instances(doors, now)]
    workflows = await client.listed("/workflows", "workflows")
    found += _workflows(workflows)
    devices = (await client.listed("/devices", "devices"))["devices"]
    found += _devices(devices, workflows)
    found += await _operators(client, now)
    found += _waits((await client.listed("/waits", "waits"))["waits"], now)
    if bridge:
        found += await _short_form(client)
    return found


def _local() -> Finding:
    return Finding("gateway", "ok", "none serves the directory; the store was opened")


async def _serving(client: Client, doors: Mapping[str, Any]) -> list[Finding]:
    where = ", ".join(f"{name} on {address}" for name, address in sorted(doors["doors"].items()))
    found = [Finding("gateway", "ok", f"{doors['instance']} serves: {where}")]
    answer = await client.request("GET", "/readyz")
    missing = answer.json().get("missing", [])
    if missing:
        repair = "its log says why; a full disk, a damaged file and a broker that is away are the usual causes"
        return [*found, Finding("gateway", "failed", f"it is not ready: {', '.join(missing)}", repair)]
    return [*found, Finding("gateway", "ok", "its doors, its store and its sweep are at work")]


def _clock(now: datetime) -> Finding:
    """Compare the store's clock, which no step of the host's moves, with this host's."""
    apart = abs((wall_clock() - now).total_seconds())
    if apart < CLOCK_SECONDS:
        return Finding("clock", "ok", "the store's and this host's agree")
    repair = "nothing depends on it but the times shown; on the gateway's host they agree again after the next boot"
    return Finding("clock", "warning", f"the store's clock is {apart:.0f} s away from this host's", repair)


def _instances(doors: Mapping[str, Any], now: datetime) -> Iterator[Finding]:
    for other in doors["instances"]:
        silent = (now - datetime.fromisoformat(other["last_beat"])).total_seconds()
        if other["instance"] != doors["instance"] and silent > STALE_AFTER_SECONDS:
            yield Finding(
                "instances",
                "warning",
                f"{other['instance']} was last heard of {silent:.0f} s ago: it was killed, or its host is away",
                "nothing is lost: a serving gateway goes on with its runs, and then clears this away",
            )


def _workflows(document: Mapping[str, Any]) -> Iterator[Finding]:
    broken = {w["file"]: w["problems"] for w in document["workflows"] if w["problems"]} | document["problems"]
    for file, problems in broken.items():
        for problem in problems[:MAX_PROBLEMS]:
            text = f"{file}:{problem['line']}: {problem['message']}"
            yield Finding("workflows", "warning", text, problem["hint"] or "`wayside workflow validate` names them all")
    names = [w["name"] for w in document["workflows"]]
    yield Finding("workflows", "ok", f"in force: {', '.join(names) or 'none'}")


def _devices(devices: Sequence[Mapping[str, Any]], workflows: Mapping[str, Any]) -> Iterator[Finding]:
    keys = keys_of(workflows)
    doubtful = False
    for device in devices:
        name, told = device["device"], list(doubts(device["grants"], keys))
        for doubt in told:
            repair = f"mend the name: `wayside device ungrant {name} …` and `grant`, or add the workflow"
            yield Finding("devices", "warning", f"{name}: {doubt}", repair)
        if not device["grants"]:
            repair = f"`wayside device grant {name} signal:WORKFLOW/KEY`"
            yield Finding("devices", "warning", f"{name} has no grant: all that it sends is refused", repair)
        if not device["tokens"]:
            repair = (
                f"`wayside device rotate {name}` gives it one; `wayside device delete {name}`, if it is gone for good"
            )
            yield Finding("devices", "warning", f"{name} is revoked: no token and no certificate lets it in", repair)
        doubtful = doubtful or bool(told) or not device["grants"] or not device["tokens"]
    if not doubtful:
        yield Finding("devices", "ok", f"{len(devices)}, each with a token and with grants that name what there is")


async def _operators(client: Client, now: datetime) -> list[Finding]:
    try:
        operators = (await client.listed("/operators", "operators"))["operators"]
    except Refused:
        return []  # this token may not see them
    found = [
        Finding(
            "operators",
            "warning",
            f"{it['operator']} has {it['tokens']} tokens: a rotation that was not finished",
            f"`wayside operator rotate {it['operator']} --finish`, once the newer one is in use",
        )
        for it in operators
        if it["tokens"] > 1
    ]
    found += [
        Finding(
            "operators",
            "warning",
            f"{it['operator']}, the administrator of a data directory, was not seen for {FORGOTTEN.days} days",
            f"if that directory is gone, `wayside operator revoke {it['operator']}`; if not, it makes itself another",
        )
        for it in operators
        if is_directory_s_own(it["operator"])
        and now - datetime.fromisoformat(max(it["changed"], it["last_seen"] or "")) > FORGOTTEN
    ]
    return found or [
        Finding("operators", "ok", ", ".join(f"{it['operator']} ({'+'.join(it['rights'])})" for it in operators))
    ]


def _waits(waits: Sequence[Mapping[str, Any]], now: datetime) -> Iterator[Finding]:
    late = [wait for wait in waits if now - datetime.fromisoformat(wait["deadline"]) > OVERDUE]
    if late:
        text = (
            f"{len(late)} waits are past their deadline and not timed out, {late[0]['workflow']}/{late[0]['key']} first"
        )
        repair = "no gateway sweeps this store, or its sweep is late: start one, and look at its log"
        yield Finding("waits", "warning", text, repair)
    else:
        yield Finding("waits", "ok", f"{len(waits)} open, none past its deadline")


async def _short_form(client: Client) -> list[Finding]:
    from gateway.cli.broker_check import double_grants

    return [
        Finding(
            "bridge",
            "warning",
            f"more than one device is granted {key}: the short form, signals/…, is refused for it",
            "have them publish on d/<device>/signals/…, or take one grant away",
        )
        for key in await double_grants(client)
    ]
