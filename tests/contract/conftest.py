"""Runs every test of the contract over every backend, each on a store of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engine.store.base import Store
from tests.contract.backends import BACKENDS, IN_ONE_PROCESS, Backend


@pytest.fixture(params=list(BACKENDS))
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    async with BACKENDS[request.param](tmp_path) as backend:
        yield backend


@pytest.fixture
def store(backend: Backend) -> Store:
    return backend.store


@pytest.fixture(params=[name for name in BACKENDS if name not in IN_ONE_PROCESS])
async def shared(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    """The backends that other processes can open."""
    async with BACKENDS[request.param](tmp_path) as backend:
        yield backend
