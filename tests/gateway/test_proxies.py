"""Proves that only a trusted proxy is believed about who calls, and that a door for proxies answers nobody else."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from gateway.proxies import Proxies

TRUSTED = (ip_network("10.0.0.5/32"), ip_network("10.9.0.0/16"))


async def call(peer: str, headers: dict[str, str], *, only: bool = False) -> tuple[Scope | None, list[Message]]:
    """Call through the layer; give the scope that came out, if any did, and what was sent."""
    arrived: list[Scope] = []
    sent: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        arrived.append(scope)

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        sent.append(message)

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope: dict[str, Any] = {"type": "http", "scheme": "http", "client": (peer, 4711), "headers": raw}
    await Proxies(app, TRUSTED, only=only)(scope, receive, send)
    return (arrived[0] if arrived else None), sent


@pytest.mark.parametrize(
    ("peer", "forwarded", "caller"),
    [
        ("10.0.0.5", "192.0.2.7", "192.0.2.7"),
        ("10.0.0.5", "6.6.6.6, 192.0.2.7", "192.0.2.7"),  # what is further left may be anybody's invention
        ("10.0.0.5", "192.0.2.7, 10.9.1.1", "192.0.2.7"),  # two proxies of our own
        ("10.0.0.5", "[2001:db8::1]:4711", "2001:db8::1"),
        ("10.0.0.5", "192.0.2.7:4711", "192.0.2.7"),
        ("10.0.0.5", "nonsense", "10.0.0.5"),
        ("10.0.0.5", "", "10.0.0.5"),
        ("::ffff:10.0.0.5", "192.0.2.7", "192.0.2.7"),
        ("192.0.2.9", "192.0.2.7", "192.0.2.9"),  # nobody who is trusted
    ],
)
async def test_the_caller_is_the_last_address_that_is_no_proxy_of_ours(peer: str, forwarded: str, caller: str) -> None:
    scope, _ = await call(peer, {"x-forwarded-for": forwarded} if forwarded else {})
    assert scope is not None
    assert scope["client"][0] == caller


async def test_a_trusted_proxy_says_whether_the_caller_came_over_tls() -> None:
    trusted, _ = await call("10.0.0.5", {"x-forwarded-proto": "https"})
    stranger, _ = await call("192.0.2.9", {"x-forwarded-proto": "https"})
    assert trusted is not None
    assert stranger is not None
    assert (trusted["scheme"], stranger["scheme"]) == ("https", "http")


@pytest.mark.parametrize(("peer", "status"), [("192.0.2.9", 403), ("10.0.0.5", None), ("127.0.0.1", None)])
async def test_a_door_without_tls_that_is_for_proxies_answers_them_and_this_machine_alone(
    peer: str, status: int | None
) -> None:
    scope, sent = await call(peer, {}, only=True)
    assert (scope is None) == (status is not None)
    assert [message["status"] for message in sent if "status" in message] == ([status] if status else [])
