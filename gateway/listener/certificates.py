"""The names in a client's certificate, which may stand for a device."""

from __future__ import annotations

from collections.abc import Mapping


def certificate_names(certificate: Mapping[str, object] | None) -> tuple[str, ...]:
    """Return the common name and the DNS names of a verified certificate, as `SSLSocket.getpeercert` gives it."""
    if not certificate:
        return ()
    names: list[str] = []
    subject = certificate.get("subject", ())
    alternatives = certificate.get("subjectAltName", ())
    if isinstance(subject, tuple):
        names += [value for part in subject for name, value in part if name == "commonName"]
    if isinstance(alternatives, tuple):
        names += [value for kind, value in alternatives if kind == "DNS"]
    return tuple(dict.fromkeys(names))
