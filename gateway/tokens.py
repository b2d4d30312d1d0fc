"""When each token of a device or an operator was made, and whether it is in use: what decides `rotate --finish`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from devices.model import Device, Operator
from devices.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUse:
    """One token. A use is noted while there are two tokens, so that a single one's says nothing and is None.

    `first_used`: of a newer token, or of one that was the newer before. `used_since`: of the older of two, when it was
    first used since the other was made; None if it was not, or was in use already when another rotation began.
    """

    made: datetime | None
    first_used: datetime | None
    used_since: datetime | None
    older: bool


async def token_uses(registry: Registry, entry: Device | Operator) -> list[TokenUse]:
    """Read of each token of `entry`, the older first, when it was made and used."""
    times = [await registry.secret_times(entry, secret) for secret in entry.secrets]
    rotated = times[-1][0] if len(times) > 1 else None
    uses = []
    for number, (made, used) in enumerate(times):
        older = rotated is not None and number == 0
        since = older and used is not None and rotated is not None and used >= rotated
        uses.append(
            TokenUse(made=made, first_used=None if since else used, used_since=used if since else None, older=older)
        )
    return uses
