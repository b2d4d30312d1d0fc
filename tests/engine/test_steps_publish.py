"""A publish step sends one command with what its templates give, and refuses a topic that nobody may publish to."""

from __future__ import annotations

import msgspec
import pytest

from engine.errors import StoreUnavailable
from engine.events import Whose
from engine.steps import publish
from engine.steps.result import Effect
from engine.workflows.definition import PublishTask, Template

WHOSE = Whose(workflow="door", run="r" * 26, job="main", step="tell")


class Listening:
    def __init__(self, connections: int = 2) -> None:
        self.connections = connections
        self.sent: list[tuple[str, bytes]] = []
        self.whose: Whose | None = None

    async def publish(self, topic: str, payload: bytes, whose: Whose) -> int:
        self.sent.append((topic, payload))
        self.whose = whose
        return self.connections


async def do(topic: str, payload: Template, to: Listening, **inputs: object) -> Effect:
    return await publish.prepare(
        PublishTask(topic=topic, payload=payload), {"inputs": inputs, "steps": {}, "self": {}}, to, WHOSE
    )()


async def test_topic_and_payload_are_filled_in_and_the_receivers_counted() -> None:
    to = Listening()
    effect = await do("lights/${{ inputs.n }}/cmd", {"on": "${{ inputs.on }}", "é": [1]}, to, n=3, on=True)
    assert to.sent == [("lights/3/cmd", '{"on":true,"é":[1]}'.encode())]
    assert to.whose == WHOSE
    assert effect.error is None
    assert effect.outputs is not None
    assert msgspec.json.decode(effect.outputs) == {"delivered": 2}


@pytest.mark.parametrize("level", ["a/#", "+", "$SYS/x", "", "d/other/replies/x\0", "\ufdd0", "a/" * 128])
async def test_a_topic_that_became_a_bad_one_fails_the_step_and_sends_nothing(level: str) -> None:
    to = Listening()
    effect = await do("${{ inputs.level }}", {}, to, level=level)
    assert effect.error is not None
    assert effect.error.code == "task_failed"
    assert to.sent == []


async def test_a_fault_of_the_sender_is_its_callers_to_judge() -> None:
    class Away:
        async def publish(self, topic: str, payload: bytes, whose: Whose) -> int:
            raise StoreUnavailable("away")

    deed = publish.prepare(PublishTask(topic="a/b", payload={}), {"inputs": {}, "steps": {}, "self": {}}, Away(), WHOSE)
    with pytest.raises(StoreUnavailable):
        await deed()
