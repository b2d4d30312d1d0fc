"""Proves that a login link works once and for ten minutes, and that a session lasts no longer than it should."""

from __future__ import annotations

import asyncio

import pytest

from gateway.auth import Principal
from gateway.sessions import LINK_SECONDS, MAX_LINKS, SESSION_SECONDS, Sessions, cookie_name
from tests.support.source import HandSource

SOMEBODY = Principal("user", "somebody", 1)


@pytest.fixture
def source() -> HandSource:
    return HandSource()


@pytest.fixture
def sessions(source: HandSource) -> Sessions:
    return Sessions(source)


def test_a_link_lets_in_once_as_whoever_asked_for_it(sessions: Sessions) -> None:
    code = sessions.offer(SOMEBODY)
    redeemed = sessions.redeem(code)
    assert redeemed is not None
    cookie, session = redeemed
    assert session.principal == SOMEBODY
    assert sessions.find(cookie) is session
    assert sessions.redeem(code) is None


def test_a_link_is_good_for_ten_minutes(sessions: Sessions, source: HandSource) -> None:
    early, late = sessions.offer(SOMEBODY), sessions.offer(SOMEBODY)
    source.advance(LINK_SECONDS - 1)
    assert sessions.redeem(early) is not None
    source.advance(1)
    assert sessions.redeem(late) is None


def test_a_session_ends_by_time_and_by_leaving(sessions: Sessions, source: HandSource) -> None:
    first, second = (sessions.redeem(sessions.offer(SOMEBODY)) for _ in range(2))
    assert first is not None
    assert second is not None
    sessions.end(first[0])
    assert sessions.find(first[0]) is None
    assert sessions.is_over(first[1])
    assert sessions.find(second[0]) is second[1]
    source.advance(SESSION_SECONDS)
    assert sessions.find(second[0]) is None


async def test_whoever_waits_for_a_session_to_end_is_told_when_it_is_left_or_its_time_is_over(
    sessions: Sessions, source: HandSource
) -> None:
    first, second = (sessions.redeem(sessions.offer(SOMEBODY)) for _ in range(2))
    assert first is not None
    assert second is not None
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(sessions.ended(first[1]))
        sessions.end(first[0])
    source.advance(SESSION_SECONDS)
    async with asyncio.timeout(10):
        await sessions.ended(second[1])


def test_what_was_never_given_out_finds_nothing(sessions: Sessions) -> None:
    sessions.offer(SOMEBODY)
    for guess in ("", "0" * 64, "é" * 64, "x" * 10_000):
        assert sessions.redeem(guess) is None
        assert sessions.find(guess) is None
    sessions.end("nothing")


def test_of_too_many_links_the_oldest_goes(sessions: Sessions) -> None:
    codes = [sessions.offer(SOMEBODY) for _ in range(MAX_LINKS + 1)]
    assert sessions.redeem(codes[0]) is None
    assert sessions.redeem(codes[1]) is not None


def test_a_session_shows_neither_its_cookie_nor_its_forms_token(sessions: Sessions) -> None:
    redeemed = sessions.redeem(sessions.offer(SOMEBODY))
    assert redeemed is not None
    cookie, session = redeemed
    assert session.csrf not in repr(session)
    assert cookie not in repr(vars(sessions))
    assert session.is_own_form(session.csrf)
    assert not session.is_own_form(session.csrf[:-1])


@pytest.mark.parametrize(
    ("host", "name"),
    [("127.0.0.1:8080", "wayside_8080"), ("[::1]:80", "wayside_80"), ("gateway", "wayside"), ("x:99999999", "wayside")],
)
def test_two_gateways_on_one_host_have_cookies_of_their_own(host: str, name: str) -> None:
    assert cookie_name(host) == name
