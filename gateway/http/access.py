"""Who calls, and what they may: bearer tokens of devices and operators."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import HTTPConnection

from devices.model import Device, Operator, Right
from gateway.audit import Door, Entry
from gateway.auth import Authority, Principal, Rejected
from gateway.http.places import vouch
from gateway.http.problems import RETRY_SECONDS, Problem
from gateway.limits import Limited
from gateway.services import Services
from gateway.sessions import Session, cookie_name

bearer: Final = HTTPBearer(
    auto_error=False, description="A device's token (`wsd_…`) or an operator's (`wsu_…`).", scheme_name="token"
)


def services(request: Request) -> Services:
    """Give the parts that the application was made with."""
    found: Services = request.app.state.services
    return found


Parts = Annotated[Services, Depends(services)]


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody who proved who they are, for the length of one request."""

    principal: Principal
    authority: Authority
    address: str

    @property
    def name(self) -> str:
        """Name the caller in the audit log and in runs: `user:admin`."""
        return str(self.principal)

    def may_read(self, workflow: str) -> bool:
        return self.authority.may_read(self.principal, workflow)

    def must_read(self, workflow: str) -> None:
        """Raise 404 unless the caller may see the workflow: what is hidden looks like what is not there."""
        if not self.may_read(workflow):
            raise not_found()

    def must_be_operator(self, right: Right) -> None:
        """Raise 403 unless the caller is an operator with `right`."""
        entry = self.authority.standing(self.principal)
        if not isinstance(entry, Operator) or not entry.may(right):
            raise Problem(403, "forbidden", f"this takes an operator's token with the right {right}")


def not_found() -> Problem:
    """Make the one answer for what is not there and for what the caller may not know of."""
    return Problem(404, "not_found", "there is nothing by this name, or nothing for this token")


async def caller(
    request: Request, parts: Parts, credentials: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)]
) -> Caller:
    """Authenticate a request; raises 401, or 429 after many failures, or 503."""
    if credentials is None:
        raise _unauthorized()
    address = request.client.host if request.client else ""
    found = await authenticate(parts, credentials.credentials, address=address)
    vouch(request)
    _count_read(request, parts, found.principal)
    return found


async def authenticate(parts: Services, token: str, *, address: str, door: Door = "http") -> Caller:
    """Find whose token this is; raises 401, or 429 after many failures, or 503."""
    found = await parts.authority.bearer(token, address=address)
    if isinstance(found, Rejected):
        parts.audit.refuse(Entry(action="login.refused", result=found.reason, door=door, address=address))
    match found:
        case Principal():
            return Caller(found, parts.authority, address)
        case Rejected(reason="rate", retry_after_seconds=seconds):
            raise _limited("failures", seconds, "too many failures from this address")
        case Rejected(reason="unavailable"):
            raise Problem(503, "store_unavailable", headers={"Retry-After": str(RETRY_SECONDS)})
        case Rejected():
            raise _unauthorized()


def _count_read(request: Request, parts: Services, who: Principal) -> None:
    """Hold a device to its rate of reads; what it posts is counted where it is delivered."""
    device = parts.authority.standing(who)
    if request.method != "GET" or not isinstance(device, Device):
        return
    verdict = parts.limits.take(device.name, "reads", parts.source.monotonic(), device.limits)
    if isinstance(verdict, Limited):
        raise _limited(verdict.limit, verdict.retry_after_seconds, "more reads than a device may make")


def _limited(limit: str, seconds: float, detail: str) -> Problem:
    headers = {"Retry-After": str(max(1, math.ceil(seconds)))}
    return Problem(429, "rate_limited", detail, headers=headers, limit=limit, retry_after_ms=math.ceil(seconds * 1000))


def page_session(parts: Services, connection: HTTPConnection) -> Session | None:
    """Find the session of the page that a browser's cookie stands for, if its operator still is one."""
    cookie = connection.cookies.get(cookie_name(connection.headers.get("host", "")))
    session = parts.sessions.find(cookie) if cookie else None
    if session is None or parts.authority.standing(session.principal) is None:
        return None
    vouch(connection)
    return session


def _unauthorized() -> Problem:
    return Problem(
        401,
        "unauthorized",
        "a token is needed: Authorization: Bearer wsd_… or wsu_…",
        headers={"WWW-Authenticate": "Bearer"},
    )


Who = Annotated[Caller, Depends(caller)]
