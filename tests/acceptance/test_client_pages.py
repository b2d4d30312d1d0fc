"""Proves that the pages in devices/clients tell the truth: their programs and packets get the replies they show."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
import shutil
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from tests.acceptance.conftest import DOOR
from tests.support.client_pages import PAGES, SECONDS, Place, Wire, blocks, masked, promised
from tests.support.plain_mqtt import packet, text
from tests.support.serving import ROOT, Gateway

KEY = "signals/front-door/kitchen-verdict"
CONNACK = b"\x20\x02\x00\x00"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    data = tmp_path_factory.mktemp("pages") / "data"
    (data / "workflows").mkdir(parents=True)
    data.chmod(0o700)
    (data / "workflows" / "front-door.yaml").write_text(DOOR)
    (data / "wayside.toml").write_text(blocks("tasmota", "toml")[0])
    served = Gateway(data)
    await served.start()
    try:
        yield served
    finally:
        assert await served.stop() == 0


@pytest.fixture(scope="module")
def place(gateway: Gateway) -> Place:
    return Place(gateway)


async def ran(*command: str, token: str) -> str:
    """Run a program to its end, and give what it printed."""
    program = await asyncio.create_subprocess_exec(
        *command, stdout=PIPE, stderr=STDOUT, env=os.environ | {"WAYSIDE_TOKEN": token, "PYTHONUNBUFFERED": "1"}
    )
    try:
        out, _ = await asyncio.wait_for(program.communicate(), SECONDS)
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
    assert program.returncode == 0, out.decode()
    return out.decode()


async def test_the_mosquitto_page_works_as_pasted(place: Place) -> None:
    listen, send, ask = (place.here(block) for block in blocks("mosquitto", "sh"))
    token = await place.token("kitchen-camera")
    # The program is asked to tell of its SUBACK, which somebody at a terminal need not wait for.
    command = listen.rstrip(" &\n").replace("mosquitto_sub", "exec stdbuf -oL mosquitto_sub -d")
    listening = await asyncio.create_subprocess_exec(
        "bash", "-c", command, stdout=PIPE, env=os.environ | {"WAYSIDE_TOKEN": token}
    )
    assert listening.stdout
    heard: list[str] = []
    expected = masked(blocks("mosquitto", "text")[0])
    try:
        async with asyncio.timeout(SECONDS), place.moved():
            while "SUBACK" not in (await listening.stdout.readline()).decode():
                pass
            await ran("bash", "-euc", send, token=token)
            while len(heard) < len(expected):
                line = (await listening.stdout.readline()).decode()
                if line.startswith("replies/"):
                    heard += masked(line)
    finally:
        listening.terminate()
        await listening.communicate()
    assert heard == expected
    async with place.moved("intruder"):
        assert masked(await ran("bash", "-euc", ask, token=token)) == masked(blocks("mosquitto", "text")[1])


@pytest.mark.parametrize(("number", "library"), [(0, "aiomqtt"), (1, "paho")])
async def test_the_python_page_works_as_pasted(place: Place, number: int, library: str) -> None:
    program = place.here(blocks("python", "python")[number])
    assert library in program
    async with place.moved():
        out = await ran(sys.executable, "-W", "error", "-c", program, token=await place.token("hall-camera"))
    assert masked(out) == masked(blocks("python", "text")[number])


def subscribe(number: int, topic_filter: str, qos: int) -> bytes:
    return packet(0x82, number.to_bytes(2, "big") + text(topic_filter) + bytes([qos]))


async def test_what_umqtt_simple_sends_is_answered_as_its_page_says(place: Place) -> None:
    """umqtt: protocol level 4, clean session, no keep-alive, packet ids from 1 on for subscribe and publish."""
    (program,) = blocks("micropython", "python")
    ast.parse(program)
    token = await place.token("garden-gate")
    accepted, rejected = promised("micropython")
    async with place.moved(), Wire.to(place) as wire:
        names = text("garden-gate") + text("status") + text('{"online":false}') + text("garden-gate") + text(token)
        wire.send(packet(0x10, text("MQTT") + b"\x04\xc6\x00\x00" + names))
        assert await wire.takes() == CONNACK
        wire.send(subscribe(1, "replies/#", 1))
        assert await wire.takes() == b"\x90\x03\x00\x01\x01"
        wire.send(packet(0x32, text(f"{KEY}/0a1b2c3c") + b"\x00\x02" + b'{"verdict": "stranger"}'))
        assert masked(await wire.reply()) == [rejected]
        assert await wire.takes() == b"\x40\x02\x00\x02"  # the reply came first, as the page says
        wire.send(packet(0x32, text(f"{KEY}/0a1b2c3d") + b"\x00\x03" + b'{"verdict": "known"}'))
        assert masked(await wire.reply()) == [accepted]
        assert await wire.takes() == b"\x40\x02\x00\x03"
        wire.send(b"\xc0\x00")
        assert await wire.takes() == b"\xd0\x00"
        wire.send(b"\xe0\x00")


async def test_what_pubsubclient_sends_is_answered_within_its_buffer(place: Place) -> None:
    """PubSubClient: keep-alive 15 s, QoS 0 out, packet ids from 2 on; it drops what is over 256 bytes."""
    token = await place.token("garage-door")
    rejected, accepted = promised("arduino")
    async with place.moved(), Wire.to(place) as wire:
        names = text("garage-door") + text("garage-door") + text(token)
        wire.send(packet(0x10, text("MQTT") + b"\x04\xc2\x00\x0f" + names))
        assert await wire.takes() == CONNACK
        wire.send(subscribe(2, "replies/signals/front-door/#", 1))
        assert await wire.takes() == b"\x90\x03\x00\x02\x01"
        wire.send(b"\xc0\x00")  # loop(), after 15 s of silence
        assert await wire.takes() == b"\xd0\x00"
        for payload, expected in (('{"verdict":"stranger"}', rejected), ('{"verdict":"known"}', accepted)):
            wire.send(packet(0x30, text(f"{KEY}/{len(payload):08x}") + payload.encode()))
            assert masked(await wire.reply()) == [expected]
        identity = "i" * (87 - len("front-door") - len("kitchen-verdict"))  # the longest that the page allows
        wire.send(packet(0x30, text(f"{KEY}/{identity}") + b'{"verdict":"known"}'))
        assert "/accepted " in await wire.reply()
        wire.send(packet(0x30, text(f"{KEY}/{identity[:-1]}j") + b'{"verdict":"known"}'))
        assert '"early_signal_held"' in await wire.reply()
        assert 200 < wire.largest <= 256
    async with place.moved():
        pass  # takes the one that is held


# As much of Arduino's and PubSubClient's interfaces as the page's sketch uses.
ARDUINO = {
    "WiFi.h": """
        #pragma once
        #include <cstdint>
        #include <cstdio>
        #include <cstring>
        typedef uint8_t byte;
        enum { LOW, HIGH, OUTPUT, LED_BUILTIN, WL_CONNECTED };
        struct HardwareSerial { void begin(unsigned long); size_t write(const uint8_t*, size_t); size_t println(); };
        extern HardwareSerial Serial;
        struct WiFiClass { int begin(const char*, const char*); int status(); };
        extern WiFiClass WiFi;
        struct WiFiClient {};
        void pinMode(uint8_t, uint8_t); void digitalWrite(uint8_t, uint8_t); void delay(uint32_t);
        uint32_t esp_random();
    """,
    "PubSubClient.h": """
        #pragma once
        struct PubSubClient {
            PubSubClient(WiFiClient&);
            PubSubClient& setServer(const char*, uint16_t);
            PubSubClient& setCallback(void (*)(char*, uint8_t*, unsigned int));
            bool setBufferSize(uint16_t);
            bool connect(const char*, const char*, const char*);
            bool publish(const char*, const char*);
            bool subscribe(const char*, uint8_t);
            bool loop(); bool connected(); int state();
        };
    """,
}


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
async def test_the_sketch_is_well_formed(tmp_path: Path) -> None:
    for name, declared in ARDUINO.items():
        (tmp_path / name).write_text(declared)
    (sketch,) = blocks("arduino", "cpp")
    # The IDE declares a sketch's functions ahead of it; this one needs none of that.
    (tmp_path / "sketch.cpp").write_text(sketch)
    await ran(
        "g++",
        "-std=c++17",
        "-Wall",
        "-Werror",
        "-fsyntax-only",
        "-I",
        str(tmp_path),
        str(tmp_path / "sketch.cpp"),
        token="",
    )


CONNECTED = (  # what Tasmota publishes once it is connected: topic, payload, retained
    ("tele/kitchen-plug/LWT", "Online", True),
    ("cmnd/kitchen-plug/POWER", "", False),
    ("tele/kitchen-plug/INFO1", '{"Info1":{"Module":"Generic"}}', False),
    ("stat/kitchen-plug/RESULT", '{"POWER":"OFF"}', False),
    ("stat/kitchen-plug/POWER", "OFF", False),
)


async def test_what_tasmota_sends_is_answered_as_its_page_says(place: Place) -> None:
    """Tasmota: a retained will at QoS 1, keep-alive 30 s, all at QoS 0, `/#` after each topic of `Subscribe`."""
    token = await place.token("kitchen-plug")
    accepted, rejected = promised("tasmota")
    async with Wire.to(place) as wire:
        names = text("DVES_0A1B2C") + text("tele/kitchen-plug/LWT") + text("Offline")
        wire.send(packet(0x10, text("MQTT") + b"\x04\xee\x00\x1e" + names + text("kitchen-plug") + text(token)))
        assert await wire.takes() == CONNACK
        publishes = [packet(0x30 | retained, text(topic) + payload.encode()) for topic, payload, retained in CONNECTED]
        wire.send(*publishes[:2])
        wire.send(subscribe(2, "cmnd/kitchen-plug/#", 0))
        wire.send(subscribe(3, "cmnd/tasmotas/#", 0), subscribe(4, "cmnd/DVES_0A1B2C_fb/#", 0))
        assert [(await wire.takes())[-1] for _ in range(3)] == [0x80] * 3
        wire.send(*publishes[2:])
        wire.send(*(subscribe(5 + n, f"replies/{KEY}/{word}/#", 0) for n, word in enumerate(("accepted", "rejected"))))
        assert [(await wire.takes())[-1] for _ in range(2)] == [0, 0]
        async with place.moved():
            wire.send(packet(0x31, text(f"{KEY}/1796077186") + b'{"verdict":"known"}'))  # Publish2
            assert masked(await wire.reply()) == [rejected]
            wire.send(packet(0x30, text(f"{KEY}/1796077185") + b'{"verdict":"known"}'))  # Publish
            assert masked(await wire.reply()) == [accepted]
        async with place.moved():
            wire.send(packet(0x30, text("stat/kitchen-plug/RESULT") + b'{"POWER":"ON"}'))
            wire.send(packet(0x30, text("stat/kitchen-plug/POWER") + b"ON"))  # the map makes a signal of it
            assert (await wire.reply()).startswith(f"replies/{KEY}/accepted ")


class Secrets(yaml.SafeLoader):
    """Reads ESPHome's own tags as plain text."""


def _as_written(_: yaml.SafeLoader, node: yaml.Node) -> str:
    return str(node.value)


for tag in ("!secret", "!lambda"):
    Secrets.add_constructor(tag, _as_written)


async def test_the_esphome_example_is_well_formed_and_its_message_is_answered(place: Place) -> None:
    configuration = yaml.load(blocks("esphome", "yaml")[0], Secrets)
    mqtt = configuration["mqtt"]
    sends = configuration["binary_sensor"][0]["on_press"][0]["mqtt.publish"]
    expression = re.fullmatch(r'return str_sprintf\("(.*)%08x", \(unsigned\) random_uint32\(\)\);', sends["topic"])
    assert expression
    assert (sends["qos"], sends["retain"], mqtt["topic_prefix"]) == (1, False, None)
    token = await place.token(mqtt["username"])
    accepted, _ = promised("esphome")
    async with place.moved(), Wire.to(place) as wire:
        names = text(mqtt["client_id"]) + text(mqtt["username"]) + text(token)
        wire.send(packet(0x10, text("MQTT") + b"\x04\xc0\x00\x0f" + names))  # a session that is kept
        assert await wire.takes() == CONNACK
        for number, listens in enumerate(mqtt["on_message"], 1):
            wire.send(subscribe(number, listens["topic"], listens["qos"]))
            assert (await wire.takes())[-1] == 1
        wire.send(packet(0x32, text(f"{expression[1]}0a1b2c3d") + b"\x00\x03" + sends["payload"].encode()))
        assert masked(await wire.reply()) == [accepted]


def esphome() -> str | None:
    ours = ROOT / ".cache" / "esphome" / "bin" / "esphome"
    return str(ours) if ours.exists() else shutil.which("esphome")


@pytest.mark.skipif(esphome() is None, reason="ESPHome is not installed (deploy/test tries to)")
@pytest.mark.parametrize("notes", [False, True], ids=["as it stands", "with TLS and a will"])
async def test_esphome_itself_accepts_the_example(tmp_path: Path, *, notes: bool) -> None:
    example = blocks("esphome", "yaml")[0]
    if notes:
        text = (PAGES / "esphome.md").read_text()
        said = re.findall(r"`(will_message: .*?|certificate_authority: .*?|port: 8883)`", text)
        assert len(said) == 3
        example = example.replace("  port: 1883\n", "".join(f"  {line}\n" for line in sorted(said)))
    (tmp_path / "kitchen-button.yaml").write_text(example)
    (tmp_path / "secrets.yaml").write_text("wifi_password: long enough\nwayside_token: wsd_x\nwayside_ca: x\n")
    out = await ran(str(esphome()), "config", str(tmp_path / "kitchen-button.yaml"), token="")
    assert "Configuration is valid!" in out
    assert "WARNING" not in out
    assert ("certificate_authority" in out) is ("online" in out) is notes


def test_the_readme_links_every_page_and_every_link_leads_to_one() -> None:
    linked = re.findall(r"\(devices/clients/([a-z-]+\.md)\)", (ROOT / "README.md").read_text())
    assert sorted(linked) == sorted(page.name for page in PAGES.iterdir())


def installed(program: str) -> Path | None:
    found = ROOT / ".cache" / "node-red" / "node_modules" / program
    return found if found.exists() else None


@pytest.mark.skipif(installed("node-red") is None, reason="Node-RED is not installed (deploy/test tries to)")
async def test_the_flow_of_the_node_red_page_works_in_node_red(place: Place) -> None:
    directory = ROOT / ".cache" / "node-red"
    flow = place.here(blocks("node-red", "json")[0])
    credentials = {"wayside-broker": {"user": "node-red", "password": await place.token("node-red")}}
    program = Path(__file__).with_name("node_red.mjs")
    async with place.moved():
        heard = await ran("node", str(program), str(directory), flow, json.dumps(credentials), token="")
    assert masked(heard) == promised("node-red")
