"""Proves how the bridge gets in: TLS, client certificate, user and password; and that a refusal says what to mend."""

from __future__ import annotations

import asyncio
import logging
import signal
import ssl
from dataclasses import dataclass
from pathlib import Path

import pytest

from devices.exports.verifiers import mosquitto_verifier
from engine.errors import BadInput
from gateway import certificates
from gateway.bridge.connection import BrokerFault, Subscription, connect
from gateway.bridge.handshake import Options
from gateway.bridge.heard import Heard
from gateway.bridge.url import parse_url
from gateway.certificates import Pair
from tests.support.behind import behind, ear
from tests.support.brokers import Broker
from tests.support.mosquitto import free_port

SECRET = "the-bridge-s-own"
WRONG = "not-the-bridge-s-own"


def nothing(_: Heard) -> None: ...


async def refused(url: str, version: int) -> BrokerFault:
    """Try to get in, and give the fault that it ends with."""
    with pytest.raises(BrokerFault) as caught:
        async with connect(Options(url=parse_url(url), client_id="bridge", version=version), nothing):
            pass
    return caught.value


async def gets_in(url: str, version: int) -> None:
    async with connect(Options(url=parse_url(url), client_id="bridge", version=version), nothing) as connection:
        assert await connection.subscribe([Subscription("d/+/signals/#")]) == []


@dataclass
class Site:
    """A Mosquitto with TLS that asks for client certificates, and a second authority that it does not know."""

    authority: Path
    strange_authority: Path
    server: Pair
    client: Pair
    strange_client: Pair
    settings: str


@pytest.fixture
def site(tmp_path: Path) -> Site:
    own, strange = tmp_path / "tls", tmp_path / "strange"
    authority, other = certificates.make_authority(own), certificates.make_authority(strange)
    server = certificates.issue_server(own, ["localhost"])
    return Site(
        authority=authority.certificate,
        strange_authority=other.certificate,
        server=server,
        client=certificates.issue_device(own, "wayside-bridge"),
        strange_client=certificates.issue_device(strange, "wayside-bridge"),
        settings=f"cafile {authority.certificate}\ncertfile {server.certificate}\nkeyfile {server.key}\n"
        "require_certificate true\nuse_identity_as_username true\n",
    )


@pytest.mark.parametrize("version", [3, 5])
async def test_over_tls_with_a_client_certificate_it_gets_in_and_what_is_wrong_is_said(
    version: int, site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Broker("mosquitto", tmp_path / "broker", settings=site.settings) as broker:
        at = f"mqtts://localhost:{broker.port}"
        client = f"cert={site.client.certificate}&key={site.client.key}"
        strange = f"cert={site.strange_client.certificate}&key={site.strange_client.key}"
        await gets_in(f"{at}?ca={site.authority}&{client}", version)
        for url, words in (
            (f"{at}?ca={site.authority}", "asks for a client certificate: name one as cert=FILE and key=FILE"),
            (f"{at}?ca={site.authority}&{strange}", f"refuses the client certificate cert={tmp_path}/strange/"),
            (
                f"{at}?ca={site.strange_authority}&{client}",
                "not trusted (self-signed certificate in certificate chain) by ca=",
            ),
            (f"{at}?{client}", "by this system's authorities: name the broker's as ca=FILE"),
            (f"mqtts://127.0.0.1:{broker.port}?ca={site.authority}&{client}", "certificate is not for 127.0.0.1"),
        ):
            fault = await refused(url, version)
            assert words in fault.reason
            assert not fault.wrong_protocol, "another version of MQTT would not help"
        assert "write mqtts://" in (await refused(f"mqtt://localhost:{broker.port}", version)).reason
    # paho says something of its own where a plain client meets TLS, and nothing else.
    assert {record.name for record in caplog.records if record.levelno >= logging.WARNING} <= {"mqtt"}


async def test_a_broker_that_hangs_up_over_tls_instead_of_answering_may_speak_another_version(site: Site) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(10)
        writer.transport.abort()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(site.server.certificate, site.server.key)
    server = await asyncio.start_server(hang_up, "localhost", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        fault = await refused(f"mqtts://localhost:{port}?ca={site.authority}", 5)
        assert fault.wrong_protocol, fault.reason


async def test_tls_where_none_is_spoken_and_files_that_will_not_do_are_named(site: Site, tmp_path: Path) -> None:
    async with Broker("mosquitto", tmp_path / "broker") as broker:
        fault = await refused(f"mqtts://localhost:{broker.port}?ca={site.authority}", 5)
        assert "mqtt:// is without it" in fault.reason
    text = tmp_path / "text"
    text.write_text("nothing\n")
    for query, words in (
        (f"ca={tmp_path}/absent", f"ca={tmp_path}/absent for mqtts://localhost:1 cannot be used: no such file"),
        (f"ca={text}", "no PEM certificate is in it"),
        (f"cert={site.client.certificate}&key={site.strange_client.key}", "the key is another certificate's"),
    ):
        with pytest.raises(BadInput) as caught:
            parse_url(f"mqtts://localhost:1?{query}").tls_context()
        assert words in caught.value.message


async def test_a_wrong_password_is_a_refusal_and_not_another_version_of_mqtt(tmp_path: Path) -> None:
    passwords = tmp_path / "passwd"
    passwords.write_text(f"bridge:{mosquitto_verifier(SECRET)}\n")
    passwords.chmod(0o600)
    async with Broker("mosquitto", tmp_path / "broker", settings=f"password_file {passwords}") as broker:
        for version in (3, 5):
            await gets_in(f"mqtt://bridge:{SECRET}@127.0.0.1:{broker.port}", version)
            fault = await refused(f"mqtt://bridge:{WRONG}@127.0.0.1:{broker.port}", version)
            assert fault.reason == "the broker does not let in 'bridge' with the URL's password (CONNACK 135)"
            assert not fault.wrong_protocol
            fault = await refused(f"mqtt://127.0.0.1:{broker.port}", version)
            assert "a client without a user name" in fault.reason


async def test_a_gateway_signals_over_tls_by_its_certificate_alone(site: Site, tmp_path: Path) -> None:
    plain = free_port()
    settings = f"{site.settings}allow_anonymous true\nlistener {plain} 127.0.0.1\n"
    broker = Broker("mosquitto", tmp_path / "broker", settings=settings)
    url = f"mqtts://localhost:{broker.port}?ca={site.authority}&cert={site.client.certificate}&key={site.client.key}"
    async with behind(tmp_path, broker, WAYSIDE_BRIDGE__URL=url) as bridged:
        await bridged.add("camera", "signal:porch/verdict")
        async with ear(plain, "camera", "d/camera/replies/#") as camera:
            # More than one TLS record, so that what the socket holds back is read too.
            for number in range(3):
                await camera.tell(f"d/camera/signals/porch/verdict/w{number}", {"n": 0, "filler": "x" * 15_000})
            answers = [(await camera.next())[1] for _ in range(3)]
            assert {reply["id"] for reply in answers} == {"w0", "w1", "w2"}
        assert "u'wayside-bridge'" in broker.log.read_text()


async def test_a_gateway_that_is_refused_says_why_without_its_password_and_gets_in_once_it_may(tmp_path: Path) -> None:
    passwords = tmp_path / "passwd"
    passwords.write_text(f"wayside-bridge:{mosquitto_verifier(WRONG)}\n")
    passwords.chmod(0o600)
    broker = Broker("mosquitto", tmp_path / "broker", settings=f"password_file {passwords}")
    url = f"mqtt://wayside-bridge:{SECRET}@127.0.0.1:{broker.port}"
    async with behind(tmp_path, broker, start=False, WAYSIDE_BRIDGE__URL=url) as bridged:
        await bridged.gateway.start("--log-level", "debug", **bridged.settings)
        await bridged.logged("the broker does not let in 'wayside-bridge' with the URL's password (CONNACK 135)")
        passwords.write_text(f"wayside-bridge:{mosquitto_verifier(SECRET)}\n")
        assert broker.process is not None
        broker.process.send_signal(signal.SIGHUP)
        await bridged.ready()
        assert bridged.gateway.log is not None
        assert await bridged.gateway.stop() == 0
        assert SECRET not in bridged.gateway.log.read_text()


def test_a_url_is_read_in_full_and_never_shows_its_password() -> None:
    url = parse_url("mqtts://me%40home:p%2Fw@broker.example?ca=/ca&cert=/c&key=/k&protocol=3.1.1")
    assert (url.host, url.port, url.tls, url.username, url.password) == ("broker.example", 8883, True, "me@home", "p/w")
    assert (url.ca, url.cert, url.key, url.protocol) == (Path("/ca"), Path("/c"), Path("/k"), "3.1.1")
    assert "p/w" not in f"{url} {url!r}"
    assert str(parse_url("mqtt://[::1]")) == "mqtt://[::1]:1883"


@pytest.mark.parametrize(
    "text",
    [
        "", "broker:1883", "http://broker", "mqtt://", "mqtt://broker:x", "mqtt://broker/path", "mqtt://broker?ca=/x",
        "mqtt://broker?protocol=4", "mqtts://broker?tls=1", "mqtt://broker:99999",
    ],
)  # fmt: skip
def test_what_is_no_broker_is_refused_without_being_quoted(text: str) -> None:
    with pytest.raises(ValueError, match=r"mqtt|protocol|URL|certificates") as caught:
        parse_url(text)
    assert "broker:x" not in str(caught.value)
