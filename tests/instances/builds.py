"""Builds of the project as trees of code: of a commit, and of the same with a higher format of its records."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

from tests.support.mosquitto import free_port
from tests.support.serving import ROOT


def build(commit: str, directory: Path) -> Path:
    """Unpack a commit; raises `SystemExit` where this checkout does not have it."""
    made = subprocess.run(["git", "archive", "--format=tar", commit], cwd=ROOT, capture_output=True, check=False)
    if made.returncode:
        raise SystemExit(f"there is no build of {commit} (--old and --new name them): {made.stderr.decode().strip()}")
    with tarfile.open(fileobj=BytesIO(made.stdout)) as archive:
        archive.extractall(directory, filter="data")
    told = subprocess.run(
        [sys.executable, "-c", "import gateway.cli, engine; print(engine.__file__)"],
        cwd=directory, capture_output=True, check=True,
    ).stdout.decode()  # fmt: skip
    assert Path(told.strip()).is_relative_to(directory), f"{commit} would not run from its own code but from {told}"
    return directory


def raised(build: Path, directory: Path) -> tuple[Path, int]:
    """Copy a build and raise its format by one; tell the number."""
    shutil.copytree(build, directory)
    module = directory / "engine" / "format.py"
    text = module.read_text()
    (known,) = re.findall(r"^FORMAT = (\d+)$", text, re.MULTILINE)
    module.write_text(text.replace(f"\nFORMAT = {known}\n", f"\nFORMAT = {int(known) + 1}\n"))
    return directory, int(known) + 1


async def refused(build: Path, data: Path, url: str) -> tuple[int, str]:
    """Start a gateway that ought not to; give its exit status and what it said."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway.cli", "serve", "--data", str(data), "--store", url,
        "--mqtt", f"127.0.0.1:{free_port()}", "--http", f"127.0.0.1:{free_port()}",
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=build, env=dict(os.environ),
    )  # fmt: skip
    assert process.stdout is not None
    try:
        # One that does start says so, and goes on.
        said = b""
        async with asyncio.timeout(60):
            while (line := await process.stdout.readline()) and not line.startswith(b"ready"):
                said += line
        assert not line, "the gateway started"
        return await process.wait(), said.decode()
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
