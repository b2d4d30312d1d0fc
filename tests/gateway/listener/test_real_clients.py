"""Proves that clients which devices really use get along with the listener, in both versions and over each transport.

Each connects, subscribes to its replies, signals at every QoS, is told of a payload that is too large and does not send
it again, comes back to its session, and is revoked; in MQTT 3.1.1 and 5 each.

| Client | TCP, TLS | WebSocket, also over TLS | What it cannot |
|---|---|---|---|
| paho | yes | yes | |
| aiomqtt | yes | yes | say whether the session was present |
| MQTT.js | yes | yes | |
| gmqtt | yes | no | WebSocket |
| mosquitto_pub, mosquitto_sub | yes | no | WebSocket, before their version 2.1 |
| mosquitto_rr | TCP, MQTT 5 | no | a response topic in MQTT 3.1.1 |
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
TOO_LARGE = ("replies/signals/front-door/verdict/rejected", '{"ok":false,"code":413}')


@dataclass
class Place:
    served: Served
    door: Door


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(params=["tcp", "tls", "ws", "wss"])
async def place(
    request: pytest.FixtureRequest, serve: Serve, authority: trustme.CA, version: int, tmp_path: Path
) -> Place:
    transport = str(request.param)
    served = await serve()
    host, port = served.host, served.port
    file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(file)
    context = None
    if transport in {"tls", "wss"}:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost").configure_cert(context)
    if transport == "tls":
        host, port = await served.listener.start_tcp("127.0.0.1", 0, tls=context)
    if transport in {"ws", "wss"}:
        host, port = await served.listener.start_websocket("127.0.0.1", 0, tls=context)
    return Place(served, Door(host, port, transport, version, file if context is not None else None))


@pytest.mark.parametrize("name", CLIENTS)
async def test_a_real_client_gets_along(place: Place, name: str) -> None:
    if name == "gmqtt" and place.door.web:
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
    await client.publish(TOPIC, "x" * 16_385, 1)
    assert await client.message() == TOO_LARGE
    await client.disconnect()
    await place.served.application.until(("disconnected", "door", "real", "disconnected"))

    again = CLIENTS[name](place.door)
    present = await again.connect()
    assert present or name == "aiomqtt"
    await again.publish(TOPIC, '{"n":3}', 1)
    assert await again.message() == REPLY  # its subscription was kept
    sizes = [len(message.payload) for _, message in place.served.application.published]
    assert sizes == [7, 7, 7, 16_385, 7]  # what was refused is not sent again

    assert place.served.listener.close_device("door") == 1
    await again.closed()
    assert place.served.listener.sessions() == 0


@pytest.mark.skipif(shutil.which("mosquitto_pub") is None, reason="mosquitto_pub is not installed")
async def test_mosquitto_pub_and_sub_get_along(place: Place) -> None:
    door, application, listener = place.door, place.served.application, place.served.listener
    if door.web:
        pytest.skip("mosquitto_pub has no WebSocket")
    common = ["-h", "localhost", "-p", str(door.port), "-u", "door", "-P", "token-of-door"]
    common += ["-V", "mqttv5" if door.version == 5 else "mqttv311"]
    if door.authority is not None:
        common += ["--cafile", str(door.authority)]
    kept = ["-c", "-i", "real", "-x", "600"] if door.version == 5 else ["-c", "-i", "real"]
    listen = [*common, *kept, "-q", "1", "-v", "-t", "replies/#", "-t", "news/#"]
    listening = await _run("mosquitto_sub", *listen, "-C", "4")
    await application.until(("connected", "door", "real"))
    await _until_subscribed(place.served)
    for qos in ("0", "1", "2"):
        sending = await _run("mosquitto_pub", *common, "-t", TOPIC, "-q", qos, "-m", f'{{"n":{qos}}}')
        assert await sending.wait() == 0
    sending = await _run("mosquitto_pub", *common, "-t", TOPIC, "-q", "1", "-m", "x" * 16_385)
    assert await sending.wait() == 0
    heard, _ = await asyncio.wait_for(listening.communicate(), 15)
    assert heard.decode().splitlines() == [" ".join(REPLY)] * 3 + [" ".join(TOO_LARGE)]
    assert [len(message.payload) for _, message in application.published] == [7, 7, 7, 16_385]
    wrong = await _run("mosquitto_pub", *common, "-P", "wrong", "-t", TOPIC, "-m", "{}")
    assert await wrong.wait() != 0

    # It comes back to its session: what was sent meanwhile is there.
    await application.until(("disconnected", "door", "real", "disconnected"))
    assert await listener.deliver("news/today", b"rain") == 0
    back = await _run("mosquitto_sub", *listen)
    assert back.stdout
    assert await asyncio.wait_for(back.stdout.readline(), 15) == b"news/today rain\n"

    # And it is revoked: it ends, as told (MQTT 5) or because it is refused when it tries again by itself (3.1.1).
    del application.devices["door"]
    assert listener.close_device("door") == 1
    await asyncio.wait_for(back.communicate(), 15)
    assert listener.sessions() == 0
    sending = await _run("mosquitto_pub", *common, "-t", TOPIC, "-q", "1", "-m", "{}")
    assert await sending.wait() != 0


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
