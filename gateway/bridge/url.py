"""Where a broker is and how to be let in, read from one URL: `mqtt://user:password@host:1883`, `mqtts://…?ca=…`.

What stands in a query belongs to the connection: `ca`, `cert` and `key` are paths (TLS), `protocol` is `5`, `3.1.1` or
`auto`. A URL may hold a password: it is never shown, `str()` of what is read here included.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal
from urllib.parse import parse_qs, unquote, urlsplit

from engine.errors import BadInput

Protocol = Literal["auto", "5", "3.1.1"]
_PROTOCOLS: Final[tuple[Protocol, ...]] = ("auto", "5", "3.1.1")
_PORTS: Final = {"mqtt": 1883, "mqtts": 8883}
_KNOWN: Final = frozenset({"ca", "cert", "key", "protocol"})
_EXAMPLE: Final = "mqtt://USER:PASSWORD@HOST:1883 or mqtts://HOST:8883?ca=FILE&cert=FILE&key=FILE"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerUrl:
    """A broker's address and credentials."""

    host: str
    port: int
    tls: bool = False
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    protocol: Protocol = "auto"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"mqtt{'s' if self.tls else ''}://{host}:{self.port}"

    @property
    def address(self) -> str:
        """Give host and port as the audit log writes them."""
        return f"{self.host}:{self.port}"

    def tls_context(self) -> ssl.SSLContext | None:
        """Make the TLS settings, host name checked; reads the files, and raises `BadInput` for one that will not do."""
        if not self.tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except (OSError, ssl.SSLError) as fault:
            raise BadInput(f"ca={self.ca} for {self} cannot be used: {_what(fault)}") from None
        if self.cert is not None:
            try:
                # A key under a passphrase fails, instead of asking at a terminal.
                context.load_cert_chain(self.cert, self.key, password=lambda: b"")
            except (OSError, ssl.SSLError) as fault:
                files = f"cert={self.cert}" + (f" and key={self.key}" if self.key else "")
                raise BadInput(f"{files} for {self} cannot be used: {_what(fault)}") from None
        return context


def _what(fault: OSError) -> str:
    if isinstance(fault, ssl.SSLError):
        reason = (fault.reason or "").lower()
        return {
            "no_certificate_or_crl_found": "no PEM certificate is in it",
            "no_start_line": "no PEM certificate is in it",
            "key_values_mismatch": "the key is another certificate's",
        }.get(reason, f"no PEM certificate with its key, without a passphrase ({reason.replace('_', ' ') or 'TLS'})")
    return (fault.strerror or type(fault).__name__).lower()


def parse_url(text: str) -> BrokerUrl:
    """Read a broker's URL; raises ValueError with what would do, and without the URL, which may hold a password."""
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError:
        raise ValueError(f"a broker is written {_EXAMPLE}") from None
    if parts.scheme not in _PORTS or not parts.hostname or parts.path not in {"", "/"} or parts.fragment:
        raise ValueError(f"a broker is written {_EXAMPLE}")
    query = {name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
    if unknown := sorted(set(query) - _KNOWN):
        raise ValueError(f"a broker's URL takes {', '.join(sorted(_KNOWN))}, not {unknown[0]}")
    protocol = next((known for known in _PROTOCOLS if known == query.get("protocol", "auto")), None)
    if protocol is None:
        raise ValueError(f"protocol is one of {', '.join(_PROTOCOLS)}")
    tls = parts.scheme == "mqtts"
    files = {name: Path(query[name]).expanduser() for name in ("ca", "cert", "key") if name in query}
    if files and not tls:
        raise ValueError("certificates are for mqtts://")
    return BrokerUrl(
        host=parts.hostname,
        port=port or _PORTS[parts.scheme],
        tls=tls,
        username=unquote(parts.username) if parts.username is not None else None,
        password=unquote(parts.password) if parts.password is not None else None,
        protocol=protocol,
        **files,
    )
