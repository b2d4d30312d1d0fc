"""The files of `deploy/docker` are sound as far as they can be tried without Docker: every name in them is a real one.

`python -m tests.instances.compose` starts the same topologies from processes.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.cli.serve import _parser
from gateway.config import load
from tests.instances.compose import DOCKER, ROOT, compose
from tests.support.command import wayside

FILES = ["single", "postgres", "nats"]
KNOWN = {
    "build", "image", "command", "entrypoint", "environment", "ports", "volumes", "restart", "stop_grace_period",
    "read_only", "tmpfs", "cap_drop", "security_opt", "depends_on", "healthcheck", "user", "pid", "hostname",
}  # fmt: skip


def services() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for file in FILES:
        for name, service in compose(file)["services"].items():
            yield file, name, service


EVERY = list(services())
OURS = [(file, name, service) for file, name, service in EVERY if service.get("image") == "wayside"]
GATEWAYS = [(file, name, service) for file, name, service in OURS if service["command"][0] == "serve"]


def test_the_topologies_are_those_that_are_promised() -> None:
    assert {file: sum(each == file for each, *_ in GATEWAYS) for file in FILES} == {
        "single": 1, "postgres": 2, "nats": 3
    }  # fmt: skip
    assert sum(file == "nats" and service["image"].startswith("nats:") for file, _, service in EVERY) == 3


@pytest.mark.parametrize(("file", "name", "service"), EVERY)
def test_what_a_service_names_is_there(file: str, name: str, service: dict[str, Any]) -> None:
    whole = compose(file)
    assert service.keys() <= KNOWN
    assert set(service.get("depends_on", ())) <= whole["services"].keys()
    for needed, how in dict(service["depends_on"]).items() if isinstance(service.get("depends_on"), dict) else ():
        assert how["condition"] != "service_healthy" or "healthcheck" in whole["services"][needed]
    for volume in service.get("volumes", ()):
        source = volume.partition(":")[0]
        if source.startswith("./") and source != "./workflows":
            assert (DOCKER / source).is_file(), source
        elif not source.startswith("./"):
            assert source in whole["volumes"], source
    for port in service.get("ports", ()):
        assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port), "nothing is published beyond this machine"
    if service["image"] != "wayside":
        assert re.fullmatch(r"[a-z-]+:[0-9.]+", service["image"]), "another's image is pinned"


@pytest.mark.parametrize("file", FILES)
def test_no_port_is_published_twice(file: str) -> None:
    ports = [port.split(":")[1] for each, _, service in EVERY if each == file for port in service.get("ports", ())]
    assert len(ports) == len(set(ports)) > 0


@pytest.mark.parametrize(("file", "name", "service"), GATEWAYS)
def test_a_gateways_command_and_settings_are_known_ones(file: str, name: str, service: dict[str, Any]) -> None:
    flags = vars(_parser().parse_args(service["command"][1:]))
    loaded = load({"data": "/var/lib/wayside", **flags}, environment=service.get("environment", {}))
    assert loaded.warnings == ()
    assert str(loaded.settings.http) == "0.0.0.0:8080", "the image's health check asks there"
    containers = {port.split(":")[2] for port in service["ports"]}
    assert containers <= {str(loaded.settings.http.port), str(loaded.settings.mqtt.port)}
    assert any(volume.endswith(":/var/lib/wayside") for volume in service["volumes"])
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]


@pytest.mark.parametrize(("file", "name", "service"), [each for each in OURS if each not in GATEWAYS])
def test_other_commands_settings_are_known(file: str, name: str, service: dict[str, Any]) -> None:
    assert load({}, environment=service["environment"]).warnings == ()


async def test_other_commands_have_the_options_that_are_used() -> None:
    others = [service["command"] for _, _, service in OURS if service["command"][0] != "serve"]
    helped = (await wayside("device", "export", "mosquitto", "--help")).out
    for command in others:
        assert command[:3] == ["device", "export", "mosquitto"]
        assert all(word in helped for word in command if word.startswith("--"))


def test_the_image_is_built_of_what_is_there_and_runs_as_nobody_special() -> None:
    text = (DOCKER / "Dockerfile").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    copied = [word for line in re.findall(r"^COPY (.*)$", text, re.MULTILINE) for word in line.split()[:-1]]
    assert copied
    for word in copied:
        assert (ROOT / word).exists(), word
        assert f"!{word}" in (DOCKER / "Dockerfile.dockerignore").read_text().splitlines()
    assert set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) <= set(copied)
    extras = set(re.findall(r"\[([a-z,]+)\]'", text))
    assert extras == {"brokers,nats,objects,postgres"}
    assert set(extras.pop().split(",")) <= project["project"]["optional-dependencies"].keys()
    assert re.search(r'^ENTRYPOINT \["wayside"\]$', text, re.MULTILINE)
    assert "wayside" in project["project"]["scripts"]
    user = re.findall(r"^USER (.*)$", text, re.MULTILINE)
    assert user == ["wayside"]
    assert text.index("\nUSER") < text.index("\nENTRYPOINT")
    command = re.search(r"^CMD \[(.*)\]$", text, re.MULTILINE)
    assert command is not None
    words = [word.strip().strip('"') for word in command[1].split(",")]
    flags = vars(_parser().parse_args(words[1:]))
    settings = load({"data": "/var/lib/wayside", **flags}, environment={}).settings
    exposed = re.findall(r"^EXPOSE (.*)$", text, re.MULTILINE)[0].split()
    assert exposed == [str(settings.mqtt.port), str(settings.http.port)]
    health = re.search(r"http://127\.0\.0\.1:(\d+)(/[a-z]+)", text)
    assert health is not None
    assert health.groups() == (str(settings.http.port), "/readyz")
