"""Reverse proxies: only those that are named are believed about who calls through them.

A trusted proxy appends the caller's address to `X-Forwarded-For` and says `X-Forwarded-Proto`. What stands further to
the left may have been written by anybody: the rightmost address that is no trusted proxy is the caller's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from starlette.types import ASGIApp, Receive, Scope, Send

Network = IPv4Network | IPv6Network


class Proxies:
    """An ASGI application around another: puts the true caller into the scope.

    With `only`, whoever is neither a trusted proxy nor on this machine is refused: for a door without TLS.
    """

    def __init__(self, app: ASGIApp, trusted: Sequence[Network], *, only: bool = False) -> None:
        self._app = app
        self._trusted = tuple(trusted)
        self._only = only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"}:
            return
        peer = _address(scope["client"][0]) if scope.get("client") else None
        if peer is not None and self._is_trusted(peer):
            scope = self._told(scope, peer)
        elif self._only and not (peer is not None and peer.is_loopback):
            await _refuse(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_trusted(self, address: IPv4Address | IPv6Address) -> bool:
        return any(address in network for network in self._trusted)

    def _told(self, scope: Scope, peer: IPv4Address | IPv6Address) -> Scope:
        headers = scope["headers"]
        said = ",".join(value.decode("latin-1") for name, value in headers if name == b"x-forwarded-for")
        caller = peer
        for text in reversed([part.strip() for part in said.split(",") if part.strip()]):
            address = _address(text)
            if address is None:
                break
            caller = address
            if not self._is_trusted(address):
                break
        scheme = next((value for name, value in headers if name == b"x-forwarded-proto"), b"").decode("latin-1").lower()
        told = {**scope, "client": (str(caller), 0)}
        if scheme in {"http", "https"}:
            told["scheme"] = scheme if scope["type"] == "http" else {"http": "ws", "https": "wss"}[scheme]
        return told


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """Read an address, also one with a port (`192.0.2.1:4711`, `[2001:db8::1]:4711`); None for anything else."""
    plain = text
    if text.startswith("["):
        plain = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        plain = text.partition(":")[0]
    try:
        found = ip_address(plain)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008, "reason": ""})
        return
    body = b'{"type":"forbidden","title":"Forbidden","status":403,"v":1,"ok":false,"code":403,"error":"forbidden"}'
    headers: Iterable[tuple[bytes, bytes]] = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 403, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})
