"""`http`: one request, with a timeout and an expected status."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping

import msgspec

from engine.limits import MAX_OUTPUT_BYTES
from engine.steps.result import Deed, Effect, done, failed
from engine.workflows.definition import HttpTask
from engine.workflows.expressions import render, render_text

_MAX_DEPTH = 64
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")


def prepare(task: HttpTask, env: Mapping[str, object]) -> Deed:
    """Fill in URL, headers and body. Redirects are answers like any other; the answer's body is kept up to a limit."""
    url = render_text(task.url, env)
    headers = {name.lower(): render_text(value, env) for name, value in task.headers.items()}
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
        # The client's own timeout is for one read at a time: a server that drips would never meet it.
        async with (
            asyncio.timeout(task.timeout),
            httpx.AsyncClient(timeout=task.timeout, follow_redirects=False, trust_env=False) as client,
            client.stream(task.method, url, headers=headers, content=content) as response,
        ):
            data = bytearray()
            async for chunk in response.aiter_bytes():
                data += chunk[: MAX_OUTPUT_BYTES + 1 - len(data)]
                if len(data) > MAX_OUTPUT_BYTES:
                    break
            status, kind = response.status_code, response.headers.get("content-type", "")
    except (TimeoutError, httpx.TimeoutException):
        return failed(f"the request did not end within {task.timeout:g} s")
    except Exception as error:  # noqa: BLE001 - a bad port alone comes as an OverflowError in a group of exceptions
        return failed(f"the request failed: {type(error).__name__}")
    outputs = {"status": status, "body": _body(bytes(data[:MAX_OUTPUT_BYTES]), kind)}
    expected = status in task.expect if task.expect else status // 100 == 2
    return done(outputs) if expected else failed(f"the answer was {status}", outputs)


def _body(data: bytes, kind: str) -> object:
    """Read JSON that every reader of a step's outputs can hold; anything else is text."""
    if "json" in kind:
        with contextlib.suppress(msgspec.DecodeError, ValueError, RecursionError):
            value: object = msgspec.json.decode(data)
            if _depth(data) <= _MAX_DEPTH:
                return value
    return data.decode("utf-8", "replace")


def _depth(data: bytes) -> int:
    """Count how deep brackets nest at most; those in strings are counted too, which only makes more of it text."""
    deepest = depth = 0
    for byte in data.translate(None, _NOT_BRACKETS):
        depth += 1 if byte in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest
