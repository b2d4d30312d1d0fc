"""A PostgreSQL store's URL: libpq's form, with what is Wayside's own taken out of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from engine.errors import BadInput
from engine.store.postgres.faults import Place

FORM: Final = "postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
MIN_CONNECTIONS: Final = 2
MAX_CONNECTIONS: Final = 100
DEFAULT_CONNECTIONS: Final = 6


@dataclass(frozen=True, slots=True)
class Location:
    """Which database, and how many connections at most (one more hears of other instances' writes)."""

    dsn: str = field(repr=False)  # it may hold a password
    place: Place
    connections: int = DEFAULT_CONNECTIONS


def parse(url: str) -> Location:
    """Read `postgresql://…?pool=N`; raises `BadInput`, which never quotes the URL."""
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise BadInput("the store's URL cannot be read", hint=f"use {FORM}") from None
    database = unquote(parts.path.strip("/"))
    if not database or parts.fragment:
        raise BadInput("the store's URL names no database", hint=f"use {FORM}")
    where = parts.netloc.rpartition("@")[2]
    options = dict(query)
    text = f"the database {database} on {where or options.get('host', 'this host')}"
    place = Place(text, _user(parts.netloc, options))
    kept = urlencode([(name, value) for name, value in query if name != "pool"])
    return Location(urlunsplit(parts._replace(query=kept)), place, _connections(options.get("pool")))


def _user(netloc: str, options: dict[str, str]) -> str:
    account, at, _ = netloc.rpartition("@")
    return unquote(account.partition(":")[0]) if at else options.get("user", "of this process")


def _connections(text: str | None) -> int:
    if text is None:
        return DEFAULT_CONNECTIONS
    if not text.isascii() or not text.isdigit() or not MIN_CONNECTIONS <= int(text) <= MAX_CONNECTIONS:
        raise BadInput(f"pool in the store's URL is not a number from {MIN_CONNECTIONS} to {MAX_CONNECTIONS}")
    return int(text)
