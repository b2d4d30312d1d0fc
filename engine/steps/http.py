"""`http`: one request, with a timeout and an expected status."""

from __future__ import annotations

import json
from collections.abc import Mapping

from engine.limits import MAX_OUTPUT_BYTES
from engine.steps.result import Deed, Effect, done, failed
from engine.workflows.definition import HttpTask
from engine.workflows.expressions import render


def prepare(task: HttpTask, env: Mapping[str, object]) -> Deed:
    """Fill in URL, headers and body. Redirects are answers like any other; the answer's body is kept up to a limit."""
    url = str(render(task.url, env))
    headers = {name: str(render(value, env)) for name, value in task.headers.items()}
    body = None if task.body is None else render(task.body, env)
    content: bytes | None = None
    if isinstance(body, str):
        content = body.encode()
    elif body is not None:
        content = json.dumps(body, separators=(",", ":")).encode()
        headers.setdefault("content-type", "application/json")

    async def deed() -> Effect:
        return await _request(task, url, headers, content)

    return deed


async def _request(task: HttpTask, url: str, headers: dict[str, str], content: bytes | None) -> Effect:
    import httpx  # noqa: PLC0415 - a fifth of a second at start, for those who use it

    try:
        async with (
            httpx.AsyncClient(timeout=task.timeout, follow_redirects=False, trust_env=False) as client,
            client.stream(task.method, url, headers=headers, content=content) as response,
        ):
            data = bytearray()
            async for chunk in response.aiter_bytes():
                data += chunk[: MAX_OUTPUT_BYTES + 1 - len(data)]
                if len(data) > MAX_OUTPUT_BYTES:
                    break
            status, kind = response.status_code, response.headers.get("content-type", "")
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        return failed(f"the request failed: {type(error).__name__}")
    outputs = {"status": status, "body": _body(bytes(data[:MAX_OUTPUT_BYTES]), kind)}
    expected = status in task.expect if task.expect else status // 100 == 2
    return done(outputs) if expected else failed(f"the answer was {status}", outputs)


def _body(data: bytes, kind: str) -> object:
    if "json" in kind:
        try:
            return json.loads(data, parse_constant=lambda _: None)
        except (ValueError, RecursionError):
            pass
    return data.decode("utf-8", "replace")
