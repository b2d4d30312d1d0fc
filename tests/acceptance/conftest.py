"""A data directory with the kitchen's workflow, and a gateway that serves it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.command import Serving, serving

DOOR = """\
name: front-door
description: Somebody is at the door
inputs: { type: object, properties: { camera: { type: string } } }
jobs:
  - name: main
    steps:
      - name: identify
        allowFailure: true
        task:
          type: wait_for_signal
          key: kitchen-verdict
          acceptEarly: 60
          timeout: 600
          schema:
            type: object
            required: [verdict]
            properties: { verdict: { type: string, enum: [known, intruder] } }
      - name: alarm
        dependsOn: [{ step: identify, condition: { type: completed } }]
        guard: ${{ steps.identify.status == "succeeded" && steps.identify.payload.verdict == "known" }}
        task: { type: publish, topic: sirens/hall/cmd, payload: { "on": true } }
"""
BATCH = """\
name: batch
inputs: { type: object, required: [names], properties: { names: { type: array } } }
jobs:
  - name: main
    steps:
      - name: greet
        forEach: { item: name, in: "${{ inputs.names }}" }
        task: { type: shell, run: [echo, "${{ self.name }}"] }
      - name: judge
        dependsOn: [{ step: greet, condition: { type: completed } }]
        task: { type: assert, that: "${{ size(inputs.names) < 3 }}", message: too many }
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    directory = tmp_path / "data"
    (directory / "workflows").mkdir(parents=True)
    directory.chmod(0o700)
    (directory / "workflows" / "front-door.yaml").write_text(DOOR)
    (directory / "workflows" / "batch.yaml").write_text(BATCH)
    return directory


@pytest.fixture
async def gateway(data: Path) -> AsyncIterator[Serving]:
    async with serving(data) as found:
        yield found
