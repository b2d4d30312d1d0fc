"""Sessions of the page: a one-time link becomes a cookie, which stands for the operator who asked for the link.

They live in this instance's memory: a restart logs everybody out, and a link is redeemed by the instance that made it.
A session never outlives its operator's token: what the operator may do is looked up anew at every request. Links and
cookies are 256 random bits, of which only the SHA-256 is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, Literal, TypeVar

from engine.clock import Source, secret_number
from gateway.auth import Principal

LINK_SECONDS: Final = 600.0
SESSION_SECONDS: Final = 12 * 3_600.0
MAX_LINKS: Final = 100
MAX_SESSIONS: Final = 1_000
MAX_STREAMS: Final = 16
_PORT_DIGITS: Final = 5
_BITS: Final = 256
_DIGITS: Final = _BITS // 4

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Notice:
    """What came of a form, shown once on the page that follows."""

    kind: Literal["good", "bad"]
    text: str
    detail: str = ""


@dataclass(eq=False, slots=True)
class Session:
    """One browser that was let in. `csrf` is what its forms carry; `streams` counts its live connections."""

    principal: Principal
    until: float  # monotonic seconds
    csrf: str = field(repr=False)
    streams: int = 0
    left: asyncio.Event = field(default_factory=asyncio.Event)
    notice: Notice | None = None

    def is_own_form(self, token: str) -> bool:
        """Tell whether a form was made for this session."""
        return hmac.compare_digest(self.csrf.encode(), token.encode())


@dataclass(frozen=True, slots=True)
class _Link:
    principal: Principal
    until: float


class Sessions:
    """The links that may still be redeemed, and the sessions; the oldest go when there are too many."""

    def __init__(self, source: Source, *, draw: Callable[[int], int] = secret_number) -> None:
        self._source = source
        self._draw = draw
        self._links: OrderedDict[str, _Link] = OrderedDict()
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def offer(self, principal: Principal) -> str:
        """Make a code that lets its first bearer in as `principal`, for `LINK_SECONDS`."""
        code = self._secret()
        until = self._source.monotonic() + LINK_SECONDS
        _put(self._links, _digest(code), _Link(principal, until), MAX_LINKS)
        return code

    def redeem(self, code: str) -> tuple[str, Session] | None:
        """Take a code, once; give the cookie's value and the session that it stands for."""
        link = self._links.pop(_digest(code), None)
        if link is None or link.until <= self._source.monotonic():
            return None
        cookie = self._secret()
        session = Session(link.principal, self._source.monotonic() + SESSION_SECONDS, self._secret())
        _put(self._sessions, _digest(cookie), session, MAX_SESSIONS)
        return cookie, session

    def find(self, cookie: str) -> Session | None:
        """Find the session that a cookie stands for."""
        session = self._sessions.get(_digest(cookie)) if len(cookie) == _DIGITS else None
        if session is not None and session.until <= self._source.monotonic():
            self.end(cookie)
            return None
        return session

    def end(self, cookie: str) -> None:
        """Forget a session, whose live connections end with it."""
        session = self._sessions.pop(_digest(cookie), None)
        if session is not None:
            session.until = 0.0
            session.left.set()

    def is_over(self, session: Session) -> bool:
        """Tell whether a session has ended, by time or because it was left."""
        return session.until <= self._source.monotonic()

    async def ended(self, session: Session) -> None:
        """Return when a session has ended, by time or because it was left."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(session.left.wait(), session.until - self._source.monotonic())

    def _secret(self) -> str:
        return f"{self._draw(_BITS):0{_DIGITS}x}"


def cookie_name(host: str) -> str:
    """Name the cookie after the port: browsers give the cookies of all ports of a host to each of them."""
    port = host.rpartition(":")[2]
    return f"wayside_{port}" if port.isascii() and port.isdigit() and len(port) <= _PORT_DIGITS else "wayside"


def _digest(secret: str) -> str:
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _put(into: OrderedDict[str, V], at: str, value: V, most: int) -> None:
    into[at] = value
    if len(into) > most:
        into.popitem(last=False)
