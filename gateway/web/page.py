"""One visit of the page: who it is, what the form said, and how it is answered.

The page has no way around the API's rules: it asks the same use cases, and an operator may do here what the token that
asked for the login may do there. Every form carries the session's own token (against forged requests from elsewhere).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import parse_qsl, urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from devices.model import Operator, Right
from engine.clock import rfc3339
from engine.errors import StoreUnavailable, WaysideError
from gateway.http.access import Caller, page_session
from gateway.http.front import is_own_origin
from gateway.http.problems import Problem, of_fault
from gateway.services import Services
from gateway.sessions import Notice, Session
from gateway.web.render import render

MAX_FORM_BYTES: Final = 128 * 1024
MAX_FIELDS: Final = 40
PART_HEADER: Final = "x-wayside-part"
THEME_COOKIE: Final = "wayside_theme"
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    # Without one, browsers say that a form's origin is "null"; to other sites nothing is said.
    "referrer-policy": "same-origin",
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
Form = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Visit:
    """A request of somebody who has logged in."""

    request: Request
    parts: Services
    session: Session
    operator: Operator
    form: Form

    @property
    def caller(self) -> Caller:
        client = self.request.client
        return Caller(self.session.principal, self.parts.authority, client.host if client else "")

    @property
    def by(self) -> str:
        return str(self.session.principal)

    @property
    def is_part(self) -> bool:
        """Whether the page's own script asks, to bring what is on the screen up to date."""
        return PART_HEADER in self.request.headers

    def query(self, name: str) -> str:
        """Give a parameter of the address; "" when it is not there."""
        return self.request.query_params.get(name, "").strip()

    def may(self, right: Right) -> bool:
        return self.operator.may(right)

    def must(self, right: Right) -> None:
        """Raise 403 unless the operator holds `right`."""
        self.caller.must_be_operator(right)

    async def page(self, template: str, *, code: int = 200, live: str = "", **context: object) -> Response:
        """Show a template. `live` is what the page watches, as a query: `run=…`; "" watches everything."""
        notice = None
        if not self.is_part:
            notice, self.session.notice = self.session.notice, None
        now = rfc3339(await self.parts.engine.store.now())
        common: dict[str, object] = {
            "visit": self,
            "who": self.operator.name,
            "csrf": self.session.csrf,
            "here": _here(self.request),
            "path": self.request.url.path,
            "now": now,
            "live": f"/live?{live}" if live else "/live",
            "notice": notice,
        }
        return html(self.request, template, common | context, status=code)

    def back(self, to: str, text: str, *, kind: Literal["good", "bad"] = "good", detail: str = "") -> Response:
        """Answer a form: go to `to`, where the notice is shown; or, to the page's script, give the notice itself."""
        notice = Notice(kind, text, detail)
        if self.is_part:
            return html(self.request, "notice.html", {"notice": notice})
        self.session.notice = notice
        return RedirectResponse(to, 303, dict(_HEADERS))


Endpoint = Callable[[Visit], Awaitable[Response]]


def html(request: Request, template: str, context: Mapping[str, Any], *, status: int = 200) -> Response:
    """Render a template with the headers that every answer of the page carries."""
    theme = request.cookies.get(THEME_COOKIE, "")
    common = {"theme": theme if theme in {"light", "dark"} else "", "live": ""}
    return Response(render(template, common | dict(context)), status, dict(_HEADERS), "text/html; charset=utf-8")


def get(path: str, endpoint: Endpoint) -> Route:
    """Make a page."""
    return Route(path, _handler(endpoint), methods=["GET"], include_in_schema=False)


def post(path: str, endpoint: Endpoint) -> Route:
    """Make what a form is sent to."""
    return Route(path, _handler(endpoint), methods=["POST"], include_in_schema=False)


def _handler(endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        parts: Services = request.app.state.services
        session = page_session(parts, request)
        operator = parts.authority.standing(session.principal) if session is not None else None
        if session is None or not isinstance(operator, Operator):
            return _not_logged_in(request)
        form: Form = {}
        try:
            if request.method == "POST":
                form = await read_form(request)
                if not session.is_own_form(form.get("csrf", "")):
                    raise Problem(403, "forbidden", "this form is not of your session; open the page again")
            parts.authority.saw("user", operator.name)
            return await endpoint(Visit(request, parts, session, operator, form))
        except (HTTPException, WaysideError) as fault:
            return await _failed(Visit(request, parts, session, operator, form), fault)

    return handle


def _not_logged_in(request: Request) -> Response:
    if PART_HEADER in request.headers or request.method != "GET" or request.url.path == "/live":
        return Response("", 401, dict(_HEADERS))
    return RedirectResponse("/login", 303, dict(_HEADERS))


async def _failed(visit: Visit, fault: HTTPException | WaysideError) -> Response:
    """Say what went wrong: where the form was, or on a page of its own."""
    if isinstance(fault, WaysideError):
        status, said, _ = of_fault(fault)
        text, hint, problems = fault.message, fault.hint, list(said.get("problems") or ())
    else:
        status, text, hint, problems = fault.status_code, fault.detail, "", []
    detail = " ".join([*map(str, problems), *([hint] if hint else [])])
    back = visit.form.get("back", "")
    if back.startswith("/") and not back.startswith("//"):
        return visit.back(back, text, kind="bad", detail=detail)
    if isinstance(fault, StoreUnavailable):
        return html(visit.request, "away.html", {"text": text}, status=503)
    return await visit.page("error.html", code=status, text=text, detail=detail)


async def read_form(request: Request) -> Form:
    """Read a form's fields; raises 413 or 400."""
    raw = bytearray()
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > MAX_FORM_BYTES:
            raise Problem(413, "payload_too_large", "the form is too large")
    try:
        return dict(parse_qsl(raw.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict"))
    except ValueError:
        raise Problem(400, "bad_request", "the form cannot be read") from None


def is_from_here(request: Request) -> bool:
    """Tell whether a browser says that a form came from a page of this gateway."""
    origin = request.headers.get("origin")
    if origin is None:
        return request.headers.get("sec-fetch-site") == "same-origin"
    return is_own_origin(origin, request.headers.get("host", ""))


def _here(request: Request) -> str:
    query = urlencode(list(request.query_params.multi_items()))
    return request.url.path + (f"?{query}" if query else "")
