"""`wayside serve` that kills itself with SIGKILL at a chosen place of the accept path. For the kill test alone.

`DIE_AT=committed` and `DIE_AFTER=n`: as the n-th message has been decided and is durable, before its PUBACK is sent.
"""

from __future__ import annotations

import os
import signal
from typing import Any


def die() -> None:
    """End this process as a power cut would."""
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Patch the place, then be the gateway."""
    place, left = os.environ.get("DIE_AT", ""), int(os.environ.get("DIE_AFTER", "0"))
    counter = [left]

    def tick() -> None:
        counter[0] -= 1
        if counter[0] == 0:
            die()

    if place == "committed":
        from gateway.mqtt_door import MqttDoor

        publish = MqttDoor.publish

        async def dying(self: MqttDoor, *args: Any, **named: Any) -> Any:
            handled = await publish(self, *args, **named)
            tick()
            return handled

        MqttDoor.publish = dying  # type: ignore[method-assign]
    elif place:
        raise SystemExit(f"unknown place {place}")
    from gateway.cli import main as wayside

    wayside()


if __name__ == "__main__":
    main()
