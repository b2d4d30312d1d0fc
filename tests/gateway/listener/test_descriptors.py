"""Proves that as many files may be open as the system allows, and that connections are bounded by what that leaves."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from gateway.listener.descriptors import RESERVED, connections_that_fit, left_for_http, raise_limit


@pytest.fixture
def limits() -> Iterator[tuple[int, int]]:
    """The limits of this process, put back afterwards."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_soft_limit_becomes_the_hard_one(limits: tuple[int, int]) -> None:
    hard = limits[1]
    most = hard if 0 <= hard <= 1_048_576 else 1_048_576
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    for _ in range(2):  # once more does no harm
        assert raise_limit() == most
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, hard)


def test_a_system_that_refuses_keeps_what_it_has(limits: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(which: int, wanted: tuple[int, int]) -> None:
        raise ValueError

    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    with monkeypatch.context() as patched:
        patched.setattr(resource, "setrlimit", refuse)
        assert raise_limit() == 256


@pytest.mark.parametrize(
    ("wanted", "descriptors", "fit"),
    [(12_000, 65_536, 12_000), (12_000, 12_511, 11_999), (12_000, 1_024, 1_024 - RESERVED), (12_000, 256, 1)],
)
def test_connections_leave_descriptors_for_everything_else(wanted: int, descriptors: int, fit: int) -> None:
    assert connections_that_fit(wanted, descriptors) == fit


@pytest.mark.parametrize(
    ("connections", "descriptors", "doors", "left"),
    [(12_000, 65_536, 2, 1_000), (988, 1_500, 1, 192), (988, 1_500, 2, 96), (12_000, 13_000, 1, 680), (1, 256, 2, 96)],
)
def test_http_has_what_the_listener_leaves(connections: int, descriptors: int, doors: int, left: int) -> None:
    assert left_for_http(1_000, connections, descriptors, doors=doors) == left
