"""How a command reaches a gateway: over the network, or, when none serves the data directory, the same API in-process.

Every command speaks HTTP. `--server` names a gateway; else the one that serves the data directory is found there; else
the application is composed over the store in this very process, without a port. The answers are the same.
"""

from __future__ import annotations

import contextlib
import json
import os
import ssl
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from engine.errors import BadInput, NotFound, WaysideError
from gateway.cli import reaching
from gateway.cli.invocation import Invocation, current
from gateway.cli.refused import NO_LONGER_OWN, Refused
from gateway.light import without

# click and rich are for a command line of httpx's own.
with without("click", "rich"):
    import httpx

if TYPE_CHECKING:
    from gateway.config import Loaded
    from gateway.presence import Presence
    from gateway.settings import Settings

TIMEOUT_SECONDS: Final = 30.0
FOLLOW_SECONDS: Final = 20
FINISHED: Final = frozenset({"succeeded", "failed", "cancelled"})


@dataclass(slots=True)
class Client:
    """The HTTP API of one gateway. `local`: there is no gateway behind it but this process.

    `own`: the token is the one that the gateway's data directory keeps for the local commands.
    """

    http: httpx.AsyncClient
    local: bool
    own: bool = False

    async def get(self, path: str, **query: object) -> dict[str, Any]:
        return await self.call("GET", path, query=query)

    async def listed(self, path: str, member: str, **query: object) -> dict[str, Any]:
        """Read all pages of a list; `member` of the answer holds the items of all of them."""
        document = await self.get(path, **query)
        following = document.pop("next", None)
        while following:
            more = await self.get(path, **query, after=following)
            document[member] += more[member]
            following = more.get("next")
        return document

    async def post(self, path: str, body: object = None) -> dict[str, Any]:
        return await self.call("POST", path, body=body)

    async def delete(self, path: str, **query: object) -> dict[str, Any]:
        return await self.call("DELETE", path, query=query)

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        body: object = None,
        raw: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Make one request; raises `Refused` for every answer that is not 2xx, and `NoGateway` for none."""
        given = {name: str(value) for name, value in (query or {}).items() if value is not None}
        content = raw if raw is not None else (json.dumps(body).encode() if body is not None else None)
        head = {"Content-Type": "application/json"} if content is not None else {}
        answer = await self.request(method, f"/api/v1{path}", given, content, {**head, **(headers or {})})
        document = _document(reaching.address(self.http.base_url), answer)
        if answer.is_success:
            return document
        if self.own and answer.status_code == HTTPStatus.UNAUTHORIZED:
            document["hint"] = NO_LONGER_OWN
        raise Refused(answer.status_code, document)

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Make one request; raises `NoGateway` if no answer is had, and reads nothing of one."""
        try:
            return await self.http.request(method, path, params=query, content=content, headers=headers)
        except httpx.HTTPError as fault:
            raise reaching.of_fault(reaching.address(self.http.base_url), fault) from None

    async def settle(self, run: str) -> str:
        """Wait until a run that this process drives suspends or ends; return its status. At once otherwise."""
        after = 0
        while True:
            status = str((await self.get(f"/runs/{run}"))["status"])
            if not self.local or status not in {"pending", "running"}:
                return status
            events = (await self.get(f"/runs/{run}/events", after=after, wait=FOLLOW_SECONDS))["events"]
            after = events[-1]["seq"] if events else after

    async def follow(self, run: str, after: int = 0) -> AsyncIterator[dict[str, Any]]:
        """Give a run's events as they come, until it has ended."""
        while True:
            answer = await self.get(f"/runs/{run}/events", after=after, wait=FOLLOW_SECONDS)
            for event in answer["events"]:
                after = event["seq"]
                yield event
            if answer["ended"] and not answer["events"]:
                return


def _document(url: str, answer: httpx.Response) -> dict[str, Any]:
    """Read an answer; raises `NotAGateway` for what no gateway says."""
    try:
        parsed = json.loads(answer.content) if answer.content else {}
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise reaching.not_a_gateway(url, f"its answer is no JSON object (HTTP {answer.status_code})")
    if not answer.is_success and not isinstance(parsed.get("error"), str):
        raise reaching.not_a_gateway(url, f"it refuses in words of its own (HTTP {answer.status_code})")
    document = reaching.Answer(parsed)
    document.url = url
    return document


@contextlib.asynccontextmanager
async def connect(
    invocation: Invocation | None = None, *, create: bool = False, sweeps: bool = False
) -> AsyncIterator[Client]:
    """Reach the gateway that a command means. With `create`, a data directory is made where there is none.

    With `sweeps`, a command that acts by itself does a gateway's work meanwhile: it settles what is due.
    """
    invocation = invocation or current()
    if invocation.server:
        token = invocation.token()
        if not token:
            raise BadInput(
                "--server needs an operator's token",
                hint="put it in a file of mode 0600 and name that: --token-file FILE",
            )
        url = _url(invocation.server)
        options = _options(url, token) | (_trusted(invocation.ca) if url.startswith("https://") else {})
        async with httpx.AsyncClient(**options) as http:
            yield Client(http, local=False)
        return
    settings, data, served = find(invocation)
    if settings is None or served:
        options = _options(f"http://{_reachable(served[0].http)}", _admin_token(data))
        async with httpx.AsyncClient(**options) as http:
            yield Client(http, local=False, own=True)
        return
    if not data.is_dir() and not create:
        raise NotFound(
            f"there is no data directory {data}",
            hint="name it with --data DIR or WAYSIDE_DATA; `wayside serve` and `wayside device add` make one",
        )
    async with _composed(settings, sweeps=sweeps) as client:
        yield client


@contextlib.asynccontextmanager
async def _composed(settings: Settings, *, sweeps: bool) -> AsyncIterator[Client]:
    from gateway import logs
    from gateway.cli.output import note
    from gateway.composing import compose
    from gateway.data import LOST
    from gateway.http.app import create_app

    logs.configure(level="error", console=sys.stderr.isatty())
    async with compose(settings, sweeps=sweeps) as services:
        services.door = "cli"
        if services.lost:
            note(f"warning: {LOST}")
        transport = httpx.ASGITransport(create_app(services, page=False), raise_app_exceptions=False, client=("", 0))
        options = _options("http://localhost", _admin_token(settings.data))
        async with httpx.AsyncClient(transport=transport, **options) as http:
            yield Client(http, local=True)


def find(invocation: Invocation) -> tuple[Settings | None, Path, list[Presence]]:
    """Give the settings, the data directory, and the gateways that serve it.

    Mistakes in the settings keep nobody from a gateway that serves on without them, least of all in a hurry: they are
    warned of, and there are no settings. Where none serves, `BadInput` is raised for them.
    """
    from gateway.cli.output import note
    from gateway.config import data_directory
    from gateway.presence import serving

    try:
        settings = settings_of(invocation)
    except BadInput as fault:
        data = data_directory({"data": invocation.data}, config=invocation.config)
        if not (served := serving(data)):
            raise
        for problem in fault.problems or (fault.message,):
            note(f"warning: {problem}")
        note("warning: the gateway serves on with the settings that it has; none starts with these")
        return None, data, served
    return settings, settings.data, serving(settings.data)


def settings_of(invocation: Invocation, **flags: object) -> Settings:
    """Load the settings that a command works with, and say what is odd about them on standard error."""
    return loaded_of(invocation, **flags).settings


def loaded_of(invocation: Invocation, **flags: object) -> Loaded:
    """Load the same with where each stands."""
    from gateway.cli.output import note
    from gateway.config import load

    loaded = load({"data": invocation.data, **flags}, config=invocation.config)
    for warning in loaded.warnings:
        note(f"warning: {warning}")
    return loaded


def _options(url: str, token: str) -> dict[str, Any]:
    # Proxies of the environment are for the web, not for a gateway that was named.
    return {
        "base_url": url,
        "headers": {"Authorization": f"Bearer {token}"},
        "timeout": TIMEOUT_SECONDS + FOLLOW_SECONDS,
        "trust_env": False,
        # Without TLS nothing is verified: reading the world's authorities for it takes longer than the call.
        **({"verify": False} if url.startswith("http://") else {}),
    }


def _trusted(ca: str | None) -> dict[str, Any]:
    """Trust the authority in a file in place of the world's."""
    if ca is None:
        return {}
    try:
        return {"verify": ssl.create_default_context(cafile=ca)}
    except (OSError, ssl.SSLError) as fault:
        raise BadInput(
            f"--ca: {ca} holds no certificate that can be read ({type(fault).__name__})",
            hint="it is the ca.pem of the gateway, which `wayside tls init` made",
        ) from None


def _url(server: str) -> str:
    url = server if "://" in server else f"http://{server}"
    if not url.startswith(("http://", "https://")):
        raise BadInput("--server takes the address of a gateway", hint="such as http://127.0.0.1:8080")
    try:
        usable = bool(httpx.URL(url).host) and urlsplit(url).port != 0  # the port is looked at here alone
    except (httpx.InvalidURL, ValueError):
        usable = False
    if not usable:
        raise BadInput("--server: this is no address", hint="such as http://127.0.0.1:8080")
    return url.rstrip("/")


def _reachable(address: str) -> str:
    """Turn an address that listens everywhere into one that can be called."""
    return address.replace("0.0.0.0:", "127.0.0.1:", 1).replace("[::]:", "[::1]:", 1)


def _admin_token(data: Path) -> str:
    file = data / "admin.token"
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as fault:
        raise WaysideError(
            f"{file} cannot be read ({type(fault).__name__})",
            hint=f"run this as the user that the gateway runs as (you are user {os.getuid()}), or use --server",
        ) from None
