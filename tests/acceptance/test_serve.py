"""Proves the life of `wayside serve`: ready, found by the commands, stopped in order, killed and started again."""

from __future__ import annotations

import asyncio
import signal
import stat
from pathlib import Path

from devices.simulator import Device
from tests.support.command import Serving, serving, start, wayside
from tests.support.mosquitto import free_port


async def test_the_directory_and_what_is_in_it_are_the_owners_alone(gateway: Serving) -> None:
    files = [path for path in gateway.data.rglob("*") if path.suffix != ".yaml"]
    assert {path.name for path in files} >= {"admin.token", "wayside.db", "gateways", "locks"}
    assert [str(path) for path in files if stat.S_IMODE(path.stat().st_mode) & 0o077 and path.name != "workflows"] == []


async def test_a_device_connects_as_soon_as_it_was_added_and_its_signal_moves_the_run(gateway: Serving) -> None:
    run = (await gateway.told("workflow", "run", "front-door"))["run"]
    grant = "signal:front-door/kitchen-verdict"
    added = await gateway.told("device", "add", "camera", "--grant", grant)
    assert list(added) == ["device", "token"]
    async with Device(*gateway.mqtt, "camera", added["token"]) as camera:
        answer = await camera.signal("front-door", "kitchen-verdict", {"verdict": "known"})
    assert (answer.code, answer.ok) == (202, True)
    followed = await gateway.typed("run", "follow", run)
    assert "succeeded" in followed.out
    shown = await gateway.told("run", "show", run)
    identify, alarm = shown["jobs"][0]["steps"]
    assert identify["outputs"]["receipt"] == answer.receipt
    assert (identify["status"], alarm["status"], shown["status"]) == ("succeeded", "skipped", "succeeded")


async def test_a_revoked_devices_connection_is_closed(gateway: Serving) -> None:
    token = (await gateway.told("device", "add", "camera"))["token"]
    async with Device(*gateway.mqtt, "camera", token) as camera:
        await gateway.typed("device", "revoke", "camera")
        answer = await camera.signal("front-door", "kitchen-verdict", {"verdict": "known"})
    assert answer.error == "connection_lost"


async def test_sigterm_ends_what_waits_and_exits_zero_without_leaving_traces(gateway: Serving) -> None:
    run = (await gateway.told("workflow", "run", "front-door"))["run"]
    follower = await start("run", "follow", run, "--data", str(gateway.data))
    assert follower.stdout is not None
    assert b"created" in await follower.stdout.readline()
    assert await gateway.stop() == 0
    assert list((gateway.data / "gateways").iterdir()) == []
    _, err = await asyncio.wait_for(follower.communicate(), 30)
    assert follower.returncode == 3
    assert b"did not answer" in err


async def test_an_interrupt_is_a_stop_too(gateway: Serving) -> None:
    gateway.process.send_signal(signal.SIGINT)
    assert await asyncio.wait_for(gateway.process.wait(), 30) == 0


async def test_a_killed_gateway_is_not_mistaken_for_a_living_one(data: Path) -> None:
    async with serving(data) as gateway:
        run = (await gateway.told("workflow", "run", "front-door"))["run"]
        gateway.process.kill()
        await gateway.process.wait()
    assert list((data / "gateways").iterdir())
    listed = (await wayside("run", "list", "--json", "--data", str(data))).json["runs"]
    assert [it["run"] for it in listed] == [run]
    async with serving(data) as gateway:
        waits = (await gateway.told("waits"))["waits"]
        assert [wait["run"] for wait in waits] == [run]
        answer = await gateway.told("signal", "front-door", "kitchen-verdict", '{"verdict": "known"}')
        assert (answer["state"], answer["run"]) == ("delivered", run)
        assert (await gateway.typed("run", "follow", run)).status == 0


async def test_two_gateways_may_serve_one_directory(gateway: Serving) -> None:
    token = (await gateway.told("device", "add", "camera", "--grant", "signal:front-door"))["token"]
    async with serving(gateway.data) as other:
        assert other.mqtt != gateway.mqtt
        async with Device(*other.mqtt, "camera", token) as camera:
            answer = await camera.signal("front-door", "kitchen-verdict", {"verdict": "known"})
        assert answer.code == 202
        assert len((await other.told("waits"))["pending"]) == 1
    assert (await gateway.told("device", "list"))["devices"][0]["device"] == "camera"


async def test_an_edited_definition_is_taken_up_and_a_broken_edit_is_not(gateway: Serving) -> None:
    file = gateway.data / "workflows" / "front-door.yaml"
    good = file.read_text()

    async def until(check: str, wanted: object) -> None:
        async with asyncio.timeout(20):
            while True:
                shown = await gateway.told("workflow", "show", "front-door")
                if (shown["description"] if check == "description" else bool(shown["problems"])) == wanted:
                    return

    file.write_text(good.replace("Somebody is at the door", "Changed"))
    await until("description", "Changed")
    file.write_text(good.replace("timeout: 600", "timeout: never"))
    await until("problems", True)
    validated = await gateway.typed("workflow", "validate", status=1)
    assert "front-door.yaml:" in validated.out
    assert (await gateway.told("workflow", "show", "front-door"))["description"] == "Changed"
    audited = (await gateway.typed("audit", "--json", "--action", "config.workflow")).lines
    assert [(it["workflow"], it["result"]) for it in audited] == [("front-door", "changed"), ("front-door", "broken")]


async def test_every_problem_of_the_settings_is_named_and_nothing_is_started(tmp_path: Path) -> None:
    (tmp_path / "wayside.toml").write_text('http = "nowhere"\n[engine]\nsweep_interval = -1\n')
    ran = await wayside("serve", "--data", str(tmp_path), "--mqtt", "0.0.0.0:1883", status=2)
    assert "wayside.toml:1: http:" in ran.err
    assert "wayside.toml:3: engine.sweep_interval:" in ran.err
    assert "allow_plaintext" in ran.err
    assert not (tmp_path / "wayside.db").exists()


async def test_a_store_that_was_lost_is_warned_of_by_the_gateway_and_by_a_command(data: Path) -> None:
    await wayside("device", "add", "cam", "--data", str(data))
    (data / "wayside.db").write_bytes(b"")
    listed = await wayside("device", "list", "--data", str(data))
    assert "warning: this data directory was in use, and its store is empty" in listed.err
    (data / "wayside.db").unlink()
    async with serving(data) as gateway:
        await gateway.says("this data directory was in use, and its store is empty")


async def test_a_mistake_in_the_settings_keeps_nobody_from_a_gateway_that_serves_on(gateway: Serving) -> None:
    await gateway.typed("device", "add", "cam")
    for text, told in (('[log]\nlevel = "loud"\n', ":2: log.level:"), ("[log\n", ":1: ")):
        (gateway.data / "wayside.toml").write_text(text)
        revoked = await gateway.run("device", "revoke", "cam")
        assert revoked.out == "cam has no token any more\n"
        assert f"warning: {gateway.data / 'wayside.toml'}{told}" in revoked.err
        assert "serves on with the settings that it has" in revoked.err
    assert await gateway.stop() == 0
    assert "wayside.toml:1: " in (await gateway.typed("device", "list", status=2)).err


async def test_a_port_that_is_taken_is_said_with_what_to_do(gateway: Serving, tmp_path: Path) -> None:
    for door, taken in (("--mqtt", f"127.0.0.1:{gateway.mqtt[1]}"), ("--http", gateway.http)):
        other = "--http" if door == "--mqtt" else "--mqtt"
        arguments = ("serve", "--data", str(tmp_path / "other"), door, taken, other, f"127.0.0.1:{free_port()}")
        ran = await wayside(*arguments, status=2)
        assert f"{door} HOST:PORT" in ran.err
        assert ran.out == ""


async def test_a_second_signal_ends_the_process_at_once(gateway: Serving) -> None:
    # A request whose body does not come keeps the gateway busy for as long as it gives what is in flight.
    host, _, port = gateway.http.rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    token = (gateway.data / "admin.token").read_text().strip()
    head = f"POST /api/v1/devices HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
    writer.write(f"{head}Content-Type: application/json\r\nContent-Length: 10\r\n\r\n{{".encode())
    await writer.drain()
    await gateway.told("device", "list")  # by then the request above is under way
    gateway.process.send_signal(signal.SIGTERM)
    await asyncio.wait_for(gateway.says("stopping"), 20)
    gateway.process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(gateway.process.wait(), 5) == 3
    writer.close()
