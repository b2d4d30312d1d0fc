"""Verifiers: a token in the form in which a broker keeps passwords, made when the token is, since it is kept nowhere.

The tokens are 256 random bits, so that no slow hash is needed: the cheapest that the broker takes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from typing import Final, Literal

from engine.clock import secret_number
from engine.errors import BadInput

VerifierKind = Literal["mosquitto", "nats"]
Verify = Callable[[str], dict[str, str]]
_ITERATIONS: Final = 101
_SALT_BYTES: Final = 12
_BCRYPT_ROUNDS: Final = 4
_MAX_BCRYPT_BYTES: Final = 72


def mosquitto_verifier(token: str) -> str:
    """Write a token as `mosquitto_passwd` does: PBKDF2-HMAC-SHA512, `$7$<iterations>$<salt>$<hash>`."""
    salt = secret_number(8 * _SALT_BYTES).to_bytes(_SALT_BYTES, "big")
    key = hashlib.pbkdf2_hmac("sha512", token.encode(), salt, _ITERATIONS)
    return f"$7${_ITERATIONS}${base64.b64encode(salt).decode()}${base64.b64encode(key).decode()}"


def nats_verifier(token: str) -> str:
    """Write a token as NATS takes it: bcrypt. Raises `BadInput` where the library is not installed."""
    try:
        import bcrypt  # noqa: PLC0415 - an extra: only where there is a NATS
    except ImportError:
        raise BadInput("verifiers for NATS need bcrypt", hint="pip install 'wayside[brokers]'") from None
    text = token.encode()
    if len(text) > _MAX_BCRYPT_BYTES:
        raise BadInput(f"NATS takes passwords of at most {_MAX_BCRYPT_BYTES} bytes")
    return bcrypt.hashpw(text, bcrypt.gensalt(rounds=_BCRYPT_ROUNDS, prefix=b"2a")).decode()


_MAKERS: Final[dict[VerifierKind, Callable[[str], str]]] = {"mosquitto": mosquitto_verifier, "nats": nats_verifier}


def maker(kinds: Sequence[VerifierKind]) -> Verify:
    """Give what makes the verifiers of these brokers from a token."""
    return lambda token: {kind: _MAKERS[kind](token) for kind in kinds}
