"""Why the bridge is not let in, in words that say what to mend. Pure; no words hold a credential."""

from __future__ import annotations

import ssl
from typing import Final

from gateway.bridge.url import BrokerUrl

# CONNACK: 3.1.1, table 3.1; MQTT 5, table 3-1. The libraries write both in MQTT 5's numbers.
_LOGIN: Final = frozenset({4, 5, 134, 135})
_CLIENT_ID: Final = frozenset({2, 133})
_BUSY: Final = frozenset({3, 136, 137})
_MAX_CHARACTERS: Final = 200


def refused(code: int | None, fault: Exception, url: BrokerUrl) -> str:
    """Say why a broker's CONNACK refuses."""
    if code in _LOGIN:
        who = f"{url.username!r} with the URL's password" if url.username else "a client without a user name"
        return f"the broker does not let in {who} (CONNACK {code})"
    if code in _CLIENT_ID:
        return f"the broker does not take the bridge's client id (CONNACK {code})"
    if code in _BUSY:
        return f"the broker is not available (CONNACK {code})"
    return plain(fault)


def unreached(fault: Exception, alert: Exception | None, url: BrokerUrl) -> str:
    """Say why there is no CONNACK. `alert` is what the last read of the socket raised, if anything."""
    # aiomqtt raises another error `from None`: what it was is its context.
    for found in (alert, fault, fault.__context__):
        if isinstance(found, ssl.SSLError):
            return _tls(found, url)
        if url.tls and isinstance(found, ConnectionError) and not isinstance(found, ConnectionRefusedError):
            return f"the broker hung up as TLS began at {url}: mqtt:// is without it"
    return plain(fault)


def _tls(fault: ssl.SSLError, url: BrokerUrl) -> str:
    if isinstance(fault, ssl.SSLCertVerificationError):
        if "mismatch" in fault.verify_message:
            return f"the broker's certificate is not for {url.host}"
        trusted = f"ca={url.ca}" if url.ca else "this system's authorities: name the broker's as ca=FILE"
        return f"the broker's certificate is not trusted ({fault.verify_message}) by {trusted}"
    alert = (fault.reason or "").lower()
    if "certificate_required" in alert or (url.cert is None and "handshake_failure" in alert):
        return "the broker asks for a client certificate: name one as cert=FILE and key=FILE"
    if url.cert is not None and "alert" in alert and any(it in alert for it in ("certificate", "unknown_ca")):
        return f"the broker refuses the client certificate cert={url.cert} ({_spaced(alert)})"
    if any(it in alert for it in ("wrong_version", "record_layer", "unexpected_eof")):
        return f"no TLS is spoken at {url} ({_spaced(alert)}): mqtt:// is without it"
    return f"TLS with {url} failed ({_spaced(alert) or type(fault).__name__})"


def _spaced(alert: str) -> str:
    return alert.replace("_", " ")


def plain(fault: Exception) -> str:
    """Say in a few words what went wrong; the libraries' texts name codes and hosts, never a credential."""
    return " ".join(str(fault).split())[:_MAX_CHARACTERS] or type(fault).__name__
