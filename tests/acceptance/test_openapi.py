"""Proves that a serving gateway answers what its OpenAPI document says, whatever it is asked: schemathesis asks it."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.support.command import Serving, serving

SCHEMATHESIS = str(Path(sys.executable).with_name("st"))
# No 5xx, no status, media type or body that the document does not tell of, and 405 for what is not there.
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
SECONDS = 180.0
DOOR = """\
name: front-door
jobs:
  - name: main
    steps:
      - name: identify
        task: { type: wait_for_signal, key: verdict, acceptEarly: 60, timeout: 600 }
"""


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Serving]:
    (tmp_path / "data" / "workflows").mkdir(parents=True)
    (tmp_path / "data" / "workflows" / "front-door.yaml").write_text(DOOR)
    async with serving(tmp_path / "data") as gateway:
        yield gateway


# These would end the token that the others are asked with, or have the asker wait for up to a minute, as it may say. A
# device asks them, too, and they have tests of their own.
NOT_AS_ADMIN = ("revoke_operator", "rotate_operator", "finish_operator_rotation", "list_events", "run_events")


async def ask(
    gateway: Serving, tmp_path: Path, token: str, *left_out: str, phases: str = "coverage,fuzzing"
) -> tuple[str, int]:
    """Have schemathesis ask everything but `left_out`; give what it said, and how many operations it asked."""
    process = await asyncio.create_subprocess_exec(
        SCHEMATHESIS, "run", f"http://{gateway.http}/api/v1/openapi.json",
        "--header", f"Authorization: Bearer {token}",
        "--checks", CHECKS, "--phases", phases, "--max-examples", "3", "--mode", "all",
        "--request-timeout", "30", "--seed", "1", "--no-color",
        *(word for name in left_out for word in ("--exclude-operation-id", name)),
        cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        out, _ = await asyncio.wait_for(process.communicate(), SECONDS)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    said = out.decode()
    assert process.returncode == 0, said[-8_000:]
    assert not [line for line in gateway.log if '"level":"error"' in line]
    found = re.search(r"Tested: (\d+)", said)
    assert found is not None
    return said, int(found[1])


async def test_whatever_an_admin_asks_is_answered_as_the_document_says(gateway: Serving, tmp_path: Path) -> None:
    said, asked = await ask(gateway, tmp_path, (gateway.data / "admin.token").read_text().strip(), *NOT_AS_ADMIN)
    assert asked >= 33
    # The token was good to the end, so that what was asked got as far as the routes.
    assert "Rate limited" not in said
    assert (await gateway.json("operator", "list"))["operators"]


async def test_whatever_a_device_asks_is_answered_as_the_document_says(gateway: Serving, tmp_path: Path) -> None:
    added = await gateway.json("device", "add", "camera", "--grant", "signal:front-door")
    _, asked = await ask(gateway, tmp_path, added["token"], phases="coverage")
    assert asked >= 38


async def test_a_method_that_a_path_has_not_is_answered_with_those_that_it_has(gateway: Serving) -> None:
    async with httpx.AsyncClient(base_url=f"http://{gateway.http}", trust_env=False) as client:
        answer = await client.request("OPTIONS", "/api/v1/devices")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, POST")
    assert answer.json()["error"] == "method_not_allowed"
