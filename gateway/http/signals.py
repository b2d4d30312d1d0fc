"""`POST /signals/{workflow}/{key}` and `POST /waits/{wait}/signal`: the body is the payload and nothing around it."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Header, Path, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from engine.limits import MAX_PAYLOAD_BYTES, NAME_PATTERN, SIGNAL_ID_PATTERN
from gateway.answers import http_reply
from gateway.deliver import Delivered, Origin
from gateway.http.access import Parts, Who
from gateway.http.models import ReceiptView
from gateway.http.problems import TooLarge, documented

router: Final = APIRouter(tags=["signals"])
_ERRORS: Final = documented(400, 401, 404, 409, 410, 413, 422, 429, 503)
_PAYLOAD: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "description": "The payload: a JSON object of at most 16 KiB, as the step's schema describes it.",
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
}
# What has not the form is answered as it is at every door, by `deliver`: the description alone tells of it.
SignalId = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="the signal id: repeats under it are one signal",
        max_length=512,
        json_schema_extra={"pattern": rf"^{SIGNAL_ID_PATTERN}$"},
    ),
]
_Named = Annotated[str, Path(json_schema_extra={"pattern": rf"^{NAME_PATTERN}$"})]


@router.post(
    "/signals/{workflow}/{key}",
    response_model=ReceiptView,
    response_model_exclude_none=True,
    status_code=202,
    responses=_ERRORS,
    openapi_extra=_PAYLOAD,
)
async def signal_key(
    *,
    workflow: _Named,
    key: _Named,
    request: Request,
    parts: Parts,
    who: Who,
    idempotency_key: SignalId = None,
) -> Response:
    """Signal a key of a workflow, with a device's token or an operator's."""
    raw, size = await _body(request)
    delivered = await parts.deliver.signal(
        who.principal,
        Origin(door=parts.door, address=who.address),
        workflow=workflow,
        key=key,
        raw=raw,
        signal_id=idempotency_key,
    )
    return response(delivered, size)


@router.post(
    "/waits/{wait}/signal",
    response_model=ReceiptView,
    response_model_exclude_none=True,
    status_code=202,
    responses=_ERRORS,
    openapi_extra=_PAYLOAD,
)
async def signal_wait(
    wait: Annotated[str, Path(json_schema_extra={"pattern": "^[a-z0-9]{26}$"})],
    request: Request,
    parts: Parts,
    who: Who,
    idempotency_key: SignalId = None,
) -> Response:
    """Signal one wait by its id; a wait without a key takes a grant on its workflow."""
    raw, size = await _body(request)
    delivered = await parts.deliver.signal_wait(
        who.principal, Origin(door=parts.door, address=who.address), wait=wait, raw=raw, signal_id=idempotency_key
    )
    return response(delivered, size)


async def _body(request: Request) -> tuple[bytes, int]:
    """Read the payload as far as the cap, and give its size; what is over it is refused after the grant was checked."""
    raw = bytearray()
    try:
        async for chunk in request.stream():
            raw += chunk
    except TooLarge as over:
        return bytes(raw).ljust(MAX_PAYLOAD_BYTES + 1), over.size
    except ClientDisconnect:
        raise TooLarge(len(raw)) from None  # nobody is there to be told
    return bytes(raw), len(raw)


def response(delivered: Delivered, size: int | None = None) -> Response:
    """Write an answer of the one use case; `size` is what was sent where less of it was read."""
    reply = http_reply(delivered.words, delivered.id)
    if size is not None and "bytes" in reply.body:
        reply.body["bytes"] = size
    return Response(msgspec.json.encode(reply.body), reply.status, reply.headers)
