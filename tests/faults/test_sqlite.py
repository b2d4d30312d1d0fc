"""SQLite's disk full under signals: what was acknowledged is applied once, and it goes on when there is room."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.store.open import open_store
from tests.faults.signalling import signalling


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(place)]
    if subprocess.run(mounting, check=False, capture_output=True).returncode:
        pytest.skip("no right to mount a small disk; tests/engine/store fills a file up to its bound")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


async def test_a_disk_that_is_full_under_signals_loses_none_that_was_acknowledged(
    disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite://{disk}/wayside.db"
    ballast = disk / "ballast"
    async with signalling(tmp_path, [open_store(url), open_store(url)], 6) as load:
        await load.acknowledges(40)
        load.tally.fault = "disk full"
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(b"\0" * 65_536)
        await load.feels(12)
        ballast.unlink()
        await load.acknowledges(40)
    report = await load.judged("SQLite, its disk full", url, capsys)
    assert report.good
    assert report.outcomes >= 80
    assert load.tally.repeated["disk full"] >= 12
