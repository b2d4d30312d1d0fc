"""A client's certificate, whose names may stand for a device."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

from gateway.listener.port import Certificate


def certificate_of(shown: Mapping[str, object] | None) -> Certificate | None:
    """Read a verified certificate, as `SSLSocket.getpeercert` gives it; None if there is none, or it has no name."""
    if not shown:
        return None
    names: list[str] = []
    subject = shown.get("subject", ())
    alternatives = shown.get("subjectAltName", ())
    if isinstance(subject, tuple):
        names += [value for part in subject for name, value in part if name == "commonName"]
    if isinstance(alternatives, tuple):
        names += [value for kind, value in alternatives if kind == "DNS"]
    return Certificate(tuple(dict.fromkeys(names)), _good_since(shown)) if names else None


def _good_since(shown: Mapping[str, object]) -> int:
    try:
        return ssl.cert_time_to_seconds(str(shown.get("notBefore")))
    except ValueError:
        return 0
