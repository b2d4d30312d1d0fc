"""Clients that devices really use, each behind the same few methods."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import aiomqtt
import gmqtt  # type: ignore[import-untyped]
import paho.mqtt.client as paho
from gmqtt.mqtt.constants import MQTTv50, MQTTv311  # type: ignore[import-untyped]
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

PATIENCE_SECONDS = 15.0
KEPT_SECONDS = 600


@dataclass(frozen=True)
class Door:
    """Where a client connects: `transport` is tcp, tls, ws or wss."""

    host: str
    port: int
    transport: str
    version: int
    authority: Path | None = None

    @property
    def web(self) -> bool:
        return self.transport in {"ws", "wss"}

    def tls(self) -> ssl.SSLContext | None:
        return None if self.authority is None else ssl.create_default_context(cafile=str(self.authority))


class RealClient(Protocol):
    """A device `door` with the client id `real` and a persistent session."""

    async def connect(self) -> bool:
        """Connect; say whether the server had the session."""
        ...

    async def subscribe(self, topic_filter: str) -> None: ...

    async def publish(self, topic: str, payload: str, qos: int) -> None:
        """Publish, and return when it is acknowledged as its QoS wants, be it with a refusal."""
        ...

    async def message(self) -> tuple[str, str]: ...

    async def disconnect(self) -> None: ...

    async def closed(self) -> None:
        """Wait until the server has closed the connection."""
        ...


class Paho:
    """paho-mqtt, with its network loop in a thread."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self._messages: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self._client: paho.Client

    async def connect(self) -> bool:
        five = self._door.version == 5
        self._client = client = paho.Client(
            CallbackAPIVersion.VERSION2,
            "real",
            clean_session=None if five else False,
            protocol=MQTTProtocolVersion.MQTTv5 if five else MQTTProtocolVersion.MQTTv311,
            transport="websockets" if self._door.web else "tcp",
            reconnect_on_failure=False,
        )
        client.username_pw_set("door", "token-of-door")
        if (context := self._door.tls()) is not None:
            client.tls_set_context(context)
        client.on_connect = lambda _c, _u, flags, _r, _p: self._tell("connected", flags.session_present)
        client.on_subscribe = lambda *_: self._tell("subscribed", None)
        client.on_publish = lambda *_: self._tell("published", None)
        client.on_disconnect = lambda *_: self._tell("closed", None)
        client.on_message = self._on_message
        members: dict[str, Any] = {}
        if five:
            members["properties"] = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            members["properties"].SessionExpiryInterval = KEPT_SECONDS
            members["clean_start"] = False
        await asyncio.to_thread(client.connect, "localhost", self._door.port, 60, **members)
        client.loop_start()
        return bool(await self._expect("connected"))

    def _on_message(self, _client: paho.Client, _data: object, message: paho.MQTTMessage) -> None:
        self._loop.call_soon_threadsafe(self._messages.put_nowait, (message.topic, message.payload.decode()))

    def _tell(self, event: str, value: object) -> None:
        self._loop.call_soon_threadsafe(self._events.put_nowait, (event, value))

    async def _expect(self, event: str) -> object:
        async with asyncio.timeout(PATIENCE_SECONDS):
            name, value = await self._events.get()
        assert name == event
        return value

    async def subscribe(self, topic_filter: str) -> None:
        self._client.subscribe(topic_filter, 1)
        await self._expect("subscribed")

    async def publish(self, topic: str, payload: str, qos: int) -> None:
        self._client.publish(topic, payload, qos)
        await self._expect("published")

    async def message(self) -> tuple[str, str]:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self._messages.get()

    async def disconnect(self) -> None:
        self._client.disconnect()
        await self.closed()

    async def closed(self) -> None:
        await self._expect("closed")
        await asyncio.to_thread(self._client.loop_stop)


class Aiomqtt:
    """aiomqtt, a new client for each connection."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._client: aiomqtt.Client

    async def connect(self) -> bool:
        five = self._door.version == 5
        members: dict[str, Any] = {"clean_session": False}
        if five:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = KEPT_SECONDS
            members = {"clean_start": False, "properties": properties}
        self._client = aiomqtt.Client(
            "localhost",
            self._door.port,
            username="door",
            password="token-of-door",
            identifier="real",
            protocol=aiomqtt.ProtocolVersion.V5 if five else aiomqtt.ProtocolVersion.V311,
            transport="websockets" if self._door.web else "tcp",
            tls_context=self._door.tls(),
            **members,
        )
        await self._client.__aenter__()
        return False  # it does not tell

    async def subscribe(self, topic_filter: str) -> None:
        (code,) = await self._client.subscribe(topic_filter, 1)
        assert (code.value if isinstance(code, ReasonCode) else code) == 1

    async def publish(self, topic: str, payload: str, qos: int) -> None:
        await self._client.publish(topic, payload, qos, timeout=PATIENCE_SECONDS)

    async def message(self) -> tuple[str, str]:
        async with asyncio.timeout(PATIENCE_SECONDS):
            message = await anext(aiter(self._client.messages))
        assert isinstance(message.payload, bytes)
        return str(message.topic), message.payload.decode()

    async def disconnect(self) -> None:
        await self._client.__aexit__(None, None, None)

    async def closed(self) -> None:
        with contextlib.suppress(aiomqtt.MqttError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                await anext(aiter(self._client.messages))
            raise AssertionError("a message came instead")
        with contextlib.suppress(aiomqtt.MqttError):
            await self._client.__aexit__(None, None, None)


class Gmqtt:
    """gmqtt, over TCP and TLS."""

    def __init__(self, door: Door) -> None:
        logging.getLogger("gmqtt").setLevel(logging.CRITICAL)
        self._door = door
        self._messages: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self._events: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self._client: Any

    async def connect(self) -> bool:
        client = gmqtt.Client("real", clean_session=False, session_expiry_interval=KEPT_SECONDS)
        if self._door.version == 4:
            client = gmqtt.Client("real", clean_session=False)
        self._client = client
        client.set_auth_credentials("door", "token-of-door")
        client.set_config({"reconnect_retries": 0})
        client.on_message = self._on_message
        client.on_connect = lambda _c, flags, _r, _p: self._events.put_nowait(("connected", flags))
        client.on_subscribe = lambda *_: self._events.put_nowait(("subscribed", None))
        client.on_disconnect = lambda *_: self._events.put_nowait(("closed", None))
        version = MQTTv50 if self._door.version == 5 else MQTTv311
        await client.connect("localhost", self._door.port, ssl=self._door.tls() or False, version=version)
        return bool(await self._expect("connected"))

    def _on_message(self, _client: object, topic: str, payload: bytes, _qos: int, _properties: object) -> int:
        self._messages.put_nowait((topic, payload.decode()))
        return 0

    async def _expect(self, event: str) -> object:
        async with asyncio.timeout(PATIENCE_SECONDS):
            name, value = await self._events.get()
        assert name == event
        return value

    async def subscribe(self, topic_filter: str) -> None:
        self._client.subscribe(topic_filter, qos=1)
        await self._expect("subscribed")

    async def publish(self, topic: str, payload: str, qos: int) -> None:
        self._client.publish(topic, payload, qos=qos)

    async def message(self) -> tuple[str, str]:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self._messages.get()

    async def disconnect(self) -> None:
        # It does not wait for the last PUBCOMP, and TLS complains when that meets its goodbye.
        with contextlib.suppress(ssl.SSLError):
            await self._client.disconnect()
        await self.closed()

    async def closed(self) -> None:
        await self._expect("closed")


class MqttJs:
    """MQTT.js in a Node process."""

    SCRIPT = Path(__file__).with_name("mqtt_js.mjs")

    def __init__(self, door: Door) -> None:
        self._door = door
        self._process: asyncio.subprocess.Process
        self._messages: list[tuple[str, str]] = []

    @staticmethod
    def directory() -> Path | None:
        """Where `npm install mqtt` was run: WAYSIDE_NODE_MODULES, or `.cache/node` in the project."""
        named = os.environ.get("WAYSIDE_NODE_MODULES")
        place = Path(named) if named else Path(__file__).parents[3] / ".cache" / "node"
        found = shutil.which("node") and (place / "node_modules" / "mqtt").is_dir()
        return place if found else None

    async def connect(self) -> bool:
        environment = dict(os.environ)
        if self._door.authority is not None:
            environment["NODE_EXTRA_CA_CERTS"] = str(self._door.authority)
        self._process = await asyncio.create_subprocess_exec(
            "node",
            str(self.SCRIPT),
            str(self.directory()),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment,
        )
        scheme = {"tcp": "mqtt", "tls": "mqtts", "ws": "ws", "wss": "wss"}[self._door.transport]
        options: dict[str, Any] = {
            "clientId": "real",
            "username": "door",
            "password": "token-of-door",
            "clean": False,
            "protocolVersion": self._door.version,
        }
        if self._door.version == 5:
            options["properties"] = {"sessionExpiryInterval": KEPT_SECONDS}
        path = "/mqtt" if self._door.web else ""
        self._say(command="connect", url=f"{scheme}://localhost:{self._door.port}{path}", options=options)
        return bool((await self._expect("connected"))["present"])

    def _say(self, **command: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")

    async def _next(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            event: dict[str, Any] = json.loads(await self._process.stdout.readline())
        return event

    async def _expect(self, name: str) -> dict[str, Any]:
        while True:
            event = await self._next()
            if event["event"] == "message":
                self._messages.append((event["topic"], event["payload"]))
            elif event["event"] == name:
                return event
            else:
                assert event["event"] in {"error", "closed"}, event

    async def subscribe(self, topic_filter: str) -> None:
        self._say(command="subscribe", filter=topic_filter)
        assert (await self._expect("subscribed"))["ok"]

    async def publish(self, topic: str, payload: str, qos: int) -> None:
        self._say(command="publish", topic=topic, payload=payload, qos=qos)
        await self._expect("published")

    async def message(self) -> tuple[str, str]:
        while not self._messages:
            event = await self._next()
            assert event["event"] == "message", event
            self._messages.append((event["topic"], event["payload"]))
        return self._messages.pop(0)

    async def disconnect(self) -> None:
        self._say(command="disconnect")
        await self._expect("ended")
        await self._leave()

    async def closed(self) -> None:
        await self._expect("closed")
        await self._leave()

    async def _leave(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()


CLIENTS: dict[str, Callable[[Door], RealClient]] = {
    "paho": Paho,
    "aiomqtt": Aiomqtt,
    "gmqtt": Gmqtt,
    "MQTT.js": MqttJs,
}
