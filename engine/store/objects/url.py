"""An object store's URL: which service, which bucket. Credentials come from where the service's own tools take them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from engine.errors import BadInput

FORM: Final = "s3://BUCKET/PREFIX?region=REGION&endpoint=URL, or gs://BUCKET/PREFIX"
_OPTIONS: Final = frozenset({"region", "endpoint"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Which bucket; `prefix` is put before every name, `endpoint` is another service that speaks alike."""

    service: str
    bucket: str
    prefix: str = ""
    region: str = ""
    endpoint: str = ""

    def __str__(self) -> str:
        where = f" on {urlsplit(self.endpoint).netloc.rpartition('@')[2]}" if self.endpoint else ""
        return f"the bucket {self.service}://{self.bucket}{where}"


def parse(url: str) -> Location:
    """Read `s3://…` or `gs://…`; raises `BadInput`, which never quotes the URL."""
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        raise BadInput("the store's URL cannot be read", hint=f"use {FORM}") from None
    if not re.fullmatch(r"[a-z0-9][-a-z0-9._]{1,220}", parts.netloc) or parts.fragment:
        raise BadInput("the store's URL names no bucket", hint=f"use {FORM}; keys and secrets are not part of it")
    unknown = sorted(options.keys() - _OPTIONS)
    if unknown:
        raise BadInput(f"the store's URL has an option that is not known: {unknown[0]}", hint=f"use {FORM}")
    prefix = unquote(parts.path.strip("/"))
    if prefix and not re.fullmatch(r"[-_a-zA-Z0-9]+(/[-_a-zA-Z0-9]+)*", prefix):
        raise BadInput("the prefix in the store's URL holds other characters than letters, digits, `-`, `_` and `/`")
    endpoint = options.get("endpoint", "")
    if endpoint and urlsplit(endpoint).scheme not in {"http", "https"}:
        raise BadInput("endpoint in the store's URL is not an http or https URL")
    return Location(
        service=parts.scheme, bucket=parts.netloc, prefix=prefix, region=options.get("region", ""), endpoint=endpoint
    )
