"""Certificates for a local network: an authority of one's own, the gateway's certificate, and those of devices.

The only module that uses `cryptography`. Keys are elliptic (P-256), which small clients can do; private keys are files
of mode 0600. What is trusted where is `gateway.tls`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from engine.clock import wall_clock
from engine.errors import BadInput, Conflict, NotFound
from engine.names import is_name
from gateway.files import replacing

DIRECTORY: Final = "tls"
AUTHORITY_DAYS: Final = 3_650
# Longer than this some clients take a server's certificate for a mistake.
SERVER_DAYS: Final = 825
DEVICE_DAYS: Final = 1_825
# A device's clock may be behind when it comes out of its box: it is to trust the gateway all the same. Its own
# certificate nobody looks at but the gateway, which tells by its beginning whether it was made after a revocation.
_EARLIER: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate's file and its private key's."""

    certificate: Path
    key: Path


def authority(directory: Path) -> Pair:
    """Name the authority's files."""
    return Pair(directory / "ca.pem", directory / "ca.key")


def server(directory: Path) -> Pair:
    """Name the gateway's files."""
    return Pair(directory / "server.pem", directory / "server.key")


def device(directory: Path, name: str) -> Pair:
    """Name a device's files."""
    return Pair(directory / "devices" / f"{name}.pem", directory / "devices" / f"{name}.key")


def make_authority(directory: Path) -> Pair:
    """Make an authority; one that is there is kept, since every client trusts it already."""
    pair = authority(directory)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if pair.certificate.exists() and pair.key.exists():
        return pair
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Wayside local authority")])
    builder = _builder(name, name, key.public_key(), AUTHORITY_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    _write(pair, builder.sign(key, hashes.SHA256()), key)
    return pair


def issue_server(directory: Path, hosts: Sequence[str], *, days: int = SERVER_DAYS) -> Pair:
    """Issue the gateway's certificate for the names and addresses by which clients reach it; replaces an older one."""
    if not hosts:
        raise BadInput("a certificate is for a name or an address", hint="such as --name gateway.lan 192.168.1.5")
    names = x509.SubjectAlternativeName([_host(host) for host in hosts])
    return _issue(directory, server(directory), hosts[0], names, ExtendedKeyUsageOID.SERVER_AUTH, days)


def issue_device(directory: Path, name: str, *, days: int = DEVICE_DAYS, after: datetime | None = None) -> Pair:
    """Issue a device's certificate: whoever has it and its key is that device. Raises `Conflict` if there is one.

    It is good from now on, in a second that is later than that of `after`, when the device was last revoked.
    """
    if not is_name(name):
        raise BadInput(f"{name!r} is no device's name", hint="a-z, 0-9, _ and -, beginning with a letter or digit")
    pair = device(directory, name)
    if pair.certificate.exists():
        raise Conflict(f"{pair.certificate} is there already", hint="move it away to issue another")
    pair.certificate.parent.mkdir(mode=0o700, exist_ok=True)
    # The common name is the device; some libraries do not send a certificate that has no other name.
    names = x509.SubjectAlternativeName([x509.DNSName(name)])
    since = wall_clock()
    if after is not None:
        since = max(since, after + timedelta(seconds=1))
    return _issue(directory, pair, name, names, ExtendedKeyUsageOID.CLIENT_AUTH, days, since.replace(microsecond=0))


def names_in(certificate: Path) -> tuple[str, ...]:
    """Read the names and addresses that a certificate is for; nothing of one that cannot be read."""
    try:
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound, UnsupportedAlgorithm):
        return ()
    addresses: list[IPv4Address | IPv6Address] = [
        address
        for address in names.get_values_for_type(x509.IPAddress)
        if isinstance(address, (IPv4Address, IPv6Address))
    ]
    return (*names.get_values_for_type(x509.DNSName), *map(str, addresses))


def begins(certificate: Path) -> datetime:
    """Read since when a certificate is good; raises OSError or ValueError."""
    return x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_before_utc


def ends(certificate: Path) -> datetime:
    """Read until when a certificate is good; raises OSError or ValueError."""
    return x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc


def _issue(  # noqa: PLR0917  each of another type
    directory: Path,
    pair: Pair,
    common_name: str,
    names: x509.SubjectAlternativeName,
    purpose: x509.ObjectIdentifier,
    days: int,
    since: datetime | None = None,
) -> Pair:
    above, above_key = _load(authority(directory))
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64])])
    builder = _builder(subject, above.subject, key.public_key(), days, since)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(above_key.public_key())
    builder = builder.add_extension(identifier, critical=False)
    builder = builder.add_extension(names, critical=False)
    _write(pair, builder.sign(above_key, hashes.SHA256()), key)
    return pair


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int, since: datetime | None = None
) -> x509.CertificateBuilder:
    now = wall_clock()
    builder = x509.CertificateBuilder(
        subject_name=subject,
        issuer_name=issuer,
        public_key=key,
        serial_number=x509.random_serial_number(),
        not_valid_before=since or now - _EARLIER,
        not_valid_after=now + timedelta(days=days),
    )
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host.strip("[]")))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError:
        raise BadInput(f"{host!r} is neither a name nor an address", hint="names are written in ASCII") from None


def _load(pair: Pair) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate.read_bytes())
        key = serialization.load_pem_private_key(pair.key.read_bytes(), password=None)
    except FileNotFoundError:
        raise NotFound(
            f"there is no authority in {pair.certificate.parent}", hint="`wayside tls init` makes one"
        ) from None
    except (OSError, ValueError) as fault:
        raise BadInput(f"the authority in {pair.certificate.parent} cannot be read ({type(fault).__name__})") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise BadInput(f"{pair.key} is another kind of key than `wayside tls init` makes")
    return certificate, key


def _write(pair: Pair, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    """Write both files, each as a whole; the key first, so that no certificate stands there without one."""
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _replace(pair.key, private, 0o600)
    _replace(pair.certificate, certificate.public_bytes(serialization.Encoding.PEM), 0o644)


def _replace(file: Path, content: bytes, mode: int) -> None:
    with replacing(file, mode=mode) as stream:
        os.fchmod(stream.fileno(), mode)
        stream.write(content)
