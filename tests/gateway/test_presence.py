"""Proves that local commands find the gateways that live, whatever the dead ones left behind."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

from gateway.presence import DIRECTORY, Presence, announce, serving

HERE = Presence(instance="a" * 16, pid=1, mqtt="127.0.0.1:1", http="127.0.0.1:2")
OTHER = Presence(instance="b" * 16, pid=2, mqtt="127.0.0.1:3", http="127.0.0.1:4")
DIES = """
import os, sys
from pathlib import Path
from gateway.presence import Presence, announce
with announce(Path(sys.argv[1]), Presence(instance="c" * 16, pid=3, mqtt="m", http="h")):
    os._exit(9)
"""


def test_every_living_gateway_is_found_until_it_stops(tmp_path: Path) -> None:
    assert serving(tmp_path) == []
    with announce(tmp_path, HERE):
        with announce(tmp_path, OTHER):
            assert serving(tmp_path) == [HERE, OTHER]
        assert serving(tmp_path) == [HERE]
    assert serving(tmp_path) == []
    assert list((tmp_path / DIRECTORY).iterdir()) == []


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    with announce(tmp_path, HERE):
        (file,) = (tmp_path / DIRECTORY).iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_one_that_was_killed_is_not_found_and_its_file_is_cleared_away(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    process = subprocess.run([sys.executable, "-c", DIES, str(tmp_path)], cwd=root, check=False)
    assert process.returncode == 9
    assert [file.name for file in (tmp_path / DIRECTORY).iterdir()] == [f"{'c' * 16}.json"]
    assert serving(tmp_path) == []
    assert list((tmp_path / DIRECTORY).iterdir()) == []


def test_a_file_that_is_not_ours_is_passed_over(tmp_path: Path) -> None:
    with announce(tmp_path, HERE):
        file = tmp_path / DIRECTORY / "d.json"
        file.write_text("{}")
        descriptor = os.open(file, os.O_RDONLY)
        try:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX)
            assert serving(tmp_path) == [HERE]
        finally:
            os.close(descriptor)
