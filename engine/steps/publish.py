"""`publish`: send a command to devices over MQTT, at QoS 1."""

from __future__ import annotations

import json
from collections.abc import Mapping

from engine.events import Publisher, Whose
from engine.steps.result import Deed, Effect, done, failed
from engine.workflows.definition import PublishTask
from engine.workflows.expressions import render, render_text
from engine.workflows.topics import topic_problem


def prepare(task: PublishTask, env: Mapping[str, object], publisher: Publisher, whose: Whose) -> Deed:
    """Fill in topic and payload. The outputs say how many of this instance's connections received the command."""
    topic = render_text(task.topic, env)
    payload = json.dumps(render(task.payload, env), separators=(",", ":"), ensure_ascii=False).encode()

    async def deed() -> Effect:
        if problem := topic_problem(topic):
            return failed(f"the topic cannot be published to: {problem}")
        return done({"delivered": await publisher.publish(topic, payload, whose)})

    return deed
