"""A NATS store's URL: which servers, who we are, which bucket."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from engine.errors import BadInput

FORM: Final = "nats://USER:PASSWORD@HOST:PORT,HOST:PORT/BUCKET?replicas=3"
DEFAULT_REPLICAS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Which bucket, on which servers; `replicas` is for a bucket that has to be made."""

    servers: tuple[str, ...] = field(repr=False)  # they may hold a password
    hosts: str
    bucket: str
    replicas: int = DEFAULT_REPLICAS
    user: str = ""
    password: str = field(default="", repr=False)
    credentials: str = ""

    def __str__(self) -> str:
        return f"the bucket {self.bucket} on {self.hosts}"


def parse(url: str) -> Location:
    """Read `nats://…` or `tls://…`; `credentials=FILE` names a file of NATS. `BadInput` never quotes the URL."""
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        raise BadInput("the store's URL cannot be read", hint=f"use {FORM}") from None
    account, _, hosts = parts.netloc.rpartition("@")
    bucket = parts.path.strip("/")
    if not re.fullmatch(r"[-_a-zA-Z0-9]{1,64}", bucket) or parts.fragment or not hosts:
        raise BadInput("the store's URL names no bucket, or one that NATS does not allow", hint=f"use {FORM}")
    unknown = sorted(options.keys() - {"replicas", "credentials"})
    if unknown:
        raise BadInput(f"the store's URL has an option that is not known: {unknown[0]}", hint=f"use {FORM}")
    replicas = options.get("replicas", str(DEFAULT_REPLICAS))
    if replicas not in {"1", "3", "5"}:
        raise BadInput("replicas in the store's URL is 1, 3 or 5")
    user, _, password = account.partition(":")
    return Location(
        servers=tuple(f"{parts.scheme}://{host}" for host in hosts.split(",") if host),
        hosts=hosts,
        bucket=bucket,
        replicas=int(replicas),
        user=unquote(user),
        password=unquote(password),
        credentials=options.get("credentials", ""),
    )
