"""Getting in by a one-time link, and out again."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from gateway.audit import Entry
from gateway.http.access import page_session
from gateway.services import Services
from gateway.sessions import SESSION_SECONDS, cookie_name
from gateway.web.page import Visit, html, is_from_here, post, read_form

MAX_CODE_CHARACTERS: Final = 128


async def show(request: Request) -> Response:
    """Say how to log in."""
    if page_session(request.app.state.services, request) is not None:
        return RedirectResponse("/", 303)
    return html(request, "login.html", {"code": "", "refused": False})


async def offer(request: Request) -> Response:
    """Show the button that redeems a link: programs that look at links ahead of people do not press it."""
    return html(request, "login.html", {"code": request.path_params["code"][:MAX_CODE_CHARACTERS], "refused": False})


async def redeem(request: Request) -> Response:
    """Turn a link into a session. Nobody can be logged in from another site."""
    parts: Services = request.app.state.services
    form = await read_form(request)
    address = request.client.host if request.client else ""
    redeemed = parts.sessions.redeem(form.get("code", "")) if is_from_here(request) else None
    if redeemed is None or parts.authority.standing(redeemed[1].principal) is None:
        parts.audit.refuse(Entry(action="login.refused", result="bad_link", door="http", address=address))
        return html(request, "login.html", {"code": "", "refused": True}, status=403)
    cookie, session = redeemed
    by = str(session.principal)
    parts.audit.add(Entry(action="login.redeemed", result="accepted", principal=by, door="http", address=address))
    await parts.audit.written()
    answer = RedirectResponse("/", 303)
    answer.set_cookie(
        cookie_name(request.headers.get("host", "")),
        cookie,
        max_age=int(SESSION_SECONDS),
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return answer


async def leave(visit: Visit) -> Response:
    """End the session."""
    name = cookie_name(visit.request.headers.get("host", ""))
    visit.parts.sessions.end(visit.request.cookies.get(name, ""))
    entry = Entry(action="login.ended", principal=visit.by, door="http", address=visit.caller.address)
    visit.parts.audit.add(entry)
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(name, path="/", httponly=True, samesite="strict")
    return answer


ROUTES: Final = [
    Route("/login", show, methods=["GET"], include_in_schema=False),
    Route("/login", redeem, methods=["POST"], include_in_schema=False),
    Route("/login/{code}", offer, methods=["GET"], include_in_schema=False),
    post("/logout", leave),
]
