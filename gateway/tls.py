"""TLS as the doors use it: which files, and the contexts that are made of them.

`[tls]` names a certificate, its key and the authority whose certificates stand for devices. Where it names none, the
files of `wayside tls init` in the data directory are used.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from engine.errors import BadInput
from gateway.settings import Settings

MINIMUM = ssl.TLSVersion.TLSv1_2


@dataclass(frozen=True, slots=True)
class Contexts:
    """One context for MQTT, which may ask for a device's certificate, and one for HTTP, which does not."""

    mqtt: ssl.SSLContext
    http: ssl.SSLContext
    certificate: Path
    key: Path

    def reload(self) -> None:
        """Read certificate and key again, for connections from now on; raises `BadInput` and keeps the old ones."""
        trial = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        for context in (trial, self.mqtt, self.http):
            _load(context, self.certificate, self.key)


def contexts(settings: Settings) -> Contexts | None:
    """Make the contexts if a door is to speak TLS; raises `BadInput` that says which file is in the way."""
    if not any((settings.mqtts, settings.mqtt_wss, settings.https)):
        return None
    files = settings.tls_files
    mqtt, http = _context(), _context()
    for context in (mqtt, http):
        _load(context, files.certificate, files.key)
    if files.client_ca is not None:
        try:
            mqtt.load_verify_locations(files.client_ca)
        except (OSError, ssl.SSLError) as fault:
            raise BadInput(f"the client authority {files.client_ca} cannot be used ({type(fault).__name__})") from None
        mqtt.verify_mode = ssl.CERT_REQUIRED if settings.tls.client_required else ssl.CERT_OPTIONAL
    return Contexts(mqtt, http, files.certificate, files.key)


def names(made: Contexts) -> tuple[str, ...]:
    """Read the names in the gateway's certificate: a request may be meant for any of them."""
    from gateway.certificates import names_in  # noqa: PLC0415  for those who speak TLS alone

    return names_in(made.certificate)


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = MINIMUM
    return context


def _load(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    try:
        # A key that asks for a pass phrase is refused; nobody is there to type it.
        context.load_cert_chain(certificate, key, password=lambda: "")
    except FileNotFoundError:
        raise BadInput(
            f"there is no certificate {certificate}, or no key {key}", hint="`wayside tls init` makes both"
        ) from None
    except (OSError, ssl.SSLError, ValueError) as fault:
        raise BadInput(
            f"the certificate {certificate} and the key {key} cannot be used ({type(fault).__name__})",
            hint="they are PEM files that belong together, without a pass phrase, readable by the gateway's user",
        ) from None
