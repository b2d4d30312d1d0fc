"""Proves that clients which devices really use get along with the listener, in both versions and over each transport.

Each connects, subscribes to its replies, signals at every QoS, comes back to its session, and is revoked.
"""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from tests.gateway.listener.conftest import Served
from tests.gateway.listener.real_clients import CLIENTS, Door, MqttJs

Serve = Callable[..., Awaitable[Served]]
TOPIC = "signals/front-door/verdict"
REPLY = ("replies/signals/front-door/verdict/accepted", '{"ok":true}')


@dataclass
class Place:
    served: Served
    door: Door


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(params=["tcp", "tls", "ws"])
async def place(
    request: pytest.FixtureRequest, serve: Serve, authority: trustme.CA, version: int, tmp_path: Path
) -> Place:
    transport = str(request.param)
    served = await serve()
    host, port = served.host, served.port
    file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(file)
    if transport == "tls":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost").configure_cert(context)
        host, port = await served.listener.start_tcp("127.0.0.1", 0, tls=context)
    if transport == "ws":
        host, port = await served.listener.start_websocket("127.0.0.1", 0)
    return Place(served, Door(host, port, transport, version, file if transport == "tls" else None))


@pytest.mark.parametrize("name", CLIENTS)
async def test_a_real_client_gets_along(place: Place, name: str) -> None:
    if name == "gmqtt" and place.door.transport == "ws":
        pytest.skip("gmqtt has no WebSocket")
    if name == "MQTT.js" and MqttJs.directory() is None:
        pytest.skip("MQTT.js is not installed (npm install mqtt)")
    client = CLIENTS[name](place.door)
    assert not await client.connect()
    await client.subscribe("replies/#")
    for qos in (0, 1, 2):
        await client.publish(TOPIC, f'{{"n":{qos}}}', qos)
        assert await client.message() == REPLY
    published = [(message.payload, message.qos) for _, message in place.served.application.published]
    assert published == [(b'{"n":0}', 0), (b'{"n":1}', 1), (b'{"n":2}', 2)]
    await client.disconnect()
    await place.served.application.until(("disconnected", "door", "real", "disconnected"))

    again = CLIENTS[name](place.door)
    present = await again.connect()
    assert present or name == "aiomqtt"
    await again.publish(TOPIC, '{"n":3}', 1)
    assert await again.message() == REPLY  # its subscription was kept

    assert place.served.listener.close_device("door") == 1
    await again.closed()
    assert place.served.listener.sessions() == 0


@pytest.mark.skipif(shutil.which("mosquitto_pub") is None, reason="mosquitto_pub is not installed")
async def test_mosquitto_pub_and_sub_get_along(place: Place) -> None:
    door = place.door
    if door.transport == "ws":
        pytest.skip("mosquitto_pub has no WebSocket")
    common = ["-h", "localhost", "-p", str(door.port), "-u", "door", "-P", "token-of-door"]
    common += ["-V", "mqttv5" if door.version == 5 else "mqttv311"]
    if door.authority is not None:
        common += ["--cafile", str(door.authority)]
    kept = ["-c", "-i", "real", "-x", "600"] if door.version == 5 else ["-c", "-i", "real"]
    listening = await _run("mosquitto_sub", *common, *kept, "-q", "1", "-v", "-C", "3", "-t", "replies/#")
    await place.served.application.until(("connected", "door", "real"))
    await _until_subscribed(place.served)
    for qos in ("0", "1", "2"):
        sending = await _run("mosquitto_pub", *common, "-t", TOPIC, "-q", qos, "-m", f'{{"n":{qos}}}')
        assert await sending.wait() == 0
    heard, _ = await asyncio.wait_for(listening.communicate(), 15)
    assert heard.decode().splitlines() == [" ".join(REPLY)] * 3
    assert [message.payload for _, message in place.served.application.published] == [
        b'{"n":0}',
        b'{"n":1}',
        b'{"n":2}',
    ]
    wrong = await _run("mosquitto_pub", *common, "-P", "wrong", "-t", TOPIC, "-m", "{}")
    assert await wrong.wait() != 0
    back = await _run("mosquitto_sub", *common, *kept, "-q", "1", "-v", "-E", "-t", "replies/#")
    assert await back.wait() == 0


@pytest.mark.skipif(shutil.which("mosquitto_rr") is None, reason="mosquitto_rr is not installed")
async def test_mosquitto_rr_gets_the_answer_on_its_response_topic(serve: Serve) -> None:
    served = await serve()
    asking = await _run(
        *("mosquitto_rr", "-h", "localhost", "-p", str(served.port), "-u", "door", "-P", "token-of-door"),
        *("-V", "mqttv5", "-q", "1", "-t", TOPIC, "-e", "replies/mine", "-m", '{"open":true}', "-W", "10"),
    )
    heard, _ = await asyncio.wait_for(asking.communicate(), 15)
    assert heard.decode().strip() == REPLY[1]


async def _run(*command: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )


async def _until_subscribed(served: Served) -> None:
    async with asyncio.timeout(15):
        # Another process's SUBSCRIBE gives no event to wait for.
        while not any(one.subscriptions for one in served.listener.connections()):
            await asyncio.sleep(0.01)
