"""`/operators`: who may do what to this gateway; and `/logins`: a link by which an operator gets at the page."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict, Field

from devices import operations
from devices.model import Operator, Right
from engine.clock import rfc3339
from engine.errors import NotFound
from gateway.audit import Entry
from gateway.http.access import Parts, Who
from gateway.http.models import Name
from gateway.http.paging import MAX_PAGE, AfterName, Limit, page
from gateway.http.problems import Problem, documented
from gateway.services import Services
from gateway.sessions import LINK_SECONDS

router: Final = APIRouter(tags=["operators"])
Which = Annotated[Name, Path(description="the operator's name")]
_ERRORS: Final = documented(401, 403, 404, 409, 413, 422, 429, 503)


class AddOperator(BaseModel):
    model_config = ConfigDict(extra="forbid")

    operator: str
    rights: Annotated[list[Right], Field(min_length=1, max_length=4)]


class OperatorView(BaseModel):
    """`last_seen` is what this instance knows."""

    operator: str
    state: str
    rights: list[Right]
    tokens: int
    changed: str
    last_seen: str | None


class OperatorList(BaseModel):
    operators: list[OperatorView]
    next: str | None


class IssuedOperatorToken(OperatorView):
    """The token is shown here once and kept nowhere."""

    token: str


class Login(BaseModel):
    """`path` is a page of this gateway that lets whoever opens it first in as the caller, once, for `seconds`."""

    path: str
    seconds: float


@router.get("/operators", response_model=OperatorList, responses=documented(401, 403, 422, 429, 503))
async def list_operators(parts: Parts, who: Who, after: AfterName = None, limit: Limit = MAX_PAGE) -> dict[str, Any]:
    """List the operators that are not revoked."""
    who.must_be_operator("admin")
    await parts.registry.refresh()
    operators, following = page(parts.registry.operators(), lambda operator: operator.name, after=after, limit=limit)
    return {"operators": [_view(parts, operator) for operator in operators], "next": following}


@router.post("/operators", response_model=IssuedOperatorToken, status_code=201, responses=_ERRORS)
async def add_operator(body: AddOperator, parts: Parts, who: Who) -> dict[str, Any]:
    """Add an operator. The token is in this answer and nowhere else."""
    who.must_be_operator("admin")
    issued = await operations.add_operator(parts.registry, body.operator, rights=body.rights, by=who.name)
    return await _issued(parts, issued)


@router.post("/operators/{operator}/rotate", response_model=IssuedOperatorToken, responses=_ERRORS)
async def rotate_operator(operator: Which, parts: Parts, who: Who) -> dict[str, Any]:
    """Give an operator a second token; the first works until the rotation is finished."""
    who.must_be_operator("admin")
    return await _issued(parts, await operations.rotate_operator(parts.registry, operator, by=who.name))


@router.post("/operators/{operator}/rotate/finish", response_model=OperatorView, responses=_ERRORS)
async def finish_operator_rotation(operator: Which, parts: Parts, who: Who) -> dict[str, Any]:
    """End an operator's older token, and the page's sessions that were begun with it."""
    who.must_be_operator("admin")
    return await _done(parts, await operations.finish_operator_rotation(parts.registry, operator, by=who.name))


@router.post("/operators/{operator}/revoke", response_model=OperatorView, responses=_ERRORS)
async def revoke_operator(operator: Which, parts: Parts, who: Who) -> dict[str, Any]:
    """End all tokens of an operator, and every session of the page."""
    who.must_be_operator("admin")
    if parts.registry.operator(operator) is None:
        await parts.registry.refresh()
    if (found := parts.registry.operator(operator)) is None or found.state == "deleted":
        raise NotFound(f"there is no operator {operator}", hint="`wayside operator list` names them")
    return await _done(parts, await operations.revoke_operator(parts.registry, operator, by=who.name))


@router.post("/logins", response_model=Login, status_code=201, responses=documented(401, 403, 429, 503))
async def offer_login(parts: Parts, who: Who) -> dict[str, Any]:
    """Make a link that lets whoever opens it into the page as the caller: once, and for ten minutes."""
    if not isinstance(who.authority.standing(who.principal), Operator):
        raise Problem(403, "forbidden", "the page is for operators")
    code = parts.sessions.offer(who.principal)
    parts.audit.add(Entry(action="login.offered", principal=who.name, door="http", address=who.address))
    await parts.audit.written()
    return {"path": f"/login/{code}", "seconds": LINK_SECONDS}


async def _issued(parts: Services, issued: operations.Issued) -> dict[str, Any]:
    assert isinstance(issued.entry, Operator)
    return await _done(parts, issued.entry) | {"token": issued.token}


async def _done(parts: Services, operator: Operator) -> dict[str, Any]:
    await parts.audit.written()
    return _view(parts, operator)


def _view(parts: Services, operator: Operator) -> dict[str, Any]:
    seen = parts.authority.last_seen("user", operator.name)
    return {
        "operator": operator.name,
        "state": operator.state,
        "rights": sorted(operator.rights),
        "tokens": len(operator.secrets),
        "changed": rfc3339(operator.changed_at),
        "last_seen": rfc3339(seen) if seen else None,
    }
