"""Proves that settings come from flag, environment, file and default in that order, and that every mistake is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import BadInput
from gateway.config import load
from gateway.settings import Address, parse_address, parse_duration


def problems(
    tmp_path: Path, text: str, *, environment: dict[str, str] | None = None, **flags: object
) -> tuple[str, ...]:
    (tmp_path / "wayside.toml").write_text(text)
    with pytest.raises(BadInput) as caught:
        load({"data": str(tmp_path), **flags}, environment=environment or {})
    return caught.value.problems


def test_a_flag_wins_over_the_environment_which_wins_over_the_file_which_wins_over_the_default(tmp_path: Path) -> None:
    (tmp_path / "wayside.toml").write_text('mqtt = "127.0.0.1:1"\nhttp = "127.0.0.1:2"\n[engine]\nretention = "30d"\n')
    loaded = load(
        {"data": str(tmp_path), "mqtt": "127.0.0.1:4"},
        environment={"WAYSIDE_MQTT": "127.0.0.1:3", "WAYSIDE_ENGINE__SWEEP_INTERVAL": "2s"},
    )
    settings = loaded.settings
    assert (settings.mqtt.port, settings.http.port) == (4, 2)
    assert (settings.engine.sweep_interval, settings.engine.retention) == (2.0, 30 * 86_400.0)
    assert settings.engine.heartbeat == 10.0
    assert loaded.origins["mqtt"] == "--mqtt"
    assert loaded.origins["http"] == f"{tmp_path / 'wayside.toml'}:2"
    assert loaded.warnings == ()


def test_defaults_are_the_loopback_and_the_usual_ports(tmp_path: Path) -> None:
    settings = load({}, environment={"HOME": str(tmp_path)}).settings
    assert settings.mqtt == Address("127.0.0.1", 1883)
    assert settings.http == Address("127.0.0.1", 8080)
    assert settings.data == tmp_path / ".local" / "share" / "wayside"
    assert settings.store_url == f"{settings.data}/wayside.db"
    assert settings.workflow_directory == settings.data / "workflows"


def test_every_problem_is_named_at_once_with_the_place_it_stands(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        'http = "nowhere"\nmqtt = "0.0.0.0:1883"\n\n[engine]\nsweep_interval = 0\n',
        environment={"WAYSIDE_LOG__LEVEL": "loud"},
    )
    file = tmp_path / "wayside.toml"
    assert len(found) == 4
    assert any(line.startswith(f"{file}:1: http: an address is written HOST:PORT") for line in found)
    assert any(line.startswith(f"{file}:2: mqtt: 0.0.0.0:1883 can be reached") for line in found)
    assert any(line.startswith(f"{file}:5: engine.sweep_interval:") for line in found)
    assert any(line.startswith("WAYSIDE_LOG__LEVEL: log.level:") for line in found)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('bridge.url = "mqtt://u:secret@host:99999"', "bridge.url: the port in a broker's URL is a number up to 65535"),
        ('bridge.url = "mqtt://u:sec/ret@host:1883"', "bridge.url: the port in a broker's URL is a number up to 65535"),
        ('bridge.url = "mqtt://host?protocol=7"', "bridge.url: protocol is one of auto, 5, 3.1.1"),
        ('bridge.verifiers = ["mosqitto"]', "bridge.verifiers: this is one of mosquitto, nats"),
        ('bridge.share = "a b"', "bridge.share: a name is a-z, 0-9, _ and -"),
        ('bridge.auth_secret = "short"', "bridge.auth_secret: a secret is 16 to 256 characters of ASCII"),
        ('audit.syslog = "here"', "audit.syslog: a socket's path, such as /dev/log, or HOST:PORT"),
        ('listener.max_connections = "many"', "listener.max_connections: expected a whole number, got text"),
        ("listener.max_connections = 0", "listener.max_connections: expected a whole number >= 1"),
    ],
)
def test_it_is_said_what_a_value_would_have_to_be(text: str, wrong: str, tmp_path: Path) -> None:
    (found,) = problems(tmp_path, f"{text}\n")
    assert found.startswith(f"{tmp_path / 'wayside.toml'}:1: {wrong}")
    assert "sec" not in found.replace("a secret is", "").replace("auth_secret", "")


def test_each_map_that_is_wrong_is_named_with_its_line(tmp_path: Path) -> None:
    good = '[[map]]\ntopic = "a/b"\ndevice = "x"\nsignal = "a/b"\n'
    text = (
        f'{good}\n[[map]]\ntopic = 5\ndevice = "x"\nsignal = "a/b"\n[[ map ]]\ntpoic = "a"\n\n[log]\nlevel = "loud"\n'
    )
    file = tmp_path / "wayside.toml"
    assert problems(tmp_path, text) == (
        f"{file}:6: map 2: topic: expected text, got a whole number",
        f"{file}:10: map 3: object contains unknown field tpoic",
        f"{file}:14: log.level: this is one of debug, info, warning, error",
    )
    file.write_text(good + good)
    loaded = load({"data": str(tmp_path)}, environment={})
    assert loaded.maps == (f"{file}:1", f"{file}:5")
    assert loaded.origins["map"] == f"{file}:1"


def test_a_file_that_is_not_toml_is_named_with_its_line(tmp_path: Path) -> None:
    (found,) = problems(tmp_path, "\nmqtt = \n")
    assert found.startswith(f"{tmp_path / 'wayside.toml'}:2: ")
    (found,) = problems(tmp_path, "[engine\n")
    assert found.startswith(f"{tmp_path / 'wayside.toml'}:1: ")


def test_beside_a_mistake_unknown_names_are_problems_too(tmp_path: Path) -> None:
    found = problems(tmp_path, 'htpp = "127.0.0.1:2"\nmqtt = "nowhere"\n', environment={"WAYSIDE_DATTA": "x"})
    assert [line.removeprefix(f"{tmp_path}/").split(": ")[0] for line in found] == [
        "wayside.toml:2",
        "wayside.toml:1",
        "WAYSIDE_DATTA",
    ]
    assert "did you mean http?" in found[1]


def test_a_named_file_that_is_missing_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="setting is wrong") as caught:
        load({"data": str(tmp_path)}, config=str(tmp_path / "other.toml"), environment={})
    assert "there is no such file" in caught.value.problems[0]


def test_an_unknown_name_is_a_warning_with_the_nearest_known_one(tmp_path: Path) -> None:
    (tmp_path / "wayside.toml").write_text('htpp = "127.0.0.1:2"\n[engine]\nretentoin = "30d"\n')
    loaded = load({"data": str(tmp_path)}, environment={"WAYSIDE_ENGINE__SWEPINTERVAL": "1"})
    assert [w.rsplit(": ", 1)[1] for w in loaded.warnings] == [
        "there is no setting htpp; did you mean http?",
        "there is no setting engine.retentoin; did you mean engine.retention?",
        "there is no setting WAYSIDE_ENGINE__SWEPINTERVAL; did you mean WAYSIDE_ENGINE__SWEEP_INTERVAL?",
    ]


def test_another_address_than_loopback_passes_only_when_plaintext_is_said_to_be_wanted(tmp_path: Path) -> None:
    assert problems(tmp_path, "", mqtt="192.168.1.5:1883")
    loaded = load({"data": str(tmp_path), "mqtt": "192.168.1.5:1883", "allow_plaintext": True}, environment={})
    assert loaded.settings.mqtt == Address("192.168.1.5", 1883)


def test_a_secret_is_read_from_the_file_that_a_variable_names_and_never_quoted(tmp_path: Path) -> None:
    (tmp_path / "url").write_text(f"sqlite:///{tmp_path}/other.db\n")
    environment = {"WAYSIDE_STORE_FILE": str(tmp_path / "url")}
    assert load({"data": str(tmp_path)}, environment=environment).settings.store_url.endswith("/other.db")
    (tmp_path / "url").unlink()
    assert problems(tmp_path, "", environment=environment)[0].startswith("WAYSIDE_STORE_FILE: the file cannot be read")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:1883", Address("127.0.0.1", 1883)),
        (":0", Address("127.0.0.1", 0)),
        ("[::1]:8080", Address("::1", 8080)),
        ("gateway.lan:65535", Address("gateway.lan", 65535)),
    ],
)
def test_an_address_reads_back_as_it_is_written(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert parse_address(str(address)) == address


@pytest.mark.parametrize("text", ["", "1883", "host", "host:", "host:70000", "a b:1", "::1:80", "http://host:80"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        parse_address(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("15m", 900), ("1.5h", 5400), ("30d", 2_592_000), (7, 7)]
)
def test_a_time_span_is_seconds_or_has_a_unit(text: object, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1", "1y", True])
def test_what_is_no_time_span_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="time span"):
        parse_duration(text)


@pytest.mark.parametrize("door", ["mqtt", "http", "mqtt_ws"])
def test_a_door_without_tls_stays_on_this_machine_unless_somebody_says_so(tmp_path: Path, door: str) -> None:
    (line,) = problems(tmp_path, f'{door} = "192.0.2.1:1"\n')
    assert line.startswith(f"{tmp_path / 'wayside.toml'}:1: {door}: 192.0.2.1:1 can be reached")
    (tmp_path / "wayside.toml").write_text(f'{door} = "192.0.2.1:1"\nallow_plaintext = true\n')
    assert getattr(load({"data": str(tmp_path)}, environment={}).settings, door).port == 1


def test_http_may_listen_for_a_reverse_proxy(tmp_path: Path) -> None:
    (tmp_path / "wayside.toml").write_text('http = "192.0.2.1:1"\ntrusted_proxies = ["192.0.2.9"]\n')
    (network,) = load({"data": str(tmp_path)}, environment={}).settings.proxies
    assert str(network) == "192.0.2.9/32"
    (line,) = problems(tmp_path, 'mqtt = "192.0.2.1:1"\ntrusted_proxies = ["192.0.2.9"]\n')
    assert "mqtt: 192.0.2.1:1 can be reached" in line
    (line,) = problems(tmp_path, 'trusted_proxies = ["192.0.2.9", "proxy"]\n')
    assert "trusted_proxies: 'proxy' is neither an address nor a network" in line


def test_a_door_with_tls_names_the_files_that_it_lacks(tmp_path: Path) -> None:
    certificate, key = problems(tmp_path, 'mqtts = "192.0.2.1:8883"\n')
    assert certificate.startswith(f"{tmp_path / 'wayside.toml'}:1: mqtts: the certificate ")
    assert key.startswith(f"{tmp_path / 'wayside.toml'}:1: mqtts: the key ")
    found = problems(tmp_path, f'mqtts = "192.0.2.1:8883"\n[tls]\ncertificate = "{tmp_path}/wayside.toml"\nkey = "x"\n')
    assert [line.split(": ")[0] for line in found] == [f"{tmp_path / 'wayside.toml'}:4"]
