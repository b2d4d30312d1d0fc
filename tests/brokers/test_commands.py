"""Proves that a command which a broker ends the connection over costs the devices behind it next to nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.brokers.test_takeover import exchange
from tests.support.behind import Behind, behind, workflow
from tests.support.brokers import Broker, Kind

SMALL = "max_packet_size 3000\nallow_anonymous true"


def poisoned(kind: Kind) -> str:
    """Write a workflow whose command the broker does not take: NATS no space, Mosquitto here not its size."""
    text = workflow("attic", early_seconds=60)
    if kind == "nats":
        return text.replace('"sirens/attic"', '"sirens/the attic"')
    return text.replace("payload: { n:", f"payload: {{ filler: {'x' * 4_000}, n:")


async def signalled(bridged: Behind, name: str, signal: str) -> str:
    """Start a run of a workflow and have a device signal it; give the run."""
    async with bridged.api() as api:
        run = (await api.post(f"/workflows/{name}/runs", json={})).raise_for_status().json()["run"]
    await bridged.status(run, "suspended")
    async with bridged.device("camera") as camera:
        _, reply = await camera.ask(f"d/camera/signals/{name}/verdict/{signal}", {"n": 1})
        assert reply["ok"], reply
    return str(run)


@pytest.mark.parametrize(
    ("kind", "query", "reasons", "losses"),
    [
        # CONNACK of MQTT 5 says how large a packet may be; nothing tells of it over 3.1.1, nor of what NATS minds.
        ("mosquitto", "", ["too_large"] * 2, 0),
        ("mosquitto", "?protocol=3.1.1", ["connection_lost"], 4),
        ("nats", "", ["connection_lost", "space_in_topic"], 4),
    ],
)
async def test_a_command_that_the_broker_does_not_take_is_skipped_by_name_and_signals_and_commands_go_on(
    kind: Kind, query: str, reasons: list[str], losses: int, tmp_path: Path
) -> None:
    broker = Broker(kind, tmp_path / "broker", settings=SMALL if kind == "mosquitto" else "")
    async with behind(tmp_path, broker, start=False, WAYSIDE_BRIDGE__URL=broker.url + query) as bridged:
        (tmp_path / "data" / "workflows" / "attic.yaml").write_text(poisoned(kind))
        await bridged.start()
        await bridged.add("camera", "signal:attic/verdict", "signal:door/verdict")
        log = bridged.gateway.log
        assert log is not None
        async with bridged.listener("sirens/door") as siren:
            runs = []
            for number, reason in enumerate(reasons):
                runs.append(await signalled(bridged, "attic", f"a{number}"))
                await bridged.audited(action="command.skipped", run=runs[-1], step="tell", reason=reason)
            await signalled(bridged, "door", "d1")
            assert await siren.next() == ("sirens/door", {"n": 1})
        assert log.read_text().count("bridge is not connected") == losses
        assert log.read_text().count("a command is not sent") == len(reasons)
        assert all(run in log.read_text() for run in runs)
        assert "xxx" not in log.read_text()


async def test_while_a_command_is_under_suspicion_the_bridge_is_connected_and_nothing_is_refused_as_stale(
    tmp_path: Path,
) -> None:
    async with behind(tmp_path, Broker("nats", tmp_path / "broker"), start=False) as bridged:
        (tmp_path / "data" / "workflows" / "attic.yaml").write_text(poisoned("nats"))
        bridged.settings["WAYSIDE_BRIDGE__MAX_BACKLOG"] = "10"
        await bridged.start()
        await bridged.add("camera", "signal:attic/verdict", "signal:porch/verdict", "run:porch")
        await signalled(bridged, "attic", "a1")
        async with bridged.device("camera") as camera:
            for number in range(6):
                # NATS gives what was on its way on a lost connection again after 30 s: sooner comes who repeats it.
                reply = await exchange(camera, f"d/camera/signals/porch/verdict/s{number}", {"n": 1})
                assert reply.get("error") in {None, "early_signal_held"}
        await bridged.audited(action="command.skipped")
        # Once at the start, and once on each connection that the command was tried on.
        await bridged.logged("bridge connected", 1 + 4)
