"""All addresses of the page, and its few files."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from gateway.http.problems import Problem
from gateway.web import audit, devices, docs, keys, login, overview, runs, stream, workflows
from gateway.web.render import static_files

_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


async def static(request: Request) -> Response:
    """Give one of the page's files. Its address changes with its content, so that it may be kept for long."""
    name = request.path_params["name"]
    content = static_files().get(name)
    if content is None:
        raise Problem(404, "not_found", "there is no such file")
    headers = {"cache-control": "public, max-age=31536000, immutable"}
    return Response(content, 200, headers, _TYPES[name.rpartition(".")[2]])


ROUTES: Final[list[BaseRoute]] = [
    Route("/static/{name}", static, methods=["GET"], include_in_schema=False),
    *login.ROUTES,
    *overview.ROUTES,
    *keys.ROUTES,
    *runs.ROUTES,
    *devices.ROUTES,
    *workflows.ROUTES,
    *audit.ROUTES,
    *stream.ROUTES,
    *docs.ROUTES,
]
