"""A broker of each kind, and a gateway behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.behind import Behind, behind
from tests.support.brokers import KINDS, Broker


@pytest.fixture(params=KINDS)
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Broker:
    return Broker(request.param, tmp_path / "broker")


@pytest.fixture
def mosquitto(tmp_path: Path) -> Broker:
    return Broker("mosquitto", tmp_path / "broker")


@pytest.fixture
async def bridged(tmp_path: Path, broker: Broker) -> AsyncIterator[Behind]:
    async with behind(tmp_path, broker) as found:
        yield found
