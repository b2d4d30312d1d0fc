"""`/metrics`, for Prometheus: with an operator's token, or for everybody where `metrics_open` says so."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Request, Security
from fastapi.security import HTTPAuthorizationCredentials
from starlette.responses import Response

from gateway.http.access import Parts, bearer, caller
from gateway.metrics import CONTENT_TYPE

router: Final = APIRouter()


@router.get("/metrics", include_in_schema=False)
async def metrics(
    request: Request, parts: Parts, credentials: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)]
) -> Response:
    """Tell this instance's numbers."""
    if not parts.settings.metrics_open:
        (await caller(request, parts, credentials)).must_be_operator("read")
    return Response(await parts.metrics.text(parts), media_type=CONTENT_TYPE)
